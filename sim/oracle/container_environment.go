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

// environment fires when a container has other variables than its spec and the API server's
// objects give it: values of two versions of one object, of a version that was replaced long ago,
// or of no source. Variables with several sources, and those about the node and its addresses,
// are left to unit tests.
type environment struct{}

func (*environment) describe() Entry {
	return Entry{"environment", "A container has the variables that its spec gives it, those " +
		"of services, and no others; those from one object are of one version of it."}
}

// envSource is an object that variables come from.
type envSource struct {
	object   string
	service  bool
	keyRefs  []envKeyRef
	fromRefs []envFromRef
}

// envKeyRef is a variable from one key of an object. An envFromRef gives all keys of an object as
// variables.
type envKeyRef struct {
	key, variable string
	optional      bool
}

type envFromRef struct {
	prefix   string
	optional bool
}

// environmentCheck is the variables of a container, and their possible sources.
type environmentCheck struct {
	model        *model
	env          map[string]string
	sources      []*envSource
	sourceCounts map[string]int // by variable
}

func (*environment) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerCreated || p == nil || f.Env == nil || len(p.specs) == 0 {
		return nil
	}
	c := p.specOf(f.Container, f.Annotations[annotationHash])
	if c == nil {
		return nil
	}
	s := &environmentCheck{model: m, env: f.Env, sourceCounts: map[string]int{}}
	s.collectSources(p.specs[len(p.specs)-1], c)
	problem := s.literalProblem(p, c)
	for _, from := range s.sources {
		if problem == "" {
			problem = s.sourceProblem(from, f.Time)
		}
	}
	if problem == "" {
		problem = s.unexplainedVariable()
	}
	if problem == "" {
		return nil
	}
	return findingf("container %s of pod %s/%s: %s", f.Container, f.PodNamespace, f.PodName, problem)
}

// collectSources finds the possible sources of the variables.
func (s *environmentCheck) collectSources(spec *v1.Pod, c *v1.Container) {
	for i := range c.EnvFrom {
		switch from := &c.EnvFrom[i]; {
		case from.ConfigMapRef != nil:
			s.addFromRef(objectKey(api.ResourceConfigMaps, spec.Namespace, from.ConfigMapRef.Name),
				from.Prefix, from.ConfigMapRef.Optional)
		case from.SecretRef != nil:
			s.addFromRef(objectKey(api.ResourceSecrets, spec.Namespace, from.SecretRef.Name),
				from.Prefix, from.SecretRef.Optional)
		}
	}
	for i := range c.Env {
		s.sourceCounts[c.Env[i].Name]++
		switch from := c.Env[i].ValueFrom; {
		case from == nil:
		case from.ConfigMapKeyRef != nil:
			ref := from.ConfigMapKeyRef
			s.addKeyRef(objectKey(api.ResourceConfigMaps, spec.Namespace, ref.Name), envKeyRef{ref.Key,
				c.Env[i].Name, ref.Optional != nil && *ref.Optional})
		case from.SecretKeyRef != nil:
			ref := from.SecretKeyRef
			s.addKeyRef(objectKey(api.ResourceSecrets, spec.Namespace, ref.Name), envKeyRef{ref.Key,
				c.Env[i].Name, ref.Optional != nil && *ref.Optional})
		}
	}
	links := spec.Spec.EnableServiceLinks
	for _, name := range slices.Sorted(maps.Keys(s.model.objectHistory.states)) {
		service, ok := strings.CutPrefix(name, string(api.ResourceServices)+"/")
		if ok && (service == "default/kubernetes" || (links == nil || *links) &&
			strings.HasPrefix(service, spec.Namespace+"/")) {
			yes := true
			s.addFromRef(name, "", &yes)
			s.source(name).service = true
		}
	}
}

func (s *environmentCheck) source(object string) *envSource {
	same := func(from *envSource) bool { return from.object == object }
	if i := slices.IndexFunc(s.sources, same); i >= 0 {
		return s.sources[i]
	}
	s.sources = append(s.sources, &envSource{object: object})
	return s.sources[len(s.sources)-1]
}

