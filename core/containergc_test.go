package core

import (
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
)

// What the collection of containers needs and what keeps failing is an event of the Node in each
// minute, and none once it succeeds.
func TestEventsOfContainerGC(t *testing.T) {
	for _, c := range []struct{ call, message string }{
		{"RemoveContainer", "failed to remove container \""},
		{"RemovePodSandbox", "failed to remove sandbox \""},
		{"ListContainers", "ListContainers: Internal: broken"},
		{"ListPodSandbox", "ListPodSandbox: Internal: broken"},
	} {
		n := bootNode(map[string]string{"web.yaml": web})
		n.advance(5 * time.Second)
		n.failingCalls = map[string]bool{c.call: true}
		delete(n.manifests, "web.yaml")
		n.takeEvents()
		n.advance(5 * time.Minute)
		events := n.takeEvents()
		want := "Warning ContainerGCFailed n1: " + c.message
		if count := strings.Count(events, "ContainerGCFailed n1: "); count != 4 ||
			!strings.Contains(events, "Warning ContainerGCFailed n1: ") ||
			!strings.Contains(events, c.message) {
			t.Errorf("%s fails for five minutes: %d events in %q, want four with %q", c.call, count,
				events, want)
		}
		n.failingCalls = nil
		n.advance(2 * time.Minute)
		n.takeEvents()
		n.advance(5 * time.Minute)
		if events := n.takeEvents(); strings.Contains(events, "ContainerGCFailed") {
			t.Errorf("%s succeeds again: %s", c.call, events)
		}
	}
}

// A directory of logs that is left of a pod and cannot be removed is an event of the Node.
func TestEventOfLogsThatAreLeft(t *testing.T) {
	n := bootNode(nil)
	n.logs["/var/log/pods"] = []world.DirEntry{{Name: "default_gone_u9", Directory: true}}
	n.failingCalls = map[string]bool{"RemoveTree": true}
	n.agent.state.Housekeeping.NextAt = n.now.Add(90 * time.Second) // between two reports
	n.advance(5 * time.Minute)
	want := "Warning ContainerGCFailed n1: failed to remove pod logs directory " +
		"\"/var/log/pods/default_gone_u9\": broken\n"
	if events := n.takeEvents(); !strings.Contains(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
}

// The containers of a pod that was preempted are removed, however often that fails, while its
// object stays.
func TestContainersOfPreemptedPod(t *testing.T) {
	n := bootWithPods(nil, withRequests(apiPodNamed("a", "u1"), "1500m", 0))
	n.advance(5 * time.Second)
	n.failingCalls = map[string]bool{"RemoveContainer": true}
	n.apiServer.put(withRequests(apiPodNamed("c", "u3"), "1", 2_000_000_000))
	n.advance(5 * time.Minute)
	if events := n.takeEvents(); strings.Count(events, "Warning ContainerGCFailed n1: ") < 3 {
		t.Errorf("while the removal fails: %s", events)
	}
	if p := n.agent.state.Pods["u1"]; p == nil || len(p.Containers) == 0 {
		t.Fatal("the pod or its containers are gone")
	}
	n.failingCalls = nil
	n.advance(time.Minute)
	if p := n.agent.state.Pods["u1"]; p == nil || len(p.Containers) != 0 {
		t.Error("its containers are left")
	}
}
