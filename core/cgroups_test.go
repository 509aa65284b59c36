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

func (n *fakeNode) listCgroups(parent string) *world.CgroupsListed {
	listed := &world.CgroupsListed{}
	for _, cgroup := range slices.Sorted(maps.Keys(n.cgroups)) {
		if path.Dir(cgroup) == parent {
			listed.Names = append(listed.Names, path.Base(cgroup))
		}
	}
	return listed
}

func (n *fakeNode) cgroupPaths() string {
	return strings.Join(slices.Sorted(maps.Keys(n.cgroups)), " ")
}

const podWithLimits = `{apiVersion: v1, kind: Pod, metadata: {name: web, uid: u-1}, spec: {
  containers: [{name: web, image: i, resources: {requests: {cpu: 500m}, limits: {memory: 64Mi}}}]}}`

func TestPodCgroup(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": podWithLimits})
	n.advance(5 * time.Second)
	want := world.SetCgroup{Path: "kubepods/burstable/podu-1", CPUShares: 512,
		MemoryBytes: 64 << 20}
	if got := n.cgroups[want.Path]; got != want {
		t.Fatalf("made %+v, want %+v", n.cgroups, want)
	}
	delete(n.cgroups, want.Path)
	n.restart()
	n.advance(5 * time.Second)
	if got := n.cgroups[want.Path]; got != want {
		t.Errorf("after a restart there is %+v, want %+v again", n.cgroups, want)
	}
	n.manifests = nil
	n.advance(time.Minute)
	if len(n.cgroups) > 0 {
		t.Errorf("left: %s", n.cgroupPaths())
	}
}

// Orphaned cgroups are removed; cgroups of known pods and other cgroups stay. With systemd a dash
// and an underscore are the same.
func TestOrphanedCgroups(t *testing.T) {
	for _, name := range []string{"u-1", "u_1"} {
		n := bootNode(map[string]string{"web.yaml": strings.Replace(podWithLimits, "u-1", name, 1)})
		n.systemd = true
		n.restart()
		for _, path := range []string{"kubepods/podgone", "kubepods/burstable/podu-1",
			"kubepods/besteffort/podgone", "kubepods/burstable/pod", "kubepods/burstable/x"} {
			n.cgroups[path] = world.SetCgroup{Path: path}
		}
		n.advance(2 * time.Minute)
		got := strings.ReplaceAll(n.cgroupPaths(), " kubepods/burstable/podu_1", "")
		want := "kubepods/burstable/pod kubepods/burstable/podu-1 kubepods/burstable/x"
		if got != want {
			t.Errorf("uid %s: left are %q, want %q", name, got, want)
		}
	}
}

// The cgroup of a pod that awaits admission is not orphaned: an earlier agent may have admitted it
// and requested a sandbox that is still to come.
func TestCgroupOfPodAwaitingAdmission(t *testing.T) {
	n := nodeWithoutNodeObject("u-1")
	const path = "kubepods/besteffort/podu-1"
	n.cgroups[path] = world.SetCgroup{Path: path}
	n.restart()
	n.advance(2 * time.Minute)
	if got := n.cgroupPaths(); got != path {
		t.Errorf("while it waits there are %q", got)
	}
	n.apiServer.silentWatch = ""
	n.restart()
	n.advance(2 * time.Minute)
	if got := n.cgroupPaths(); got != "" {
		t.Errorf("after it was rejected there are %q", got)
	}
}

func TestIDRangesAreDistinctAndDurable(t *testing.T) {
	pod := func(name string) string {
		return strings.Replace(podNamed(name), "spec: {", "spec: {hostUsers: false, ", 1)
	}
	n := bootNode(map[string]string{"a.yaml": pod("a"), "b.yaml": pod("b")})
	n.advance(5 * time.Second)
	if len(n.sandboxes) != 0 {
		t.Fatal("a user namespace was requested that the runtime does not support")
	}
	n.event(world.Event{Body: &world.PodsRequest{}})
	if got := n.pods[0].Status.ContainerStatuses[0].State.Waiting; got == nil ||
		got.Message != "runtime handlers are not set" {
		t.Errorf("waits with %+v", got)
	}
	n.status.RuntimeHandlers = []*runtimeapi.RuntimeHandler{{
		Features: &runtimeapi.RuntimeHandlerFeatures{UserNamespaces: true}}}
	n.advance(time.Minute)
	if got := n.idRanges(); got != "131072+65536 65536+65536" {
		t.Fatalf("ranges %q", got)
	}
	before := len(n.calls)
	n.restart()
	n.advance(5 * time.Second)
	n.manifests["c.yaml"] = pod("c")
	n.advance(time.Minute)
	if got := n.idRanges(); got != "131072+65536 196608+65536 65536+65536" {
		t.Errorf("ranges %q after a restart", got)
	}
	if got := strings.Join(n.calls[before:], ", "); got != "run sandbox, create web, start web" {
		t.Errorf("a restart and one more pod led to %q", got)
	}
}

// idRanges returns the ID ranges of the sandboxes, sorted as text.
func (n *fakeNode) idRanges() string {
	var ids []string
	for _, s := range n.sandboxes {
		ids = append(ids, s.Annotations["seedlet.dev/userns"])
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