func (s *environmentCheck) addKeyRef(object string, ref envKeyRef) {
	from := s.source(object)
	from.keyRefs = append(from.keyRefs, ref)
}

func (s *environmentCheck) addFromRef(object, prefix string, optional *bool) {
	from := s.source(object)
	from.fromRefs = append(from.fromRefs, envFromRef{prefix, optional != nil && *optional})
	for _, key := range s.model.objectHistory.keys(object) {
		s.sourceCounts[prefix+key]++
	}
}

// keys returns every key that an object ever had.
func (o *objectHistory) keys(object string) []string {
	all := map[string]bool{}
	for _, state := range o.states[object] {
		for key := range state { //ordered: into a map
			all[key] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// literalProblem returns what is wrong with a variable that the spec gives literally.
func (s *environmentCheck) literalProblem(p *pod, c *v1.Container) string {
	for i := range c.Env {
		v := &c.Env[i]
		want, known := v.Value, v.ValueFrom == nil && !strings.Contains(v.Value, "$")
		if v.ValueFrom != nil && v.ValueFrom.FieldRef != nil &&
			v.ValueFrom.FieldRef.FieldPath == "metadata.name" {
			_, want, _ = strings.Cut(p.fullName.name, "/")
			known = true
		}
		got, exists := s.env[v.Name]
		if known && s.sourceCounts[v.Name] == 1 && (!exists || got != want) {
			return fmt.Sprintf("%s is %q (set: %v), not %q", v.Name, got, exists, want)
		}
	}
	return ""
}

// sourceProblem returns what is wrong with the variables of an object: of no version, or of a
// version that was replaced too long ago.
func (s *environmentCheck) sourceProblem(from *envSource, now time.Time) string {
	history := &s.model.objectHistory
	states, ends := history.states[from.object], history.replacedAt[from.object]
	for n := len(states) - 1; n >= 0; n-- {
		switch {
		case !s.matchesState(from, states[n]):
			continue
		case n == len(states)-1 || !s.isLate(ends[n], now):
			return ""
		}
		return fmt.Sprintf("its variables are of a version of %s that was replaced %v ago",
			from.object, now.Sub(ends[n]).Round(time.Second))
	}
	if s.matchesState(from, nil) &&
		(len(states) == 0 || !s.isLate(history.createdAt[from.object], now)) {
		return ""
	}
	return fmt.Sprintf("its variables are of no version of %s: %q", from.object, s.env)
}

// isLate reports whether the agent should have known a change of that time when it created the
// container.
func (s *environmentCheck) isLate(at, now time.Time) bool {
	within := volumeUpdateBound + s.model.opts.ChangeDetection.ageMax()
	return now.Sub(at) > within && s.model.agentUpSince(at) &&
		!s.model.anyFaultPossible(at.Add(-reconnectBound), now,
			append([]string{"CreateContainer"}, updateCalls...)...)
}

// matchesState reports whether the variables are those of a state of the object.
func (s *environmentCheck) matchesState(from *envSource, state map[string][]byte) bool {
	for _, r := range from.keyRefs {
		if s.sourceCounts[r.variable] > 1 {
			continue
		}
		value, hasKey := state[r.key]
		got, exists := s.env[r.variable]
		if !hasKey && !r.optional || exists != hasKey || got != string(value) {
			return false
		}
	}
	for _, whole := range from.fromRefs {
		if state == nil && !whole.optional {
			return false
		}
		for _, key := range s.model.objectHistory.keys(from.object) {
			value, hasKey := state[key]
			got, exists := s.env[whole.prefix+key]
			if s.sourceCounts[whole.prefix+key] == 1 && (exists != hasKey || got != string(value)) {
				return false
			}
		}
	}
	return true
}

// unexplainedVariable returns a variable that has no source.
func (s *environmentCheck) unexplainedVariable() string {
	for _, name := range slices.Sorted(maps.Keys(s.env)) {
		if s.sourceCounts[name] == 0 {
			return fmt.Sprintf("%s=%q has no source", name, s.env[name])
		}
	}
	return ""
}

// serviceVariables returns the variables of a service; nil if the service has no address.
func serviceVariables(s *v1.Service) map[string][]byte {
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
