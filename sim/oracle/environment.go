package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// environment fires when a container finds other variables than its spec and the API server's
// objects say: values from two versions of one object, from a version that was replaced long ago,
// or that come from nowhere. What has several sources is left to unit tests, and so is what is told
// of the node and of addresses.
type environment struct{}

func (*environment) entry() Entry {
	return Entry{"environment", "A container has the variables that its spec gives it, those from " +
		"an object of one version of it, those of services, and no others."}
}

// envSource is an object that variables come from.
type envSource struct {
	object  string
	service bool
	refs    []envRef
	wholes  []envWhole
}

// envRef is one key of it that is a variable, envWhole that all are.
type envRef struct {
	key, variable string
	optional      bool
}

type envWhole struct {
	prefix   string
	optional bool
}

// surroundings are the variables of a container, and where they may come from.
type surroundings struct {
	w       *world
	env     map[string]string
	sources []*envSource
	claims  map[string]int // how many sources a variable may have
}

func (*environment) fact(w *world, f *truth.Fact) *finding {
	p := w.pods[f.PodUID]
	if f.Kind != truth.ContainerCreated || p == nil || f.Env == nil || len(p.specs) == 0 {
		return nil
	}
	c := p.specOf(f.Container, f.Annotations[annotationHash])
	if c == nil {
		return nil
	}
	s := &surroundings{w: w, env: f.Env, claims: map[string]int{}}
	s.of(p.specs[len(p.specs)-1], c)
	what := s.plain(p, c)
	for _, from := range s.sources {
		if what == "" {
			what = s.judge(from, f.Time)
		}
	}
	if what == "" {
		what = s.stray()
	}
	if what == "" {
		return nil
	}
	return says("container %s of pod %s/%s: %s", f.Container, f.PodNamespace, f.PodName, what)
}

