package oracle

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// csiContent fires when a driver gets something else for a pod than its CSIDriver asks for and the
// volume names: the attributes of the volume, what is to be known of the pod, a token of the pod
// for each audience, and the content of the Secret. What has changed a moment ago may be sent as it
// was. A token that is due for renewal may be sent only if it could not be renewed, and one that
// has expired never. It also fires if an agent asks for more tokens than the volumes of a pod need.
type csiContent struct{}

func (*csiContent) describe() Entry {
	return Entry{"csi-content", "A CSI driver gets the attributes of a volume, the pod, its tokens " +
		"and the content of the Secret as its CSIDriver asks for them and as they are, and no more."}
}

const (
	// csiContentBound is how long after a change of an object a call may still have it as it was.
	csiContentBound = 30 * time.Second
	// tokenShareLeft is the share of its lifetime for which a token is at least valid that a driver
	// gets, less the time in which the call may wait.
	tokenShareLeft  = 5
	tokenCallBound  = 30 * time.Second
	tokensAttribute = "csi.storage.k8s.io/serviceAccount.tokens"
	podAttribute    = "csi.storage.k8s.io/pod."
)

// csiIssuedToken is a token that the API server has issued.
type csiIssuedToken struct {
	uid, audience   string
	issued, expires time.Time
}

// csiDriverState is a CSIDriver as it was until another state replaced it.
type csiDriverState struct {
	object *storagev1.CSIDriver // nil: it did not exist
	until  time.Time            // zero: it is the last state
}

// checkCSIContent judges what a driver gets with a call.
func (s *Set) checkCSIContent(now time.Time, eff *world.Effect) {
	var f *finding
	switch call := eff.Body.(type) {
	case *world.PublishVolume:
		f = s.model.findWrongPublishContent(now, call)
	case *world.StageVolume:
		f = s.model.findWrongStageContent(now, call)
	}
	if f != nil {
		s.report(&csiContent{}, f, now)
	}
}

// checkFact finds a token that is issued although the volumes of the pod have tokens that are not
// due for renewal.
func (*csiContent) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.TokenIssued || p == nil || p.spec == nil || m.agentDown {
		return nil
	}
	since, valid := f.Time, 1
	for _, is := range m.csi.tokens { //ordered: how many, and the earliest of their times
		due := is.expires.Add(-is.expires.Sub(is.issued) / tokenShareLeft)
		if is.uid == f.PodUID && is.audience == f.Audience && is.issued.After(m.agentStartedAt) &&
			f.Time.Before(due.Add(-tokenCallBound)) {
			if valid++; is.issued.Before(since) {
				since = is.issued
			}
		}
	}
	needed := 0
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if v.Projected != nil || v.CSI != nil || isBacked(v) {
			needed++ // at most one token for an audience
		}
	}
	if needed == 0 || valid <= needed || m.anyFaultPossible(since, f.Time, "CreateToken") {
		return nil
	}
	return findingf("%s is given token number %d for %q, with %d volumes that may need one", p, valid,
		f.Audience, needed)
}

// findWrongStageContent judges the call that stages a volume, which is about no pod.
func (m *model) findWrongStageContent(now time.Time, call *world.StageVolume) *finding {
	for name, pv := range m.volumes.volumes { //ordered: a handle is of one volume
		source := csiSourceOf(pv)
		if source == nil || source.Driver != call.Driver.Name || source.VolumeHandle != call.Handle {
			continue
		}
		if !maps.Equal(call.VolumeContext, source.VolumeAttributes) {
			return findingf("StageVolume for volume %s has the attributes %v, not %v", name,
				slices.Sorted(maps.Keys(call.VolumeContext)), source.VolumeAttributes)
		}
		if f := findWrongCapability("StageVolume", pv, &call.Capability); f != nil {
			return f
		}
		return m.findWrongSecret(now, "StageVolume", call.Secrets, source.NodeStageSecretRef)
	}
	return nil
}

// findWrongPublishContent judges the call that publishes a volume for a pod.
func (m *model) findWrongPublishContent(now time.Time, call *world.PublishVolume) *finding {
	p := m.podOfTarget(call.TargetPath)
	if p == nil || p.spec == nil {
		return nil
	}
	v, source := m.csiSourceAt(p.spec, call)
	if v == nil {
		return nil // the oracle csi-volumes says so
	}
	if f := m.findWrongMount(p, v, call); f != nil {
		return f
	}
	var problem *finding // by the last state
	for _, d := range m.csiDriverStates(now, call.Driver.Name) {
		f := m.findWrongFor(now, p, v, source, call, d)
		if f == nil {
			return nil
		}
		if problem == nil {
			problem = f
		}
	}
	return problem
}

