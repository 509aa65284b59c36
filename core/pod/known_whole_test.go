package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/pleg"
	"seedlet.dev/world"
)

// created returns a pod whose sandbox and container this agent has created.
func created(t *testing.T, attempt uint32) *harness {
	p := New(spec(v1.RestartPolicyAlways, "", "web"), nil, true, true, t0)
	p.SandboxAttempt = attempt
	p.addCreatedSandbox("s", op.Record{IssuedAt: t0}, t0)
	p.addCreatedContainer("web0", run("web", 0, Running), op.Record{IssuedAt: t0}, t0)
	return newHarness(t, p)
}

// A pod is known as a whole if this agent has made all of it, and nothing has failed.
func TestKnownWhole(t *testing.T) {
	refused := world.Errorf(world.KindTimeout, "StartContainer", "no response")
	for name, c := range map[string]struct { //ordered: each by itself
		attempt uint32
		change  func(*Pod)
		want    bool
	}{
		"all is made by this agent":                                 {0, func(*Pod) {}, true},
		"a later sandbox, the first was perhaps an earlier agent's": {1, func(*Pod) {}, false},
		"a creation has failed": {0, func(p *Pod) {
			p.Op = 7
			p.HandleCompletion(7, op.Record{Call: "CreateContainer", Subject: "web"},
				world.Event{Time: t0, Err: refused}, newHarness(t, p).env)
		}, false},
		"somebody else's sandbox": {0, func(p *Pod) {
			p.ObserveSandbox(&pleg.Sandbox{ID: "other", Attempt: 1}, 1, t0.Add(time.Second))
		}, false},
		"the sandbox that is being created": {0, func(p *Pod) {
			p.Op = 7
			p.ObserveSandbox(&pleg.Sandbox{ID: "next", Attempt: 1}, 1, t0.Add(time.Second))
		}, true},
		"somebody else's container": {0, func(p *Pod) {
			p.ObserveContainer(&pleg.Container{ID: "x", Name: "web"}, 1, t0.Add(time.Second), t0)
		}, false},
		"the container that is being created": {0, func(p *Pod) {
			p.Creating = &Container{Name: "web"}
			p.ObserveContainer(&pleg.Container{ID: "x", Name: "web"}, 1, t0.Add(time.Second), t0)
		}, true},
	} {
		r := created(t, c.attempt)
		if c.change(r.pod); r.pod.KnownWhole != c.want {
			t.Errorf("%s: known as a whole %t", name, r.pod.KnownWhole)
		}
	}
}

// A sandbox that a relist has reported before the response is the first one all the same, and an
// earlier agent's is not.
func TestKnownWholeAfterRelist(t *testing.T) {
	for id, want := range map[world.OpID]bool{0: false, 7: true} { //ordered: each by itself
		p := New(spec(v1.RestartPolicyAlways, "", "web"), nil, true, true, t0)
		p.Op = id
		p.ObserveSandbox(&pleg.Sandbox{ID: "s", Ready: true}, 1, t0.Add(time.Second))
		if id != 0 {
			p.addCreatedSandbox("s", op.Record{IssuedAt: t0}, t0.Add(2*time.Second))
		}
		if p.KnownWhole != want {
			t.Errorf("operation %d: known as a whole %t", id, p.KnownWhole)
		}
	}
}

// The end of a pod that is known as a whole needs no relist; that of any other needs two.
func TestEndOfAKnownPodNeedsNoRelist(t *testing.T) {
	for _, known := range []bool{true, false} {
		r := created(t, 0)
		r.pod.KnownWhole = known
		r.planAt(0)
		r.pod.ClearDesired(r.now)
		r.planAt(time.Second).complete("StopContainer", &runtimeapi.StopContainerResponse{}, nil)
		if sandboxStops := r.findCall("StopPodSandbox") != nil; sandboxStops != known {
			t.Fatalf("known as a whole %t: the sandbox is stopped %t", known, sandboxStops)
		}
		if !known {
			r.pod.StaleSince = time.Time{} // a relist
			r.planAt(2 * time.Second)
		}
		r.complete("StopPodSandbox", &runtimeapi.StopPodSandboxResponse{}, nil)
		if hasEnded := r.pod.Stage == Terminated; hasEnded != known {
			t.Fatalf("known as a whole %t: terminated %t", known, hasEnded)
		}
	}
}
