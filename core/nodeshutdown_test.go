package core

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/pod"
	"seedlet.dev/core/shutdown"
	"seedlet.dev/world"
)

// What a static pod holds stays its own while a shutdown has ended it: if the machine stays up the
// pod runs again, and a pod that waits for the room does not.
func TestCancelledShutdownKeepsAllocations(t *testing.T) {
	n := bootNode(map[string]string{"a.yaml": staticOf("a", "1500m")})
	n.advance(5 * time.Second)
	n.manifests["b.yaml"] = staticOf("b", "1")
	n.advance(time.Minute)
	n.delayShutdowns()
	n.event(world.Event{Body: &world.MachineShutdown{}})
	n.advance(5 * time.Second)
	check := func(when string, want v1.PodPhase) {
		for _, p := range n.agent.listServedPods() {
			if p.Name == "a-n1" && p.Status.Phase != want ||
				p.Name == "b-n1" && p.Status.Phase != v1.PodPending {
				t.Errorf("%s: %s is %s", when, p.Name, p.Status.Phase)
			}
		}
	}
	check("shutdown", v1.PodFailed)
	n.event(world.Event{Body: &world.MachineShutdown{Cancelled: true}})
	n.advance(time.Minute)
	check("cancelled", v1.PodRunning)
	for _, uid := range n.agent.podUIDs {
		if p := n.agent.state.Pods[uid]; n.agent.state.Allocation.Allocated.Get(uid) == nil {
			t.Errorf("nothing is recorded for %s", p.Name)
		}
	}
}

// The mirror of a static pod that a shutdown has ended stays: it is Failed as long as the machine
// shuts down, and Running again after that.
func TestMirrorStaysOverShutdown(t *testing.T) {
	n := bootWithPods(map[string]string{"a.yaml": podNamed("a")})
	first := n.apiServer.objects["default/a-n1"].UID
	check := func(when string, want v1.PodPhase) {
		if got := n.apiServer.objects["default/a-n1"]; got == nil || got.UID != first ||
			got.Status.Phase != want {
			t.Fatalf("%s: the mirror is %v, want %s of the same UID", when, got, want)
		}
	}
	n.shutDown()
	n.advance(10 * time.Second)
	check("after the shutdown", v1.PodFailed)
	n.event(world.Event{Body: &world.MachineShutdown{Cancelled: true}})
	n.advance(time.Minute)
	check("when the shutdown is cancelled", v1.PodRunning)
}

// A static pod that has completed keeps the mirror that says that a shutdown has ended it.
func TestMirrorOfCompletedPodStaysOverShutdown(t *testing.T) {
	once := strings.Replace(podNamed("a"), "spec: {", "spec: {restartPolicy: Never,", 1)
	n := bootWithPods(map[string]string{"a.yaml": once})
	first := n.apiServer.objects["default/a-n1"].UID
	n.shutDown()
	n.advance(10 * time.Second)
	n.event(world.Event{Body: &world.MachineShutdown{Cancelled: true}})
	n.advance(time.Minute)
	if got := n.apiServer.objects["default/a-n1"]; got == nil || got.UID != first ||
		got.Status.Phase != v1.PodFailed {
		t.Errorf("the mirror is %v", got)
	}
}

// shutDown announces a shutdown to a node, and returns whether the machine may go down by now.
func (n *fakeNode) shutDown() (mayGoDown func() bool) {
	n.delayShutdowns()
	n.advance(time.Second)
	permitted, inner := false, n.answer
	n.answer = func(effect any) any {
		if _, is := effect.(*world.PermitShutdown); is {
			permitted = true
		}
		return inner(effect)
	}
	n.event(world.Event{Body: &world.MachineShutdown{}})
	return func() bool { return permitted }
}

// The machine goes down when the API server has the final statuses of the pods, also of those that
// had ended before.
func TestShutdownWaitsForPodsThatHadEnded(t *testing.T) {
	p := apiPodNamed("a", "u1")
	p.Spec.RestartPolicy = v1.RestartPolicyNever
	n := bootWithPods(nil, p)
	n.failingCalls = map[string]bool{"PatchObject": true}
	n.endContainers()
	n.advance(10 * time.Second)
	if got := n.agent.state.Pods["u1"].Stage; got != pod.Terminated {
		t.Fatalf("stage %v", got)
	}
	mayGoDown := n.shutDown()
	if n.advance(5 * time.Second); mayGoDown() {
		t.Error("the machine goes down without the final status")
	}
	n.failingCalls = nil
	if n.advance(20 * time.Second); !mayGoDown() {
		t.Error("the machine does not go down after the final status was written")
	}
}

// No status is awaited of a pod that is not desired any more: it was deleted by force during the
// shutdown. If its containers cannot be removed, the end of another pod has that looked at.
func TestShutdownWaitsForNoStatusOfRemovedPods(t *testing.T) {
	for _, isLeft := range []bool{true, false} {
		n := bootWithPods(nil, apiPodNamed("a", "u1"), apiPodNamed("b", "u2"))
		n.failingCalls = map[string]bool{"PatchObject": true, "RemoveContainer": isLeft}
		mayGoDown := n.shutDown()
		n.advance(5 * time.Second)
		for _, uid := range []string{"u1", "u2"} {
			if p := n.agent.state.Pods[uid]; p.Stage != pod.Terminated || mayGoDown() {
				t.Fatalf("stage %v, may go down %t", p.Stage, mayGoDown())
			}
		}
		n.apiServer.remove("default/a")
		n.event(world.Event{})
		n.advance(time.Second)
		if isLeft {
			n.failingCalls["PatchObject"] = false
		} else {
			n.apiServer.remove("default/b")
			n.event(world.Event{})
		}
		if n.advance(12 * time.Second); !mayGoDown() || (n.agent.state.Pods["u1"] != nil) != isLeft {
			t.Errorf("removed pod is left %t: may go down %t", isLeft, mayGoDown())
		}
	}
}