// csiSourceAt returns the volume of a pod that a call publishes, and its source if that is a
// persistent volume; nil if the pod has none there.
func (m *model) csiSourceAt(pod *v1.Pod, call *world.PublishVolume) (*v1.Volume,
	*v1.CSIPersistentVolumeSource) {
	for _, use := range m.csiUses(pod) {
		if use.path != call.TargetPath || use.handle != call.Handle {
			continue
		}
		i := slices.IndexFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == use.volume })
		switch v := &pod.Spec.Volumes[i]; {
		case v.CSI != nil:
			return v, nil
		case v.Cinder != nil:
			return v, &v1.CSIPersistentVolumeSource{Driver: use.driver, VolumeHandle: use.handle}
		default:
			return v, csiSourceOf(m.volumes.volumes[use.pv])
		}
	}
	return nil, nil
}

// findWrongFor judges a call by one state of the CSIDriver.
func (m *model) findWrongFor(now time.Time, p *pod, v *v1.Volume,
	source *v1.CSIPersistentVolumeSource, call *world.PublishVolume,
	d *storagev1.CSIDriver) *finding {
	attributes, ref := map[string]string{}, (*v1.SecretReference)(nil)
	if source != nil {
		maps.Copy(attributes, source.VolumeAttributes)
		ref = source.NodePublishSecretRef
	} else {
		maps.Copy(attributes, v.CSI.VolumeAttributes)
		ref = inlineSecret(p.spec, v)
	}
	if d != nil && isTrue(d.Spec.PodInfoOnMount) {
		maps.Copy(attributes, csiPodInfo(p.spec, source == nil))
	}
	got, secrets := maps.Clone(call.VolumeContext), maps.Clone(call.Secrets)
	holder := got
	if d != nil && isTrue(d.Spec.ServiceAccountTokenInSecrets) {
		holder = secrets
	}
	tokens, has := holder[tokensAttribute]
	delete(holder, tokensAttribute)
	wants := d != nil && len(d.Spec.TokenRequests) > 0
	switch {
	case has != wants:
		return findingf("PublishVolume of volume %s of %s has tokens where they belong: %v, want %v",
			v.Name, p, has, wants)
	case !maps.Equal(got, attributes):
		return findingf("PublishVolume of volume %s of %s has the attributes %v, not %v", v.Name, p,
			slices.Sorted(maps.Keys(got)), attributes)
	}
	if wants {
		if f := m.findWrongTokens(now, p, tokens, d); f != nil {
			return f
		}
	}
	return m.findWrongSecret(now, "PublishVolume", secrets, ref)
}

func isTrue(b *bool) bool { return b != nil && *b }

// csiPodInfo returns what a driver with podInfoOnMount gets (getPodInfoAttrs upstream).
func csiPodInfo(pod *v1.Pod, ephemeral bool) map[string]string {
	is := map[bool]string{true: "true", false: "false"}[ephemeral]
	return map[string]string{podAttribute + "name": pod.Name,
		podAttribute + "namespace": pod.Namespace, podAttribute + "uid": string(pod.UID),
		"csi.storage.k8s.io/ephemeral":           is,
		"csi.storage.k8s.io/serviceAccount.name": pod.Spec.ServiceAccountName}
}

// findWrongTokens judges the tokens that a driver gets for a pod.
func (m *model) findWrongTokens(now time.Time, p *pod, text string,
	d *storagev1.CSIDriver) *finding {
	got := map[string]authenticationv1.TokenRequestStatus{}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		return findingf("PublishVolume for %s has tokens that cannot be read: %v", p, err)
	}
	if len(got) != len(d.Spec.TokenRequests) {
		return findingf("PublishVolume for %s has %d tokens, not %d", p, len(got),
			len(d.Spec.TokenRequests))
	}
	for _, request := range d.Spec.TokenRequests {
		said := got[request.Audience]
		is, isIssued := m.csi.tokens[said.Token]
		lifetime := is.expires.Sub(is.issued)
		due := is.expires.Add(-lifetime / tokenShareLeft)
		switch {
		case !isIssued || is.uid != p.uid || is.audience != request.Audience:
			return findingf("PublishVolume for %s has no token of the pod for the audience %q: "+
				"one of the pod %q for %q", p, request.Audience, is.uid, is.audience)
		case request.ExpirationSeconds != nil &&
			lifetime != time.Duration(*request.ExpirationSeconds)*time.Second:
			return findingf("PublishVolume for %s has a token for %q that is valid for %v", p,
				request.Audience, lifetime)
		case !now.Before(is.expires):
			return findingf("PublishVolume for %s has a token for %q that expired at %s", p,
				request.Audience, is.expires.Format(time.TimeOnly))
		case now.After(due.Add(tokenCallBound)) &&
			!m.anyFaultPossible(due.Add(-tokenCallBound), now, "CreateToken"):
			return findingf("PublishVolume for %s has a token for %q that was due for renewal at %s", p,
				request.Audience, due.Format(time.TimeOnly))
		case m.opts.DateOffset == nil && said.ExpirationTimestamp.After(is.expires):
			return findingf("PublishVolume for %s says that a token expires at %s, which is too late", p,
				said.ExpirationTimestamp.Format(time.TimeOnly))
		}
	}
	return nil
}

