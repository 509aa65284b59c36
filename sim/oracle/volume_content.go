package oracle

import (
	"bytes"
	"fmt"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// volumeContent fires when a volume holds no version of its object, or parts of two; when it goes
// back to an older version; and when a token expires that could have been renewed. The oracles
// progress and volume-staleness check that a volume gets the newest version.
type volumeContent struct {
	heldVersions map[string]int // by path and object: the version that the volume held last
}

func (*volumeContent) describe() Entry {
	return Entry{"volume-content", "A volume from the API server holds one version of each " +
		"object, never an older one than before, and no expired token that could have been " +
		"renewed."}
}

// objectHistory is what the API server had: every state of each object, nil when it did not
// exist, and when each token expires.
type objectHistory struct {
	states        map[string][]map[string][]byte
	tokenExpiries map[string]time.Time
	bundleStates  [][]*certificatesv1beta1.ClusterTrustBundle // all bundles, after each change
	changedAt     map[string]time.Time                        // the latest change of an object
	createdAt     map[string]time.Time                        // the creation of an object
	replacedAt    map[string][]time.Time                      // when each state was replaced
}

// apply records a write at the API server.
func (o *objectHistory) apply(f *truth.Fact) {
	switch f.Kind {
	case truth.TokenIssued:
		if o.tokenExpiries == nil {
			o.tokenExpiries = map[string]time.Time{}
		}
		o.tokenExpiries[f.Token] = f.Expires
	case truth.ObjectCreated, truth.ObjectUpdated, truth.ObjectDeleted:
		switch f.Write.Resource {
		case api.ResourceTrustBundles:
			o.applyBundle(f.Write)
			o.noteChange(bundlesKey, f.Time)
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
			data = serviceVariables(after.Service)
		}
		if o.states == nil {
			o.states = map[string][]map[string][]byte{}
		}
		name := objectKey(f.Write.Resource, f.Write.Namespace, f.Write.Name)
		o.states[name] = append(o.states[name], data)
		o.noteChange(name, f.Time)
	}
}

func (o *objectHistory) noteChange(name string, now time.Time) {
	if o.changedAt == nil {
		o.changedAt, o.createdAt = map[string]time.Time{}, map[string]time.Time{}
		o.replacedAt = map[string][]time.Time{}
	}
	if _, again := o.createdAt[name]; !again {
		o.createdAt[name] = now
	} else {
		o.replacedAt[name] = append(o.replacedAt[name], now)
	}
	o.changedAt[name] = now
}

func objectKey(r api.Resource, namespace, name string) string {
	return string(r) + "/" + namespace + "/" + name
}

// volumeSource is one object that a volume holds.
type volumeSource struct {
	object   string
	optional bool
	items    []v1.KeyToPath
	bundle   *v1.ClusterTrustBundleProjection // set if the source is trust anchors
}

// volumeSources returns the objects that a volume holds, and the path of a token in it; empty if
// it has none.
func volumeSources(v *v1.Volume, namespace string) (all []volumeSource, token string) {
	add := func(r api.Resource, name string, optional *bool, items []v1.KeyToPath) {
		all = append(all, volumeSource{objectKey(r, namespace, name), optional != nil && *optional, items,
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
				all = append(all, bundleSource(s.ClusterTrustBundle))
			}
		}
	}
	return all, token
}

// volumeMatches reports whether the files at a path are one state of an object. Keys that the
// object only has in other states must be absent.
func (m *model) volumeMatches(at string, s *volumeSource, state map[string][]byte) bool {
	if s.bundle != nil {
		return m.holdsTrustAnchors(at+"/"+s.bundle.Path, s, state)
	}
	paths := map[string]string{} // by key
	for _, item := range s.items {
		paths[item.Key] = item.Path
	}
	if len(s.items) == 0 {
		for _, other := range m.objectHistory.states[s.object] {
			for key := range other { //ordered: into a map
				paths[key] = key
			}
		}
	}
	for key, path := range paths { //ordered: all of them have to
		content, exists := m.opts.ReadFile(at + "/" + path)
		want, hasKey := state[key]
		if exists != hasKey || !bytes.Equal(content, want) {
			return false
		}
	}
	return true
}

func (o *volumeContent) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.PathWritten:
		return o.checkWritten(m, f.Path)
	case truth.PathRemoved:
		for key := range o.heldVersions { //ordered: each is removed or kept by itself
			if isWithin(key, f.Path) {
				delete(o.heldVersions, key)
			}
		}
	case truth.PowerLost:
		o.heldVersions = nil
	}
	return nil
}

