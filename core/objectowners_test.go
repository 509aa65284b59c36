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

// The index has what was created since the last relist, and nothing that is gone.
func TestIndexOfObjects(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	n.advance(5 * time.Second)
	relisted := n.agent.state.Relist.AsOf
	n.apiServer.put(apiPodNamed("new", "u2"))
	for range 20 {
		n.event(world.Event{})
	}
	created := n.agent.state.Pods["u2"]
	if len(created.Containers) != 1 || !n.agent.state.Relist.AsOf.Equal(relisted) {
		t.Fatalf("containers %+v, a relist at %v", created.Containers, n.agent.state.Relist.AsOf)
	}
	sandbox, container := created.Sandboxes[0].ID, created.Containers[0].ID
	for _, id := range []string{sandbox, container} {
		if owner := n.agent.objectOwner(id); owner != "u2" {
			t.Errorf("before a relist the owner of %s is %q", id, owner)
		}
	}
	containers := created.Containers
	created.Containers = nil
	if owner := n.agent.objectOwner(container); owner != "" {
		t.Errorf("the owner of a container that was removed is %q", owner)
	}
	created.Containers = containers
	n.markDeleted("default/new", 1)
	if n.advance(time.Minute); len(n.agent.objectOwners) != 2 {
		t.Errorf("the index has %v, want what one pod has", n.agent.objectOwners)
	}
}
