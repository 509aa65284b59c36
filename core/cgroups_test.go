package core

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

func (n *node) listCgroups(parent string) *world.CgroupsListed {
	listed := &world.CgroupsListed{}
	for _, cgroup := range slices.Sorted(maps.Keys(n.cgroups)) {
		if path.Dir(cgroup) == parent {
			listed.Names = append(listed.Names, path.Base(cgroup))
		}
	}
	return listed
}

func (n *node) cgroupPaths() string {
	return strings.Join(slices.Sorted(maps.Keys(n.cgroups)), " ")
}

const limited = `{apiVersion: v1, kind: Pod, metadata: {name: web, uid: u-1}, spec: {containers: [
  {name: web, image: i, resources: {requests: {cpu: 500m}, limits: {memory: 64Mi}}}]}}`

func TestTheCgroupOfAPod(t *testing.T) {
	n := boot(map[string]string{"web.yaml": limited})
	n.pass(5 * time.Second)
	want := world.SetCgroup{Path: "kubepods/burstable/podu-1", CPUShares: 512,
		MemoryBytes: 64 << 20}
	if got := n.cgroups[want.Path]; got != want {
		t.Fatalf("made %+v, want %+v", n.cgroups, want)
	}
	delete(n.cgroups, want.Path)
	n.restart()
	n.pass(5 * time.Second)
	if got := n.cgroups[want.Path]; got != want {
		t.Errorf("after a restart there is %+v, want %+v again", n.cgroups, want)
	}
	n.manifests = nil
	n.pass(time.Minute)
	if len(n.cgroups) > 0 {
		t.Errorf("left: %s", n.cgroupPaths())
	}
}

// Orphans go, those of known pods and what is no pod's stay. Systemd cannot tell a dash from an
// underscore.
func TestOrphanedCgroups(t *testing.T) {
	for _, name := range []string{"u-1", "u_1"} {
		n := boot(map[string]string{"web.yaml": strings.Replace(limited, "u-1", name, 1)})
		n.systemd = true
		n.restart()
		for _, path := range []string{"kubepods/podgone", "kubepods/burstable/podu-1",
			"kubepods/besteffort/podgone", "kubepods/burstable/pod", "kubepods/burstable/x"} {
			n.cgroups[path] = world.SetCgroup{Path: path}
		}
		n.pass(2 * time.Minute)
		got := strings.ReplaceAll(n.cgroupPaths(), " kubepods/burstable/podu_1", "")
		want := "kubepods/burstable/pod kubepods/burstable/podu-1 kubepods/burstable/x"
		if got != want {
			t.Errorf("uid %s: left are %q, want %q", name, got, want)
		}
	}
}

// The cgroup of a pod that waits to be taken is no orphan: an earlier agent may have taken it, and
// asked for a sandbox that is still to come.
func TestCgroupOfAPodThatWaits(t *testing.T) {
	n := waiting("u-1")
	const path = "kubepods/besteffort/podu-1"
	n.cgroups[path] = world.SetCgroup{Path: path}
	n.restart()
	n.pass(2 * time.Minute)
	if got := n.cgroupPaths(); got != path {
		t.Errorf("while it waits there are %q", got)
	}
	n.server.hides = ""
	n.restart()
	n.pass(2 * time.Minute)
	if got := n.cgroupPaths(); got != "" {
		t.Errorf("after it was rejected there are %q", got)
	}
}

func TestIDsAreDistinctAndOutliveTheAgent(t *testing.T) {
	pod := func(name string) string {
		return strings.Replace(podNamed(name), "spec: {", "spec: {hostUsers: false, ", 1)
	}
	n := boot(map[string]string{"a.yaml": pod("a"), "b.yaml": pod("b")})
	n.pass(5 * time.Second)
	if len(n.sandboxes) != 0 {
		t.Fatal("a user namespace was asked for that the runtime does not have")
	}
	n.event(world.Event{Body: &world.PodsRequest{}})
	if got := n.pods[0].Status.ContainerStatuses[0].State.Waiting; got == nil ||
		got.Message != "runtime handlers are not set" {
		t.Errorf("waits with %+v", got)
	}
	n.status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{
		Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}}
	n.pass(time.Minute)
	if got := n.ids(); got != "131072+65536 65536+65536" {
		t.Fatalf("ranges %q", got)
	}
	before := len(n.calls)
	n.restart()
	n.pass(5 * time.Second)
	n.manifests["c.yaml"] = pod("c")
	n.pass(time.Minute)
	if got := n.ids(); got != "131072+65536 196608+65536 65536+65536" {
		t.Errorf("ranges %q after a restart", got)
	}
	if got := strings.Join(n.calls[before:], ", "); got != "run sandbox, create web, start web" {
		t.Errorf("a restart and one more pod led to %q", got)
	}
}

// ids are the ranges of the sandboxes, sorted as text.
func (n *node) ids() string {
	var ids []string
	for _, s := range n.sandboxes {
		ids = append(ids, s.Annotations["seedlet.dev/userns"])
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
