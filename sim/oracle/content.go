package oracle

import (
	"bytes"
	"fmt"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/volume"
	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// content fires when a volume holds what its object at the API server never was as a whole: parts
// of two versions, or nothing; when it goes back to an older version; and when a token runs out
// that could have been renewed. That it holds the newest in the end is for progress to judge.
type content struct {
	holds map[string]int // by path and source of a volume: the version that it held last
}

func (*content) entry() Entry {
	return Entry{"content", "A volume from the API server holds one version of each object, never " +
		"an older one than before, and no token that has run out while another could be had."}
}

// sources is what the API server has had: every state of each object, nil when it was not there,
// and when each token runs out.
type sources struct {
	states  map[string][]map[string][]byte
	tokens  map[string]time.Time
	bundles [][]*certificatesv1beta1.ClusterTrustBundle // all that there were, after each change
	changed map[string]time.Time                        // when an object was, last
	begins  map[string]time.Time                        // when it was made first
	ends    map[string][]time.Time                      // when each state was replaced
}

// take takes what happens at the API server.
func (o *sources) take(f *truth.Fact) {
	switch f.Kind {
	case truth.TokenMade:
		if o.tokens == nil {
			o.tokens = map[string]time.Time{}
		}
		o.tokens[f.Token] = f.Expires
	case truth.ObjectMade, truth.ObjectWritten, truth.ObjectRemoved:
		switch f.Write.Resource {
		case api.ResourceTrustBundles:
			o.takeBundle(f.Write)
			o.note(bundlesName, f.Time)
			return
		case api.ResourceConfigMaps, api.ResourceSecrets, api.ResourceServices:
		default:
			return
		}
		var data map[string][]byte
		switch after := f.Write.After; {
		case after.ConfigMap != nil:
			data = map[string][]byte{}
			for key, text := range after.ConfigMap.Data { //ordered: into a map
				data[key] = []byte(text)
			}
		case after.Secret != nil:
			data = after.Secret.Data
		case after.Service != nil:
			data = ofService(after.Service)
		}
		if o.states == nil {
			o.states = map[string][]map[string][]byte{}
		}
		name := objectName(f.Write.Resource, f.Write.Namespace, f.Write.Name)
		o.states[name] = append(o.states[name], data)
		o.note(name, f.Time)
	}
}

func (o *sources) note(name string, now time.Time) {
	if o.changed == nil {
		o.changed, o.begins = map[string]time.Time{}, map[string]time.Time{}
		o.ends = map[string][]time.Time{}
	}
	if _, again := o.begins[name]; !again {
		o.begins[name] = now
	} else {
		o.ends[name] = append(o.ends[name], now)
	}
	o.changed[name] = now
}

func objectName(r api.Resource, namespace, name string) string {
	return string(r) + "/" + namespace + "/" + name
}

// source is one object that a volume holds.
type source struct {
	object   string
	optional bool
	items    []v1.KeyToPath
	bundle   *v1.ClusterTrustBundleProjection // it is trust anchors, if there is one
}

// sourcesOf are the objects that a volume holds, and the path of a token in it; empty for none.
func sourcesOf(v *v1.Volume, namespace string) (all []source, token string) {
	add := func(r api.Resource, name string, optional *bool, items []v1.KeyToPath) {
		all = append(all, source{objectName(r, namespace, name), optional != nil && *optional, items,
			nil})
	}
	switch {
	case v.ConfigMap != nil:
		add(api.ResourceConfigMaps, v.ConfigMap.Name, v.ConfigMap.Optional, v.ConfigMap.Items)
	case v.Secret != nil:
		add(api.ResourceSecrets, v.Secret.SecretName, v.Secret.Optional, v.Secret.Items)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			switch {
			case s.ConfigMap != nil:
				add(api.ResourceConfigMaps, s.ConfigMap.Name, s.ConfigMap.Optional, s.ConfigMap.Items)
			case s.Secret != nil:
				add(api.ResourceSecrets, s.Secret.Name, s.Secret.Optional, s.Secret.Items)
			case s.ServiceAccountToken != nil:
				token = s.ServiceAccountToken.Path
			case s.ClusterTrustBundle != nil:
				all = append(all, ofBundle(s.ClusterTrustBundle))
			}
		}
	}
	return all, token
}

