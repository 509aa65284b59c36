package core

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

const longNameUID = "7e2cbd1f-8a35-4d17-9a1c-0d1a5c9e3b4f"

// refuseLongNames answers as a file system does on which no name has more than 255 bytes. The logs
// of all runs are empty.
func refuseLongNames(n *fakeNode) {
	n.answer = func(effect any) any {
		var path string
		switch e := effect.(type) {
		case *world.MakeDir:
			path = e.Path
		case *world.MakeLink:
			path = e.Path
		case *world.ListDir:
			if strings.HasPrefix(e.Path, "/var/log/pods/") {
				return &world.DirListed{}
			}
		}
		for _, name := range strings.Split(path, "/") {
			if len(name) > world.NameBytesMax {
				return world.Errorf(world.KindInvalid, world.CallName(effect), "file name too long")
			}
		}
		return nil
	}
}

// A pod whose names leave no room for the ID of a container in the name of its link is run again
// and again without leftovers, and its running container has the link.
func TestPodWithLongName(t *testing.T) {
	name := strings.Repeat("p", 200)
	n := bootWithPods(nil)
	refuseLongNames(n)
	long := apiPodNamed(name, longNameUID)
	long.Spec.Containers[0].Name = strings.Repeat("c", 63)
	n.apiServer.put(long)
	n.advance(10 * time.Second)
	for range 6 {
		for _, c := range n.containers {
			c.State = runtimeapi.ContainerState_CONTAINER_EXITED
		}
		n.advance(10 * time.Minute)
	}
	if len(n.containers) > 3 {
		t.Errorf("%d containers after 6 restarts, want the newest ones", len(n.containers))
	}
	for _, c := range n.agent.state.Pods[longNameUID].Containers {
		if !c.Link.Created && c.State == "Running" {
			t.Errorf("container %s has no link: %+v", c.ID, c.Link)
		}
	}
	n.markDeleted("default/"+name, 5)
	n.advance(10 * time.Minute)
	if len(n.containers)+len(n.sandboxes)+len(n.agent.state.Pods)+len(n.apiServer.objects) > 0 {
		t.Errorf("left: %v, %v, %v", n.containers, n.sandboxes, n.apiServer.objects)
	}
}

// A pod that cannot have a log directory gets no sandbox, says why, and can be deleted.
func TestPodWithoutLogDirectory(t *testing.T) {
	name := strings.Repeat("p", 230)
	n := bootWithPods(nil)
	refuseLongNames(n)
	n.apiServer.put(apiPodNamed(name, longNameUID))
	n.advance(time.Minute)
	dir := "/var/log/pods/default_" + name + "_" + longNameUID
	status := n.apiServer.objects["default/"+name].Status
	if status.Phase != v1.PodPending || len(status.ContainerStatuses) != 1 ||
		status.ContainerStatuses[0].State.Waiting == nil ||
		!strings.Contains(status.ContainerStatuses[0].State.Waiting.Message, dir) {
		t.Errorf("status %+v, want a waiting container with %s in its message", status, dir)
	}
	if strings.Contains(strings.Join(n.calls, " "), "sandbox") || len(n.sandboxes) > 0 {
		t.Errorf("calls %q, want no sandbox", n.calls)
	}
	n.markDeleted("default/"+name, 5)
	n.advance(10 * time.Minute)
	if len(n.sandboxes)+len(n.agent.state.Pods)+len(n.apiServer.objects) > 0 {
		t.Errorf("left: %v, %v, %v", n.sandboxes, n.agent.state.Pods, n.apiServer.objects)
	}
}

// The directory of a pod is removed even if that of its logs cannot be. Its sandbox stays, so that
// another agent knows that something is left to remove.
func TestLogsThatCannotBeRemoved(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	broken := true
	var removed []string
	n.answer = func(effect any) any {
		e, ok := effect.(*world.RemoveTree)
		if ok && broken && strings.HasPrefix(e.Path, "/var/log/pods/") {
			return world.Errorf(world.KindInternal, "RemoveTree", "input/output error")
		}
		if ok {
			removed = append(removed, e.Path)
		}
		return nil
	}
	n.markDeleted("default/web", 5)
	n.advance(5 * time.Minute)
	if !strings.Contains(strings.Join(removed, " "), "/var/lib/kubelet/pods/u1") {
		t.Errorf("removed %q, want the directory of the pod", removed)
	}
	if len(n.sandboxes) != 1 || len(n.containers) > 0 {
		t.Errorf("left: %v and %v, want one sandbox", n.sandboxes, n.containers)
	}
	broken = false
	n.advance(5 * time.Minute)
	if len(n.sandboxes)+len(n.agent.state.Pods)+len(n.apiServer.objects) > 0 {
		t.Errorf("left: %v, %v, %v", n.sandboxes, n.agent.state.Pods, n.apiServer.objects)
	}
}
