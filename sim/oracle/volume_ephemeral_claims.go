package oracle

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// ephemeralClaims fires when no Event says that the claim of a pod's generic ephemeral volume
// belongs to another owner, and when an Event says so of a claim which is the pod's own. That the
// pod does not get the volume is checked by the oracle claims.
type ephemeralClaims struct {
	reported map[string]time.Time // by UID of the pod and claim: when an Event last said so
	foreign  map[string]time.Time // by UID of the pod and claim: since when the claim is foreign
	ownedAt  map[string]time.Time // by UID of the pod and claim: since when the claim is its own
}

func (*ephemeralClaims) describe() Entry {
	return Entry{"ephemeral-claims", "A pod waits with an Event that says why if the claim of its " +
		"ephemeral volume belongs to another owner, and only then."}
}

const (
	// foreignClaimBound is how long an agent may take to read the claim, and to say so.
	foreignClaimBound = 3 * time.Minute
	// ownClaimBound is how long it may say so after the claim has become the pod's own.
	ownClaimBound = 3 * time.Minute
)

// foreignClaimMessage is what a kubelet says (VolumeIsForPod in
// k8s.io/component-helpers/storage/ephemeral).
func foreignClaimMessage(namespace, pod, claim string) string {
	return fmt.Sprintf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", namespace, claim,
		namespace, pod)
}

func (o *ephemeralClaims) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.EventRecorded:
		return o.checkEvent(m, f)
	case truth.ObjectCreated, truth.ObjectUpdated, truth.ObjectDeleted:
		if f.Write.Resource == api.ResourceClaims || f.Write.Resource == api.ResourcePods {
			o.noteClaims(m, f)
		}
	}
	return nil
}

// noteClaims notes since when the claims of pods are theirs, or those of another owner.
func (o *ephemeralClaims) noteClaims(m *model, f *truth.Fact) {
	if o.reported == nil {
		o.reported, o.foreign = map[string]time.Time{}, map[string]time.Time{}
		o.ownedAt = map[string]time.Time{}
	}
	for _, p := range m.podsInOrder {
		if p.spec == nil {
			continue
		}
		for i := range p.spec.Spec.Volumes {
			v := &p.spec.Spec.Volumes[i]
			name, _ := claimName(p.spec, v)
			if v.Ephemeral == nil {
				continue
			}
			claim := m.volumes.claims[p.spec.Namespace+"/"+name]
			if f.Write.Resource == api.ResourceClaims && f.Write.Name == name &&
				f.Write.Namespace == p.spec.Namespace {
				claim = f.Write.After.Claim
			}
			o.note(p.uid+"/"+name, p.spec, v, claim, f.Time)
		}
	}
}

func (o *ephemeralClaims) note(key string, pod *v1.Pod, v *v1.Volume,
	claim *v1.PersistentVolumeClaim, now time.Time) {
	isForeign := claim != nil && claim.Status.Phase == v1.ClaimBound &&
		claim.DeletionTimestamp == nil && isOfAnother(pod, v, claim)
	isOwn := claim != nil && !isOfAnother(pod, v, claim)
	for _, of := range []struct {
		since map[string]time.Time
		is    bool
	}{{o.foreign, isForeign}, {o.ownedAt, isOwn}} {
		if !of.is {
			delete(of.since, key)
		} else if _, known := of.since[key]; !known {
			of.since[key] = now
		}
	}
}

// checkEvent finds an Event that says so of a claim which is the pod's own.
func (o *ephemeralClaims) checkEvent(m *model, f *truth.Fact) *finding {
	_, rest, says := strings.Cut(f.Message, "PVC "+f.PodNamespace+"/")
	name, _, _ := strings.Cut(rest, " ")
	if !says || f.Reason != "FailedMount" ||
		!strings.Contains(f.Message, foreignClaimMessage(f.PodNamespace, f.PodName, name)) {
		return nil
	}
	key := f.PodUID + "/" + name
	since, isOwn := o.ownedAt[key]
	if o.reported == nil {
		o.reported = map[string]time.Time{}
	}
	o.reported[key] = f.Time
	if isOwn && f.Time.Sub(since) > ownClaimBound &&
		!m.anyFaultPossible(since, f.Time, "GetObject", "RecordEvent") {
		return findingf("%s/%s has an Event that its claim %s is not its own, which it is",
			f.PodNamespace, f.PodName, name)
	}
	return nil
}

// checkServed finds a pod of which no Event says so.
func (o *ephemeralClaims) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.agentDown {
		return nil
	}
	for _, p := range m.podsInOrder {
		if p.spec == nil || p.spec.DeletionTimestamp != nil || p.specChanged || p.rejected ||
			!p.terminalAt.IsZero() {
			continue
		}
		for i := range p.spec.Spec.Volumes {
			v := &p.spec.Spec.Volumes[i]
			name, _ := claimName(p.spec, v)
			since, isForeign := o.foreign[p.uid+"/"+name]
			if v.Ephemeral == nil || !isForeign {
				continue
			}
			from := later(later(since, p.desiredAt), later(m.agentStartedAt, m.lastFault(now)))
			if now.Sub(from) > foreignClaimBound && o.reported[p.uid+"/"+name].Before(from) &&
				o.reported[p.uid+"/"+name].Before(since) {
				return findingf("%s waits for %s, which is the claim of another owner, and no Event says so",
					p, name)
			}
		}
	}
	return nil
}