// A pod that waits to learn whether the machine shuts down is admitted once it does not.
func TestPodsAreAdmittedWithoutShutdown(t *testing.T) {
	n := bootWithPods(nil)
	n.delayShutdowns()
	inner := n.answer
	n.answer = func(effect any) any {
		if _, is := effect.(*world.DelayShutdown); is {
			return world.Errorf(world.KindUnavailable, "DelayShutdown", "no bus")
		}
		return inner(effect)
	}
	n.agent.state.Shutdown.Lock = shutdown.Lock{} // of an agent that has just started
	n.agent.queue.enqueue(shutdown.Owner)
	n.apiServer.put(apiPodNamed("a", "u1"))
	n.event(world.Event{})
	if !n.agent.state.Shutdown.Undecided() || len(n.containers) != 0 {
		t.Fatalf("%d containers run before it is known whether the machine shuts down",
			len(n.containers))
	}
	if r := n.agent.state.APIRejections["u1"]; r != awaitingShutdown {
		t.Fatalf("the pod is rejected with %+v", r)
	}
	n.answer = inner
	for range 5 {
		if n.advance(time.Second); !n.agent.state.Shutdown.Undecided() {
			break
		}
	}
	if n.agent.state.Shutdown.Undecided() || len(n.containers) != 1 {
		t.Errorf("undecided %t: %d containers run", n.agent.state.Shutdown.Undecided(),
			len(n.containers))
	}
}

// The final status of a pod is not awaited once the pod is not desired. This and its removal have
// the shutdown looked at.
func TestRemovalOfPodHasShutdownLookedAt(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"))
	n.failingCalls = map[string]bool{"PatchObject": true}
	n.shutDown()
	a, p := n.agent, n.agent.state.Pods["u1"]
	if a.isEndReported("u1") {
		t.Error("the end of a pod counts as reported, but no status was written")
	}
	if p.NoLongerDesired = true; !a.isEndReported("u1") {
		t.Error("a pod that is not desired is waited for")
	}
	for _, test := range []struct{ notDesired, removed, want bool }{
		{}, {notDesired: true, want: true}, {removed: true, want: true},
	} {
		a.queue = planQueue{}
		p.NoLongerDesired, p.FullyRemoved, p.Stage = test.notDesired, test.removed, pod.Terminating
		a.noteShutdownProgress(p)
		if isQueued := a.queue.isQueued[shutdown.Owner]; isQueued != test.want {
			t.Errorf("%+v: the shutdown is looked at %t", test, isQueued)
		}
	}
}

// A pod that had ended before the shutdown, but whose volumes are still mounted, holds its group: a
// pod of a later group may provide them.
func TestShutdownWaitsForVolumesOfPodsThatHadEnded(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"))
	p := n.agent.state.Pods["u1"]
	for _, unmounted := range []bool{false, true} {
		p.Stage, p.Storage.Unmounted = pod.Terminated, unmounted
		running, ended := n.agent.endGroup(n.agent.shutdownGroup(p), time.Second)
		if (len(ended) == 1) != unmounted || len(running)+len(ended) != 1 {
			t.Errorf("unmounted %t: %q are waited for, %q have ended", unmounted, running, ended)
		}
	}
}

// A pod that is bound while the machine shuts down fails, since it could be run on another node.
func TestPodBoundDuringShutdownFails(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("a", "u1"))
	n.failingCalls = map[string]bool{"StopContainer": true}
	n.shutDown()
	n.apiServer.put(apiPodNamed("b", "u2"))
	n.event(world.Event{})
	for what, got := range map[string]v1.PodStatus{"written": n.apiServer.objects["default/b"].Status,
		"served": n.servedStatus("b")} {
		if got.Phase != v1.PodFailed || got.Reason != "NodeShutdown" ||
			got.Message != "Pod was rejected: Pod was rejected as the node is shutting down." {
			t.Errorf("%s: %s, %s, %q", what, got.Phase, got.Reason, got.Message)
		}
	}
}

func (n *fakeNode) servedStatus(name string) v1.PodStatus {
	for _, p := range n.agent.listServedPods() {
		if p.Name == name {
			return p.Status
		}
	}
	return v1.PodStatus{}
}

// A pod that ends for another reason has no longer than its group once that is to end.
func TestShutdownHastensPodsThatEnd(t *testing.T) {
	slow, hour := apiPodNamed("a", "u1"), int64(3600)
	slow.Spec.TerminationGracePeriodSeconds = &hour
	n := bootWithPods(nil, slow)
	n.failingCalls = map[string]bool{"StopContainer": true}
	p := n.agent.state.Pods["u1"]
	p.Preempt(n.now)
	n.agent.enqueuePod("u1")
	n.shutDown()
	end := &p.Termination
	if by, want := end.Since.Add(end.Grace), n.now.Add(20*time.Second); !by.Equal(want) {
		t.Errorf("it ends by %v, want %v", by, want)
	}
}
