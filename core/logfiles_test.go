package core

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/core/logs"
)

// All running containers are looked at, pod by pod, and only those.
func TestNextLog(t *testing.T) {
	two := `{apiVersion: v1, kind: Pod, metadata: {name: two, uid: b}, spec: {
		initContainers: [{name: setup, image: i}],
		containers: [{name: w, image: i}, {name: x, image: i}]}}`
	one := `{apiVersion: v1, kind: Pod, metadata: {name: one, uid: a}, spec: {
		containers: [{name: z, image: i}]}}`
	n := boot(map[string]string{"two.yaml": two, "one.yaml": one})
	n.pass(10 * time.Second)
	var paths []string
	running := writers{n.agent}
	for at := (logs.Cursor{}); ; {
		target, ok := running.NextLog(at)
		if !ok {
			break
		}
		if !running.Writes(target) {
			t.Errorf("%s is a running container's, but not written to", target.Path)
		}
		at = target.Cursor
		paths = append(paths, target.Path)
	}
	want := []string{"/var/log/pods/default_one-n1_a/z/0.log",
		"/var/log/pods/default_two-n1_b/w/0.log", "/var/log/pods/default_two-n1_b/x/0.log"}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Error(diff)
	}
	if running.Writes(logs.Target{Cursor: logs.Cursor{UID: "a"}, ID: "gone"}) {
		t.Error("a container that is not there writes")
	}
}

// Nothing is done to logs before all sources and the runtime have been seen.
func TestLogsWait(t *testing.T) {
	n := boot(nil)
	n.agent.state.Relist.AsOf = time.Time{}
	n.agent.out.Begin(&n.agent.state.Ops, n.now)
	before := n.agent.state.Ops.Last
	n.agent.planLogs(logs.Owner)
	n.agent.planLogs(logs.LinksOwner)
	if began := n.agent.state.Ops.Last - before; began != 0 {
		t.Errorf("%d operations begun", began)
	}
}

// A link is kept if its container has a record and it leads somewhere, or its log is rotated.
func TestKeepsLink(t *testing.T) {
	n := boot(map[string]string{"web.yaml": web})
	n.pass(10 * time.Second)
	uid := n.agent.uids[0]
	for i := range n.agent.state.Pods[uid].Containers {
		c := &n.agent.state.Pods[uid].Containers[i]
		for _, dangling := range []bool{false, true} {
			want := c.Name == "web" || !dangling // setup has exited
			if got := n.agent.keepsLink(logs.Link{UID: uid, ID: c.ID, Dangling: dangling}); got != want {
				t.Errorf("%s, dangling %t: kept %t, want %t", c.Name, dangling, got, want)
			}
		}
	}
	if n.agent.keepsLink(logs.Link{UID: uid, ID: "gone"}) {
		t.Error("that of a container of a former pod of this UID is kept")
	}
	if n.agent.keepsLink(logs.Link{UID: "gone", ID: "gone", Dangling: true}) ||
		!n.agent.keepsLink(logs.Link{UID: "gone", ID: "gone"}) {
		t.Error("of a pod that is not known, only what leads nowhere goes")
	}
}
