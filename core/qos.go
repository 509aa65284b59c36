package core

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/criconfig"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/qos"
	"seedlet.dev/world"
)

// podShare is the share of a pod with a spec and a cgroup. The spec's resources are added up once.
type podShare struct {
	spec              *v1.Pod
	applied, applying *pod.CgroupSetting
	share             qos.Share
}

// countShare counts the pod in the cgroups above its own, or no longer.
func (a *Agent) countShare(p *pod.Pod) {
	counts := p.HasShare()
	if !counts {
		delete(a.shares, p.UID)
		a.dropShare(p.UID)
		return
	}
	known, exists := a.shares[p.UID]
	if !exists || known.spec != p.Spec || known.applied != p.Cgroup.Applied ||
		known.applying != p.Cgroup.Applying || p.Spec == nil || p.Resize.InProgress != nil {
		known = podShare{p.Spec, p.Cgroup.Applied, p.Cgroup.Applying, a.shareOf(p)}
		if a.shares == nil {
			a.shares = map[string]podShare{}
		}
		a.shares[p.UID] = known
	}
	if a.state.QOS.Count(p.UID, known.share) {
		a.queue.enqueue(qos.Owner)
	}
}

// countAllShares counts every pod.
func (a *Agent) countAllShares() {
	for _, uid := range a.podUIDs {
		a.countShare(a.state.Pods[uid])
	}
}

// shareOf returns the share of a pod. The sandbox of an orphan that a kubelet has run does not tell
// it: what the kubelet has recorded as allocated does. Its class is not known for sure: a
// guaranteed pod counts as a burstable one until its spec is known.
func (a *Agent) shareOf(p *pod.Pod) qos.Share {
	if p.Spec == nil && p.CurrentSandbox().Cgroup == "" {
		held := a.heldBy(p)
		return qos.ShareOf(held, criconfig.QOS(held))
	}
	return p.Share(&a.state.Node.Cgroups)
}

// lacksShares reports whether there are orphans of a kubelet, and what the kubelet has recorded is
// still to be read.
func (a *Agent) lacksShares() bool {
	return !a.state.Allocation.IsLoaded() && slices.ContainsFunc(a.podUIDs, func(uid string) bool {
		p := a.state.Pods[uid]
		return p.Spec == nil && p.CurrentSandbox() != nil && p.CurrentSandbox().Cgroup == ""
	})
}

func (a *Agent) dropShare(uid string) {
	if a.state.QOS.Drop(uid) {
		a.queue.enqueue(qos.Owner)
	}
}

func (a *Agent) qosEnv() *qos.Env {
	return &qos.Env{Layout: &a.state.Node.Cgroups,
		Listed:  !a.state.Relist.AsOf.IsZero() && !a.lacksShares(),
		Effects: &a.effects, Enqueue: a.enqueuePod,
		Node: nodeobject.Reference(a.state.Node.Name)}
}

func (a *Agent) planQOS() time.Time { return a.state.QOS.Plan(a.qosEnv()) }

// mustWaitForTier reports whether a pod has to wait with its cgroup for those above it.
func (a *Agent) mustWaitForTier(uid string, class v1.PodQOSClass) bool {
	return a.state.QOS.MustWait(uid, class, a.qosEnv())
}

// applyNodeLimits sets the limits of all pods together to those of the observed machine.
func (a *Agent) applyNodeLimits() {
	s := &a.state
	layout := &s.Node.Cgroups
	layout.SetMachine(&s.Boot.Machine)
	unreserved, limits := s.NodeObject.Unreserved(&s.Boot)
	s.Node.UnreservedMemory = unreserved.Memory().Value()
	pids, arePIDsKnown := limits[world.ResourcePIDs]
	s.QOS.Limits = qos.NodeLimits{
		CPU: limits.Cpu().MilliValue(), MemoryBytes: limits.Memory().Value(),
		HugePages: layout.HugePageLimits(limits), UnreservedMemory: unreserved.Memory().Value(),
	}
	if arePIDsKnown {
		s.QOS.Limits.PidsMax = max(pids.Value(), 1) // zero would be no limit, and all are reserved
	}
	a.queue.enqueue(qos.Owner)
}