// of finds where the variables may come from.
func (s *surroundings) of(spec *v1.Pod, c *v1.Container) {
	for i := range c.EnvFrom {
		switch from := &c.EnvFrom[i]; {
		case from.ConfigMapRef != nil:
			s.whole(objectName(api.ResourceConfigMaps, spec.Namespace, from.ConfigMapRef.Name),
				from.Prefix, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			s.whole(objectName(api.ResourceSecrets, spec.Namespace, from.SecretRef.Name),
				from.Prefix, from.SecretRef.Optional)
		}
	}
	for i := range c.Env {
		s.claims[c.Env[i].Name]++
		switch from := c.Env[i].ValueFrom; {
		case from == nil:
		case from.ConfigMapKeyRef != nil:
			ref := from.ConfigMapKeyRef
			s.ref(objectName(api.ResourceConfigMaps, spec.Namespace, ref.Name), envRef{ref.Key,
				c.Env[i].Name, ref.Optional != nil && *ref.Optional})
		case from.SecretKeyRef != nil:
			ref := from.SecretKeyRef
			s.ref(objectName(api.ResourceSecrets, spec.Namespace, ref.Name), envRef{ref.Key,
				c.Env[i].Name, ref.Optional != nil && *ref.Optional})
		}
	}
	links := spec.Spec.EnableServiceLinks
	for _, name := range slices.Sorted(maps.Keys(s.w.sources.states)) {
		service, is := strings.CutPrefix(name, string(api.ResourceServices)+"/")
		if is && (service == "default/kubernetes" || (links == nil || *links) &&
			strings.HasPrefix(service, spec.Namespace+"/")) {
			yes := true
			s.whole(name, "", &yes)
			s.source(name).service = true
		}
	}
}

func (s *surroundings) source(object string) *envSource {
	same := func(from *envSource) bool { return from.object == object }
	if i := slices.IndexFunc(s.sources, same); i >= 0 {
		return s.sources[i]
	}
	s.sources = append(s.sources, &envSource{object: object})
	return s.sources[len(s.sources)-1]
}

func (s *surroundings) ref(object string, ref envRef) {
	from := s.source(object)
	from.refs = append(from.refs, ref)
}

func (s *surroundings) whole(object, prefix string, optional *bool) {
	from := s.source(object)
	from.wholes = append(from.wholes, envWhole{prefix, optional != nil && *optional})
	for _, key := range s.w.sources.keys(object) {
		s.claims[prefix+key]++
	}
}

// keys are all that an object ever had.
func (o *sources) keys(object string) []string {
	all := map[string]bool{}
	for _, state := range o.states[object] {
		for key := range state { //ordered: into a map
			all[key] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// plain judges what the spec says by itself.
func (s *surroundings) plain(p *pod, c *v1.Container) string {
	for i := range c.Env {
		v := &c.Env[i]
		wanted, known := v.Value, v.ValueFrom == nil && !strings.Contains(v.Value, "$")
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil &&
			v.ValueFrom.FieldRef.FieldPath == "metadata.name" {
			_, wanted, _ = strings.Cut(p.full.text, "/")
			known = true
		}
		if got, there := s.env[v.Name]; known && s.claims[v.Name] == 1 && (!there || got != wanted) {
			return fmt.Sprintf("%s is %q (there: %v), not %q", v.Name, got, there, wanted)
		}
	}
	return ""
}

// judge finds the version of an object that the variables come from.
func (s *surroundings) judge(from *envSource, now time.Time) string {
	states, ends := s.w.sources.states[from.object], s.w.sources.ends[from.object]
	for n := len(states) - 1; n >= 0; n-- {
		switch {
		case !s.fits(from, states[n]):
			continue
		case n == len(states)-1 || !s.late(ends[n], now):
			return ""
		}
		return fmt.Sprintf("its variables are of a version of %s that was replaced %v ago",
			from.object, now.Sub(ends[n]).Round(time.Second))
	}
	if s.fits(from, nil) && (len(states) == 0 || !s.late(s.w.sources.begins[from.object], now)) {
		return ""
	}
	return fmt.Sprintf("its variables are of no version of %s: %q", from.object, s.env)
}

// late says whether a change of that time should have been known when the container was made.
func (s *surroundings) late(at, now time.Time) bool {
	within := arrivesWithin + s.w.opts.Follows.Within()
	if s.w.opts.Follows.Cached {
		within += ttlMost
	}
	return now.Sub(at) > within && s.w.livedThrough(at) &&
		!s.w.struckAny(at.Add(-reconnects), now, append([]string{"CreateContainer"}, arriving...)...)
}

// fits says whether the variables are what a state of the object makes of them.
func (s *surroundings) fits(from *envSource, state map[string][]byte) bool {
	for _, r := range from.refs {
		if s.claims[r.variable] > 1 {
			continue
		}
		value, has := state[r.key]
		got, there := s.env[r.variable]
		if !has && !r.optional || there != has || got != string(value) {
			return false
		}
	}
	for _, whole := range from.wholes {
		if state == nil && !whole.optional {
			return false
		}
		for _, key := range s.w.sources.keys(from.object) {
			value, has := state[key]
			got, there := s.env[whole.prefix+key]
			if s.claims[whole.prefix+key] == 1 && (there != has || got != string(value)) {
				return false
			}
		}
	}
	return true
}

// stray says which variable comes from nowhere.
func (s *surroundings) stray() string {
	for _, name := range slices.Sorted(maps.Keys(s.env)) {
		if s.claims[name] == 0 {
			return fmt.Sprintf("%s=%q comes from nowhere", name, s.env[name])
		}
	}
	return ""
}

// ofService are the variables that tell of a service; nil if it has no address.
func ofService(s *v1.Service) map[string][]byte {
	ip := s.Spec.ClusterIP
	if ip == "" || ip == v1.ClusterIPNone || len(s.Spec.Ports) == 0 {
		return nil
	}
	name := strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
	variables := map[string][]byte{name + "_SERVICE_HOST": []byte(ip)}
	for i := range s.Spec.Ports {
		port := strconv.Itoa(int(s.Spec.Ports[i].Port))
		url := []byte("tcp://" + ip + ":" + port)
		if i == 0 {
			variables[name+"_SERVICE_PORT"] = []byte(port)
			variables[name+"_PORT"] = url
		}
		link := name + "_PORT_" + port + "_TCP"
		variables[link], variables[link+"_PROTO"] = url, []byte("tcp")
		variables[link+"_PORT"], variables[link+"_ADDR"] = []byte(port), []byte(ip)
	}
	return variables
}
