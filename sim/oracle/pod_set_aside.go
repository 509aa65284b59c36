package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// setAside fires when the agent does not leave a pod alone over which it has panicked, or does not
// say why. That others are run meanwhile, and the pod afterwards, is checked by isolation and
// progress.
type setAside struct{}

func (*setAside) describe() Entry {
	return Entry{"set-aside", "After a panic over a pod the agent asks the runtime for nothing " +
		"about it for 10 s, twice as long after each further panic up to 5 min, and an event and the " +
		"pod's status say so until then."}
}

const (
	setAsideFirst   = 10 * time.Second
	setAsideMax     = 5 * time.Minute
	panicsForgotten = 10 * time.Minute // after the time for which the pod was set aside
	reasonSetAside  = "AgentPanicked"
	// setAsideNoticeBound is how long after its start the agent may take to list the pods, and to
	// write the status of one.
	setAsideNoticeBound = 8 * time.Second
)

// AgentPanicked reports that the agent has ended by a panic over a pod.
func (s *Set) AgentPanicked(now time.Time, uid string) {
	p := s.model.podByUID(uid)
	switch {
	case now.Before(p.setAsideUntil):
		s.report(&setAside{}, findingf("pod %s: the agent has panicked over it again, %v before "+
			"it was to look at it", p, p.setAsideUntil.Sub(now).Round(time.Millisecond)), now)
	case now.After(p.setAsideUntil.Add(panicsForgotten)):
		p.panics = 0
	}
	aside := setAsideFirst
	for range p.panics {
		aside = min(2*aside, setAsideMax)
	}
	p.panics++
	p.setAsideUntil, p.panicReported = now.Add(aside), false
}

// checkSetAside checks a request to the runtime.
func (s *Set) checkSetAside(now time.Time, request any) {
	p := s.model.podOfRequest(request)
	if p != nil && now.Before(p.setAsideUntil) {
		s.report(&setAside{}, findingf("pod %s: %s was called %v before the agent was to look at it",
			p, world.CallName(request), p.setAsideUntil.Sub(now).Round(time.Millisecond)), now)
	}
}

// podOfRequest returns the pod that a request to the runtime is about; nil if it is about none. A
// pull that serves several pods is about the one for whose sandbox it is made: an image that a pod
// which is set aside shares with another one is pulled for the other one.
func (m *model) podOfRequest(request any) *pod {
	switch r := request.(type) {
	case *runtimeapi.RunPodSandboxRequest:
		return m.pods[r.GetConfig().GetMetadata().GetUid()]
	case *runtimeapi.PullImageRequest:
		return m.pods[r.GetSandboxConfig().GetMetadata().GetUid()]
	case interface{ GetContainerId() string }:
		if c := m.containers[r.GetContainerId()]; c != nil {
			return c.pod
		}
	case interface{ GetPodSandboxId() string }:
		if s := m.sandboxes[r.GetPodSandboxId()]; s != nil {
			return s.pod
		}
	}
	return nil
}

// applySetAsideEvent records that an event says that a pod is set aside.
func (m *model) applySetAsideEvent(f *truth.Fact) {
	if p := m.pods[f.PodUID]; p != nil && f.Reason == reasonSetAside {
		p.panicReported = true
	}
}

func (*setAside) checkServed(m *model, now time.Time, pods []*v1.Pod) *finding {
	since := now.Add(-setAsideNoticeBound)
	if m.agentDown || !m.agentStartedAt.Before(since) ||
		m.anyFaultPossible(since.Add(-reconnectBound), now, "WatchObjects", "ListObjects", "Watch",
			"ObjectChanged", "PatchObject", "ListPodSandbox", "ListContainers") {
		return nil
	}
	for _, p := range m.podsInOrder {
		if p.panics == 0 || p.spec == nil || !p.desiredAt.Before(since) {
			continue
		}
		object := m.objects.pods[p.fullName.name]
		if object == nil || string(object.UID) != p.uid || object.DeletionTimestamp != nil ||
			isTerminalPhase(object.Status.Phase) {
			continue
		}
		isAside, says := now.Before(p.setAsideUntil), object.Status.Reason == reasonSetAside
		switch {
		case isAside && !says:
			return findingf("pod %s: its status does not say that it is set aside until %v", p,
				p.setAsideUntil)
		case isAside && !p.panicReported:
			return findingf("pod %s: no event says that it is set aside", p)
		case says && now.Sub(p.setAsideUntil) > isolationBound:
			return findingf("pod %s: its status still says that it is set aside", p)
		}
	}
	return nil
}
