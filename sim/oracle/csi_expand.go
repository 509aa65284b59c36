package oracle

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// csiExpand fires when the agent gives a claim a capacity to which no driver has expanded its
// volume on the node, or one that its controller has not allocated, and when the first container
// since a volume was published for a pod is started, although the claim waits for its expansion.
// That an expansion ends is a line of progress.
type csiExpand struct{}

func (*csiExpand) describe() Entry {
	return Entry{"csi-expand", "A claim gets a new capacity from the agent only once its volume was " +
		"expanded to that on the node, and it is what was allocated. A pod gets a volume after its " +
		"expansion."}
}

// expansionKnownBound is how long after a claim began to wait for the node the agent knows of that
// when it publishes the volume.
const expansionKnownBound = 2 * time.Minute

// findUnexpanded returns that a pod has got a volume before its expansion.
func (m *model) findUnexpanded(f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if p == nil || p.spec == nil || p.specChanged || p.wasRemoved() {
		return nil
	}
	for _, use := range m.csiUses(p.spec) {
		i := slices.IndexFunc(p.spec.Spec.Volumes, func(v v1.Volume) bool {
			return v.Name == use.volume
		})
		name, readOnly := claimName(p.spec, &p.spec.Spec.Volumes[i])
		key := p.spec.Namespace + "/" + name
		claim, is := m.volumes.claims[key], m.csi.published[use.path]
		if name == "" || readOnly || !awaitsExpansion(claim) || is.csiName != use.csiName ||
			!usesVolume(p.spec, use.volume) ||
			!is.startedAt.IsZero() && is.startedAt.Before(f.Time) {
			continue
		}
		since, size := m.csi.awaitingSince[key], claim.Status.AllocatedResources.Storage()
		if is.since.Sub(since) > expansionKnownBound && m.csi.expanded[use.csiName] < size.Value() &&
			!m.anyFaultPossible(since, f.Time, "WatchObjects", "ObjectChanged", "GetObject") {
			return findingf("container %s was started with %s, and claim %s waits for its expansion to %s",
				f.Container, use.csiName, name, size)
		}
	}
	return nil
}

func (*csiExpand) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind == truth.ContainerStarted {
		return m.findUnexpanded(f)
	}
	if f.Kind != truth.ObjectUpdated || f.Write.Resource != api.ResourceClaims ||
		f.Write.Incarnation == 0 || f.Write.Before.Claim == nil || f.Write.After.Claim == nil {
		return nil
	}
	before, after := f.Write.Before.Claim, f.Write.After.Claim
	have, allocated := after.Status.Capacity.Storage(), after.Status.AllocatedResources.Storage()
	volume := m.volumes.volumes[after.Spec.VolumeName]
	name, isCSI := csiNameOf(volume)
	if have.Cmp(*before.Status.Capacity.Storage()) == 0 || !isCSI {
		return nil
	}
	switch {
	case m.csi.expanded[name] < have.Value():
		return findingf("claim %s has %s now, and %s was expanded to %d bytes on the node", after.Name,
			have, name, m.csi.expanded[name])
	case have.Cmp(*allocated) != 0:
		return findingf("claim %s has %s now, and %s is allocated to it", after.Name, have, allocated)
	}
	return nil
}

// unsettledExpansions returns the claims of pods that run which the node has not expanded.
func (m *model) unsettledExpansions() []string {
	var lines []string
	for _, p := range m.podsInOrder {
		if p.spec == nil || p.liveContainers == 0 {
			continue
		}
		for i := range p.spec.Spec.Volumes {
			name, readOnly := claimName(p.spec, &p.spec.Spec.Volumes[i])
			claim := m.volumes.claims[p.spec.Namespace+"/"+name]
			if awaitsExpansion(claim) && !readOnly {
				lines = append(lines, fmt.Sprintf("pod %s runs, and its claim %s is to be expanded", p, name))
			}
		}
	}
	return lines
}

// isOfExpansion reports whether a call is part of an expansion that a claim waits for. The agent
// learns of it when it reads the claim again.
func (m *model) isOfExpansion(request any) bool {
	switch r := request.(type) {
	case *api.PatchObject:
		return r.Resource == api.ResourceClaims &&
			awaitsExpansion(m.volumes.claims[r.Namespace+"/"+r.Name])
	case *api.ExpandVolume:
		for _, claim := range m.volumes.claims { //ordered: whether there is one
			name, isCSI := csiNameOf(m.volumes.volumes[claim.Spec.VolumeName])
			if isCSI && name.handle == r.Handle && awaitsExpansion(claim) {
				return true
			}
		}
	}
	return false
}

// awaitsExpansion reports whether a claim waits for the node to expand its volume.
func awaitsExpansion(claim *v1.PersistentVolumeClaim) bool {
	if claim == nil {
		return false
	}
	switch claim.Status.AllocatedResourceStatuses[v1.ResourceStorage] {
	case v1.PersistentVolumeClaimNodeResizePending, v1.PersistentVolumeClaimNodeResizeInProgress:
		return true
	}
	return false
}
