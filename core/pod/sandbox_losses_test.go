package pod

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/world"
)

// lossHarness creates sandboxes, each of which is lost.
type lossHarness struct {
	*harness
	list uint64
}

// sandboxLost has a sandbox be created now and be lost after a while, and returns how long the pod
// then waits with the next one.
func (r *lossHarness) sandboxLost(lasts time.Duration, lose func(s *Sandbox, at time.Time)) (
	waits time.Duration) {
	r.t.Helper()
	id := fmt.Sprint("s", r.list)
	r.list++
	r.complete("RunPodSandbox", &runtimeapi.RunPodSandboxResponse{PodSandboxId: id}, nil)
	r.now = r.now.Add(lasts)
	lose(r.pod.sandboxByID(id), r.now)
	r.pod.Sandboxes = nil                     // one that has died is not kept by the runtime either
	r.complete("MakeDir", &world.Done{}, nil) // of the first container
	if r.findCall("RunPodSandbox") != nil {
		return 0
	}
	waits = r.wake.Sub(r.now)
	r.planAt(r.wake.Sub(t0)).expectCall("RunPodSandbox")
	return waits
}

// Sandboxes that are lost soon, one after the other, are replaced after a growing back-off, however
// the agent learns of it. One that lasts long, or that the agent stops, ends the row or does not
// count.
func TestLostSandboxesAreReplacedAfterBackoff(t *testing.T) {
	var r *lossHarness
	vanishes := func(_ *Sandbox, at time.Time) { r.pod.ObserveEnd(r.list+1, at) }
	isListedDead := func(s *Sandbox, at time.Time) {
		r.pod.ObserveSandbox(&pleg.Sandbox{ID: s.ID, Attempt: s.Attempt}, r.list+1, at)
	}
	for name, lose := range map[string]func(s *Sandbox, at time.Time){ //ordered: each by itself
		"vanishes":       vanishes,
		"is listed dead": isListedDead,
		"dies by an event": func(s *Sandbox, at time.Time) {
			r.pod.ObserveEvent(&pleg.Event{ID: s.ID,
				Type: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT}, at)
		},
		"is inspected dead": func(*Sandbox, time.Time) {
			r.complete("PodSandboxStatus", &runtimeapi.PodSandboxStatusResponse{
				Status: &runtimeapi.PodSandboxStatus{
					State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}}, nil)
		},
		"is listed dead and vanishes": func(s *Sandbox, at time.Time) {
			isListedDead(s, at)
			vanishes(s, at)
		},
	} {
		h := newHarness(t, New(spec(v1.RestartPolicyAlways, "", "web"), nil, true, true, t0))
		h.env.Node.Resolv.Loaded = true
		r = &lossHarness{harness: h.planAt(time.Second)}
		stopped := func(s *Sandbox, at time.Time) {
			s.Failures++ // a stop has timed out, and taken effect late
			lose(s, at)
		}
		got := []time.Duration{
			r.sandboxLost(200*time.Millisecond, lose), r.sandboxLost(1, lose),
			r.sandboxLost(sandboxLossSoon-1, lose), r.sandboxLost(1, stopped),
			r.sandboxLost(sandboxLossSoon, lose), r.sandboxLost(time.Second, lose),
		}
		const s = time.Second
		if want := []time.Duration{s, 2 * s, 4 * s, 0, 0, s}; !slices.Equal(got, want) {
			t.Errorf("a sandbox %s: the next ones wait %v, want %v", name, got, want)
		}
	}
}

// A pod that ends does not count the sandboxes that it stops.
func TestEndingPodLosesNoSandbox(t *testing.T) {
	p := runningPod(func(*v1.Container) {})
	p.Stage = Terminating
	p.ObserveEnd(1, p.Sandboxes[0].LearnedAt.Add(time.Second))
	if len(p.Sandboxes) != 0 || p.SandboxLosses.Count != 0 {
		t.Errorf("sandboxes %v, losses %+v", p.Sandboxes, p.SandboxLosses)
	}
}