// findWrongSecret returns that a call does not have the content of a Secret.
func (m *model) findWrongSecret(now time.Time, call string, got map[string]string,
	ref *v1.SecretReference) *finding {
	if ref == nil {
		if len(got) > 0 {
			return findingf("%s has secrets, and the volume names none", call)
		}
		return nil
	}
	name := objectKey(world.ResourceSecrets, ref.Namespace, ref.Name)
	states, replaced := m.objectHistory.states[name], m.objectHistory.replacedAt[name]
	for n := len(states) - 1; n >= 0; n-- {
		if n < len(replaced) && !m.mayGoBy(replaced[n], now, secretCalls...) {
			break
		}
		if states[n] != nil && isSecret(got, states[n]) {
			return nil
		}
	}
	return findingf("%s does not have the content of the Secret %s", call, path.Base(name))
}

// isSecret reports whether a call has the content of a Secret.
func isSecret(got map[string]string, data map[string][]byte) bool {
	if len(got) != len(data) {
		return false
	}
	for key, value := range data { //ordered: all of them have to
		if text, has := got[key]; !has || text != string(value) {
			return false
		}
	}
	return true
}

// current returns the content of a Secret; nil if it does not exist.
func (o *objectHistory) current(ref *v1.SecretReference) map[string][]byte {
	states := o.states[objectKey(world.ResourceSecrets, ref.Namespace, ref.Name)]
	if len(states) == 0 {
		return nil
	}
	return states[len(states)-1]
}

// inlineSecret returns the Secret that a volume which is written in a pod names.
func inlineSecret(pod *v1.Pod, v *v1.Volume) *v1.SecretReference {
	if v.CSI.NodePublishSecretRef == nil {
		return nil
	}
	return &v1.SecretReference{Namespace: pod.Namespace, Name: v.CSI.NodePublishSecretRef.Name}
}

// csiSecretsOf returns the Secrets that a volume of a pod needs; nil entries are none.
func (m *model) csiSecretsOf(pod *v1.Pod, v *v1.Volume) []*v1.SecretReference {
	if v.CSI != nil {
		return []*v1.SecretReference{inlineSecret(pod, v)}
	}
	claim := m.volumes.claimOf(pod, v)
	if claim == nil {
		return nil
	}
	source := csiSourceOf(m.volumes.volumes[claim.Spec.VolumeName])
	if source == nil {
		return nil
	}
	return []*v1.SecretReference{source.NodeStageSecretRef, source.NodePublishSecretRef}
}

// The calls by which the agent learns of a CSIDriver, and of a Secret, which it may read instead.
var (
	csiDriverCalls = []string{"WatchObjects", "ObjectChanged"}
	secretCalls    = []string{"WatchObjects", "ObjectChanged", "GetObject"}
)

// mayGoBy reports whether the agent may go by a state of an object at a time: it is the last one,
// until is zero, or changed a short time ago, or the calls by which the agent learns of it may have
// failed of late.
func (m *model) mayGoBy(until, at time.Time, calls ...string) bool {
	return until.IsZero() || at.Sub(until) <= csiContentBound ||
		m.anyFaultPossible(later(until, at.Add(-csiContentBound)).Add(-reconnectBound), at, calls...)
}

// csiDriverStates returns the states of a CSIDriver that the agent may go by, the last one first.
func (m *model) csiDriverStates(now time.Time, name string) []*storagev1.CSIDriver {
	var states []*storagev1.CSIDriver
	all := m.csi.driverStates[name]
	for n := len(all) - 1; n >= 0; n-- {
		if !m.mayGoBy(all[n].until, now, csiDriverCalls...) {
			break
		}
		states = append(states, all[n].object)
	}
	if len(all) == 0 {
		states = append(states, nil)
	}
	return states
}
