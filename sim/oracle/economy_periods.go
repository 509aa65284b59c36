package oracle

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Periods are the periods of the agent's settings. One that is zero is not checked.
type Periods struct {
	LeaseDuration time.Duration // the lease is renewed every quarter of it
	NodeCheck     time.Duration // of the comparisons of the Node's status, and of ReadMachine
	NodeReport    time.Duration // of the writes of the Node's status without a change
}

const (
	// tokenIntervalMin is the least time between two requests for one token: the first back-off. A
	// renewal is due much later.
	tokenIntervalMin = time.Second
	// housekeepingPeriod is that of the listings of the directories of all pods.
	housekeepingPeriod = time.Minute
	// volumesPeriod is that of the measurements of all volumes of a pod, one after the other, and
	// storagePeriod that of its logs and writable layers. The first ones may have taken longer.
	volumesPeriod  = time.Minute - measuringBound
	storagePeriod  = 10*time.Second - measuringBound
	measuringBound = 5 * time.Second
	// nodeReadPeriod is that of the reads of a Node that does not exist.
	nodeReadPeriod = 7 * time.Second
	// A claim and a volume that are bound to each other are read again in each sync of a pod, less
	// what the read before may have waited for its lane (claimSlack). unboundPeriod is the first
	// back-off after a read of others, and rejectedPeriod of those that are bound and not usable.
	claimSlack     = time.Second
	unboundPeriod  = time.Second
	rejectedPeriod = 250 * time.Millisecond
	// userHeardBound is how long it takes until the agent has heard of a pod.
	userHeardBound = time.Second
	// retryBound is the longest back-off: what waits for a lost call comes so long after its end.
	retryBound = 32 * time.Second
	// nodeChangeBound is how long after a change of the pods the Node's status may still change: its
	// list of images is read every 30 s.
	nodeChangeBound = time.Minute
)

// periodOf returns what a periodic request repeats, and the least time between two of them; zero if
// that is not bounded. The response to an earlier one may cause the next one early only if it was
// a failure, and what is judged is long after all faults.
func (m *model) periodOf(request any, now time.Time) (what string, least time.Duration) {
	periods, call := &m.opts.Periods, world.CallName(request)
	switch r := request.(type) {
	case *world.ReadMachine:
		return call, periods.NodeCheck
	case *world.CreateToken:
		ref := r.Spec.BoundObjectRef
		if ref == nil || r.Spec.ExpirationSeconds == nil {
			return "", 0
		}
		return fmt.Sprint(call, " ", r.Namespace, "/", ref.Name, " ", ref.UID, " ", r.Spec.Audiences,
			" ", *r.Spec.ExpirationSeconds), tokenIntervalMin
	case *world.ListDir:
		if r.Path == m.opts.PodsDir || r.Path == m.opts.LogsDir {
			return call + " " + r.Path, housekeepingPeriod
		}
		if isWithin(r.Path, m.opts.LogsDir) {
			return call + " " + r.Path, m.opts.LogMonitorInterval
		}
	case *world.MeasureFiles:
		return fmt.Sprint(call, " ", r.Paths), m.opts.LogMonitorInterval
	case *world.MeasureTree:
		if isWithin(r.Path, m.opts.LogsDir) {
			return call + " " + r.Path, storagePeriod
		}
		return call + " " + r.Path, volumesPeriod
	case *runtimeapi.ContainerStatsRequest:
		return call + " " + r.ContainerId, storagePeriod
	case *world.GetObject:
		if r.Resource == world.ResourceClaims || r.Resource == world.ResourceVolumes {
			return fmt.Sprint(call, " ", r.Resource, " ", r.Namespace, "/", r.Name), m.readPeriod(r, now)
		}
		return m.periodOfObject(call, r, now)
	case world.ObjectOperation:
		return m.periodOfObject(call, r, now)
	}
	return "", 0
}

// readPeriod returns the least time between two reads of a claim or a volume.
func (m *model) readPeriod(r *world.GetObject, now time.Time) time.Duration {
	o := &m.volumes
	claim := o.claims[r.Namespace+"/"+r.Name]
	if m.isRejected(r) {
		return rejectedPeriod
	}
	expandedAt := m.reads.expandedAt[objectKey(r.Resource, r.Namespace, r.Name)]
	if claim != nil && (len(claim.Status.AllocatedResourceStatuses) > 0 ||
		now.Sub(expandedAt) < m.syncPeriod()) {
		return 0 // it is read for its expansion, too, or was until just now
	}
	if r.Resource == world.ResourceVolumes || claim != nil && claim.Status.Phase == v1.ClaimBound {
		return m.syncPeriod() - claimSlack
	}
	return unboundPeriod
}

// isRejected reports whether a request reads a claim which is bound and no pod can use as it is, or
// the volume that such a claim names: one of them is being deleted, was made again, or is another
// pod's.
func (m *model) isRejected(r *world.GetObject) bool {
	for name, claim := range m.volumes.claims { //ordered: whether there is one
		isRead := r.Resource == world.ResourceClaims && name == r.Namespace+"/"+r.Name ||
			r.Resource == world.ResourceVolumes && claim.Spec.VolumeName == r.Name
		if !isRead || claim.Status.Phase != v1.ClaimBound {
			continue
		}
		volume := m.volumes.volumes[claim.Spec.VolumeName]
		isOfIt := volume == nil || volume.Spec.ClaimRef != nil && volume.Spec.ClaimRef.UID == claim.UID
		ends := claim.DeletionTimestamp != nil &&
			!slices.Contains(claim.Finalizers, "kubernetes.io/pvc-protection")
		if !isOfIt || ends || m.isOfAnotherPod(name, claim) {
			return true
		}
	}
	return false
}

