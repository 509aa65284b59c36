package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/core/logs"
)

// NextLog returns all running containers, pod by pod, and no others.
func TestNextLog(t *testing.T) {
	two := `{apiVersion: v1, kind: Pod, metadata: {name: two, uid: b}, spec: {
		initContainers: [{name: setup, image: i}],
		containers: [{name: w, image: i}, {name: x, image: i}]}}`
	one := `{apiVersion: v1, kind: Pod, metadata: {name: one, uid: a}, spec: {
		containers: [{name: z, image: i}]}}`
	n := bootNode(map[string]string{"two.yaml": two, "one.yaml": one})
	n.advance(10 * time.Second)
	var paths []string
	running := runningContainers{n.agent}
	for at := (logs.Cursor{}); ; {
		target, ok := running.NextLog(at)
		if !ok {
			break
		}
		if !running.IsRunning(target) {
			t.Errorf("%s belongs to a running container, but has no writer", target.Path)
		}
		at = target.Cursor
		paths = append(paths, target.Path)
	}
	want := []string{"/var/log/pods/default_one-n1_a/z/0.log",
		"/var/log/pods/default_two-n1_b/w/0.log", "/var/log/pods/default_two-n1_b/x/0.log"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
	if running.IsRunning(logs.Target{Cursor: logs.Cursor{UID: "a"}, ID: "gone"}) {
		t.Error("a container that does not exist is a writer")
	}
}

// Nothing is done to logs before all sources and the runtime have been listed.
func TestLogsWaitForACompleteView(t *testing.T) {
	n := bootNode(nil)
	n.agent.state.Relist.AsOf = time.Time{}
	n.agent.effects.Reset(&n.agent.state.Ops, n.now)
	before := n.agent.state.Ops.LastID
	n.agent.planLogs(logs.Owner)
	n.agent.planLogs(logs.LinksOwner)
	if issued := n.agent.state.Ops.LastID - before; issued != 0 {
		t.Errorf("%d operations issued", issued)
	}
}

// A link is kept if its container has a record and its log exists, or its log is being rotated.
func TestNeedsLink(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": web})
	n.advance(10 * time.Second)
	uid := n.agent.podUIDs[0]
	for i := range n.agent.state.Pods[uid].Containers {
		c := &n.agent.state.Pods[uid].Containers[i]
		for _, dangling := range []bool{false, true} {
			want := c.Name == "web" || !dangling // setup has exited
			link := logs.Link{Name: logs.LinkName("web-n1", "default", c.Name, c.ID), UID: uid,
				Container: c.Name, Dangling: dangling}
			if got := n.agent.needsLink(link); got != want {
				t.Errorf("%s, dangling %t: kept %t, want %t", c.Name, dangling, got, want)
			}
		}
	}
	gone := logs.Link{Name: logs.LinkName("web-n1", "default", "web", "gone"), UID: uid,
		Container: "web"}
	if n.agent.needsLink(gone) {
		t.Error("the link of a container of an earlier pod with this UID is kept")
	}
	gone.UID = "gone"
	isKept := n.agent.needsLink(gone)
	gone.Dangling = true
	if !isKept || n.agent.needsLink(gone) {
		t.Error("for an unknown pod, only a dangling link is removed")
	}
}
