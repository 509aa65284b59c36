package core

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// foreignID returns answers of a runtime that gives a second pod the IDs of what a first pod runs.
func foreignID(n *fakeNode, call string) func(any) any {
	sandbox := slices.Collect(maps.Keys(n.sandboxes))[0]
	container := slices.Collect(maps.Keys(n.containers))[0]
	return func(effect any) any {
		switch {
		case world.CallName(effect) != call:
			return nil
		case call == "RunPodSandbox":
			return &runtimeapi.RunPodSandboxResponse{PodSandboxId: sandbox}
		}
		return &runtimeapi.CreateContainerResponse{ContainerId: container}
	}
}

// A pod is not given what another pod runs, whatever the runtime answers, and no agent that is
// restored or restarted gives it either.
func TestForeignIDIsNotBelieved(t *testing.T) {
	for _, call := range []string{"RunPodSandbox", "CreateContainer"} {
		for _, aside := range []bool{false, true} {
			n := bootWithPods(nil, apiPodNamed("web", "u1"))
			n.advance(5 * time.Second)
			if aside {
				n.setAside = []world.PodSetAside{{UID: "u1", Panics: 1, Remaining: time.Hour}}
				n.restart()
				n.advance(5 * time.Second)
			}
			n.restore(t)
			lie := foreignID(n, call)
			n.takeCalls()
			n.answer = lie
			n.apiServer.put(apiPodNamed("thief", "u2"))
			n.event(world.Event{})
			if calls := n.takeCalls(); strings.Contains(calls, "start") {
				t.Errorf("%s, aside %v: %s", call, aside, calls)
			}
			if p := n.agent.state.Pods["u2"]; p.StaleSince.IsZero() && p.ProblemOf("c") == nil &&
				p.ProblemOf("") == nil {
				t.Errorf("%s, aside %v: the answer is no failure", call, aside)
			}
			n.markDeleted("default/thief", 1)
			n.advance(500 * time.Millisecond)
			n.answer = nil
			n.advance(time.Minute)
			if calls := n.takeCalls(); strings.Contains(calls, "stop c") || len(n.containers) != 1 {
				t.Errorf("%s, aside %v: %s", call, aside, calls)
			}
		}
	}
}

// The ID of another object of the pod itself is not believed either: the container is created
// again.
func TestOwnIDIsNotBelievedTwice(t *testing.T) {
	n := newNode(nil)
	n.apiServer = newServer()
	p := apiPodNamed("web", "u1")
	p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: "d", Image: "i"})
	n.apiServer.put(p)
	n.answer = func(effect any) any {
		e, ok := effect.(*runtimeapi.CreateContainerRequest)
		if !ok || e.Config.Metadata.Name != "d" || len(n.containers) == 0 {
			return nil
		}
		return &runtimeapi.CreateContainerResponse{
			ContainerId: slices.Collect(maps.Keys(n.containers))[0]}
	}
	n.restart()
	n.advance(5 * time.Second)
	message := n.waitingMessage("u1")
	if !strings.Contains(message, "the ID of another object") {
		t.Errorf("the container waits with %q", message)
	}
	n.answer = nil
	n.advance(time.Minute)
	if len(n.containers) != 2 || n.phases()["web"] != v1.PodRunning {
		t.Errorf("%d containers, phases %v", len(n.containers), n.phases())
	}
}