// isOfAnotherPod reports whether a pod has a generic ephemeral volume whose claim it does not
// control.
func (m *model) isOfAnotherPod(name string, claim *v1.PersistentVolumeClaim) bool {
	for _, p := range m.podsInOrder {
		if p.spec == nil || metav1.IsControlledBy(claim, p.spec) {
			continue
		}
		for i := range p.spec.Spec.Volumes {
			v := &p.spec.Spec.Volumes[i]
			if v.Ephemeral != nil && p.spec.Namespace+"/"+p.spec.Name+"-"+v.Name == name {
				return true
			}
		}
	}
	return false
}

// periodOfObject is periodOf for the Node and its lease.
func (m *model) periodOfObject(call string, r world.ObjectOperation,
	now time.Time) (what string, least time.Duration) {
	periods := &m.opts.Periods
	what = call + " " + string(r.TargetResource())
	switch {
	case r.TargetResource() == world.ResourceLeases:
		return what, periods.LeaseDuration / 4
	case r.TargetResource() != world.ResourceNodes:
		return "", 0
	case m.objects.node == nil:
		return what, nodeReadPeriod
	case now.Sub(m.changedAt) <= nodeChangeBound:
		return what, periods.NodeCheck
	default: // the first report after a change comes up to half a period early
		return what, periods.NodeReport / 2
	}
}

// checkPeriod records a periodic request, and returns a finding if it comes earlier after the one
// before than its period. It may come earlier if another client or the machine's date has changed
// what it is about, or something has happened to the pod that it is about.
func (m *model) checkPeriod(now time.Time, request any) *finding {
	what, least := m.periodOf(request, now)
	if least == 0 {
		return nil
	}
	last := m.periodicAt[what]
	if m.periodicAt == nil {
		m.periodicAt = map[string]time.Time{}
	}
	m.periodicAt[what] = now
	changedAt := m.sharedChangedAt
	if p := m.podOfPeriod(request); p != nil && p.fullName != nil {
		changedAt = p.reactsTo()
	}
	quietSince := now.Add(-quietBound)
	if _, isList := request.(*world.ListDir); isList && last.Before(quietSince) {
		quietSince = last // a log's directory is listed before its first run, and the log after that
	}
	switch {
	case last.IsZero(), now.Sub(last) >= least, m.isFirstOfUser(request, last):
	case isNodePatch(request) &&
		now.Sub(later(m.pressure.flippedAt, m.csi.knownFreeAt)) <= nodeChangeBound:
	case m.usesAnotherVolume(request): // it is written before the volume is used
	case changedAt.After(quietSince), m.agentStartedAt.After(quietSince), m.agentStartedAt.After(last),
		m.healedAt.IsZero(), now.Sub(m.healedAt) <= callBound+retryBound,
		m.dateOffset(now) != m.dateOffset(last):
	default:
		return findingf("%s was called %v after the call before, and at the earliest it is due after "+
			"%v", what, now.Sub(last), least)
	}
	return nil
}

// usesAnotherVolume reports whether a patch of the Node adds a volume to those in use.
func (m *model) usesAnotherVolume(request any) bool {
	var change struct{ Status v1.NodeStatus }
	if !isNodePatch(request) || m.objects.node == nil ||
		json.Unmarshal(request.(*world.PatchObject).Patch, &change) != nil {
		return false
	}
	return slices.ContainsFunc(change.Status.VolumesInUse, func(v v1.UniqueVolumeName) bool {
		return !slices.Contains(m.objects.node.Status.VolumesInUse, v)
	})
}

// isFirstOfUser reports whether a request may be the first read of a claim or a volume for a pod:
// one that uses it was desired after the last read, or a moment before, so that the agent had not
// heard of it.
func (m *model) isFirstOfUser(request any, last time.Time) bool {
	get, isGet := request.(*world.GetObject)
	return isGet && m.usersDesiredAt(get).After(last.Add(-userHeardBound))
}

// usersDesiredAt returns when the newest pod was desired that uses the claim or the volume which a
// request reads: a new pod reads them at once. It is zero if there is none.
func (m *model) usersDesiredAt(r *world.GetObject) (newest time.Time) {
	for _, p := range m.podsInOrder {
		if p.spec == nil || !p.desiredAt.After(newest) {
			continue
		}
		for i := range p.spec.Spec.Volumes {
			if m.volumes.isReadFor(r, p.spec, &p.spec.Spec.Volumes[i]) {
				newest = p.desiredAt
			}
		}
	}
	return newest
}

// isReadFor reports whether a request reads the claim of a volume of a pod, or the persistent
// volume of that claim.
func (o *volumeModel) isReadFor(r *world.GetObject, pod *v1.Pod, v *v1.Volume) bool {
	switch r.Resource {
	case world.ResourceClaims:
		name, _ := claimName(pod, v)
		return name != "" && r.Name == name && r.Namespace == pod.Namespace
	case world.ResourceVolumes:
		claim := o.claimOf(pod, v)
		return claim != nil && claim.Spec.VolumeName == r.Name
	}
	return false
}

func isNodePatch(request any) bool {
	patch, isPatch := request.(*world.PatchObject)
	return isPatch && patch.Resource == world.ResourceNodes
}

// podOfPeriod returns the pod that a periodic request is about; nil if it is about none.
func (m *model) podOfPeriod(request any) *pod {
	switch r := request.(type) {
	case *world.CreateToken:
		return m.pods[string(r.Spec.BoundObjectRef.UID)]
	case *world.ListDir:
		return m.podOfPath(r.Path)
	case *world.MeasureTree:
		return m.podOfPath(r.Path)
	case *runtimeapi.ContainerStatsRequest:
		return m.podOfRequest(r)
	}
	return nil
}