// checkWritten checks a volume that was written.
func (o *volumeContent) checkWritten(m *model, path string) *finding {
	uid, below := childName(m.opts.PodsDir, path)
	p := m.pods[uid]
	if !below || p == nil || p.spec == nil || m.opts.ReadFile == nil {
		return nil
	}
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if volumePath(m.opts.PodsDir+"/"+uid, v) != path {
			continue
		}
		all, _ := volumeSources(v, p.spec.Namespace)
		for k := range all {
			if problem := o.checkVersion(m, path, &all[k]); problem != nil {
				return problem
			}
		}
	}
	return nil
}

// checkVersion checks which version of an object a volume holds.
func (o *volumeContent) checkVersion(m *model, path string, s *volumeSource) *finding {
	key := path + "/" + s.object
	states := m.objectHistory.statesOf(s)
	previous := o.heldVersions[key]
	for n := len(states) - 1; n >= 0; n-- {
		if states[n] == nil && !s.optional || !m.volumeMatches(path, s, states[n]) {
			continue
		}
		if n < previous {
			return findingf("%s holds version %d of %s again, after %d", path, n, s.object, previous)
		}
		if o.heldVersions == nil {
			o.heldVersions = map[string]int{}
		}
		for n > previous && m.volumeMatches(path, s, states[n-1]) && (states[n-1] != nil || s.optional) {
			n-- // two versions that look alike: it may be either
		}
		o.heldVersions[key] = n
		return nil
	}
	if len(states) == 0 && s.optional {
		return nil
	}
	return findingf("%s holds no version of %s", path, s.object)
}

// tokenRenewalMargin is how long before its expiry a token of ten minutes is renewed.
const tokenRenewalMargin = 2 * time.Minute

// checkServed checks the tokens, at every response.
func (o *volumeContent) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	for _, p := range m.podsInOrder {
		if p.spec == nil || p.liveContainers == 0 || m.opts.ReadFile == nil {
			continue
		}
		token, path := m.tokenOf(p)
		end, made := m.objectHistory.tokenExpiries[token]
		if token == "" || made && now.Before(end) ||
			end.Add(-tokenRenewalMargin).Before(m.agentStartedAt) || m.agentDown ||
			m.anyFaultPossible(end.Add(-tokenRenewalMargin), now, tokenCalls...) {
			continue
		}
		return findingf("%s holds a token that expired at %s, and %s runs", path,
			end.Format(time.TimeOnly), p.anyLiveContainer())
	}
	return nil
}

// tokenCalls are the calls that bring a token into a volume.
var tokenCalls = []string{"CreateToken", "MakeDir", "MountMemory", "WriteDir"}

// tokenOf returns the token in a volume of a pod, and its path; empty if there is none.
func (m *model) tokenOf(p *pod) (token, path string) {
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if _, name := volumeSources(v, p.spec.Namespace); name != "" && usesVolume(p.spec, v.Name) {
			path = volumePath(m.opts.PodsDir+"/"+p.uid, v) + "/" + name
			text, _ := m.opts.ReadFile(path)
			return string(text), path
		}
	}
	return "", ""
}

// contentProblem returns what is not up to date in the volumes of a running pod.
func (p *pod) contentProblem(now time.Time) string {
	m := p.model
	if m.opts.ReadFile == nil || p.spec == nil || p.liveContainers == 0 {
		return ""
	}
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if !usesVolume(p.spec, v.Name) {
			continue
		}
		all, _ := volumeSources(v, p.spec.Namespace)
		for k := range all {
			states := m.objectHistory.statesOf(&all[k])
			if len(states) == 0 || states[len(states)-1] == nil && !all[k].optional {
				continue // the volume keeps what it has
			}
			path := volumePath(m.opts.PodsDir+"/"+p.uid, v)
			if !m.volumeMatches(path, &all[k], states[len(states)-1]) {
				return fmt.Sprintf("%s does not hold the newest version of %s", path, all[k].object)
			}
		}
	}
	if token, path := m.tokenOf(p); token != "" && !now.Before(m.objectHistory.tokenExpiries[token]) {
		return path + " holds an expired token"
	}
	return ""
}