// matches says whether the files at a path are one state of an object. All keys that it ever had
// are looked at: those that the state does not have must not be there.
func (w *world) matches(at string, s *source, state map[string][]byte) bool {
	if s.bundle != nil {
		return w.trusts(at+"/"+s.bundle.Path, s, state)
	}
	paths := map[string]string{} // of keys
	for _, item := range s.items {
		paths[item.Key] = item.Path
	}
	if len(s.items) == 0 {
		for _, any := range w.sources.states[s.object] {
			for key := range any { //ordered: into a map
				paths[key] = key
			}
		}
	}
	for key, path := range paths { //ordered: all of them have to
		is, there := w.opts.Read(at + "/" + path)
		wanted, has := state[key]
		if there != has || !bytes.Equal(is, wanted) {
			return false
		}
	}
	return true
}

func (o *content) fact(w *world, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.PathWritten:
		return o.written(w, f.Path)
	case truth.PathRemoved:
		for key := range o.holds { //ordered: each is dropped or kept by itself
			if within(key, f.Path) {
				delete(o.holds, key)
			}
		}
	case truth.PowerLost:
		o.holds = nil
	}
	return nil
}

// written judges a volume that has been written.
func (o *content) written(w *world, path string) *finding {
	uid, below := childOf(w.opts.PodsDir, path)
	p := w.pods[uid]
	if !below || p == nil || p.spec == nil || w.opts.Read == nil {
		return nil
	}
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if volume.Path(w.opts.PodsDir+"/"+uid, v) != path {
			continue
		}
		all, _ := sourcesOf(v, p.spec.Namespace)
		for k := range all {
			if what := o.version(w, path, &all[k]); what != nil {
				return what
			}
		}
	}
	return nil
}

// version finds the version of an object that a volume holds.
func (o *content) version(w *world, path string, s *source) *finding {
	key := path + "/" + s.object
	states := w.sources.of(s)
	was := o.holds[key]
	for n := len(states) - 1; n >= 0; n-- {
		if states[n] == nil && !s.optional || !w.matches(path, s, states[n]) {
			continue
		}
		if n < was {
			return says("%s holds version %d of %s again, after %d", path, n, s.object, was)
		}
		if o.holds == nil {
			o.holds = map[string]int{}
		}
		for n > was && w.matches(path, s, states[n-1]) && (states[n-1] != nil || s.optional) {
			n-- // two that look alike: it may be either
		}
		o.holds[key] = n
		return nil
	}
	if len(states) == 0 && s.optional {
		return nil
	}
	return says("%s holds no version of %s", path, s.object)
}

// tokenLeft is how long before its end a token is renewed that is valid for ten minutes.
const tokenLeft = 2 * time.Minute

// answer looks at the tokens now and then.
func (o *content) answer(w *world, now time.Time, _ []*v1.Pod) *finding {
	for _, p := range w.order {
		if p.spec == nil || p.live == 0 || w.opts.Read == nil {
			continue
		}
		token, path := w.token(p)
		end, made := w.sources.tokens[token]
		if token == "" || made && now.Before(end) || end.Add(-tokenLeft).Before(w.started) ||
			w.dead || w.struckAny(end.Add(-tokenLeft), now, tokenCalls...) {
			continue
		}
		return says("%s holds a token that ran out at %s, and %s runs", path,
			end.Format(time.TimeOnly), p.anyLive())
	}
	return nil
}

// tokenCalls are those by which a token comes into a volume.
var tokenCalls = []string{"CreateToken", "MakeDir", "MountMemory", "WriteDir"}

// token is the token in a volume of a pod, and where; empty if there is none.
func (w *world) token(p *pod) (token, path string) {
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if _, name := sourcesOf(v, p.spec.Namespace); name != "" {
			path = volume.Path(w.opts.PodsDir+"/"+p.uid, v) + "/" + name
			text, _ := w.opts.Read(path)
			return string(text), path
		}
	}
	return "", ""
}

// lacksContent says what of the volumes of a pod that runs is not as the API server has it.
func (p *pod) lacksContent(now time.Time) string {
	w := p.world
	if w.opts.Read == nil || p.spec == nil || p.live == 0 {
		return ""
	}
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		all, _ := sourcesOf(v, p.spec.Namespace)
		for k := range all {
			states := w.sources.of(&all[k])
			if len(states) == 0 || states[len(states)-1] == nil && !all[k].optional {
				continue // what is there stays
			}
			path := volume.Path(w.opts.PodsDir+"/"+p.uid, v)
			if !w.matches(path, &all[k], states[len(states)-1]) {
				return fmt.Sprintf("%s does not hold the newest version of %s", path, all[k].object)
			}
		}
	}
	if token, path := w.token(p); token != "" && !now.Before(w.sources.tokens[token]) {
		return path + " holds a token that has run out"
	}
	return ""
}
