package core

import (
	"fmt"
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

// cgroupPaths returns the cgroups in the tiers.
func (n *fakeNode) cgroupPaths() string {
	paths := slices.Sorted(maps.Keys(n.cgroups))
	return strings.Join(slices.DeleteFunc(paths, func(path string) bool {
		return slices.Contains(tiers, path)
	}), " ")
}

var tiers = []string{"kubepods", "kubepods/burstable", "kubepods/besteffort"}

const podWithLimits = `{apiVersion: v1, kind: Pod, metadata: {name: web, uid: u-1}, spec: {
  containers: [{name: web, image: i, resources: {requests: {cpu: 500m}, limits: {memory: 64Mi}}}]}}`

func TestPodCgroup(t *testing.T) {
	n := bootNode(map[string]string{"web.yaml": podWithLimits})
	n.advance(5 * time.Second)
	want := world.SetCgroup{Path: "kubepods/burstable/podu-1", CPUShares: 512,
		MemoryBytes: 64 << 20}
	if got := n.cgroups[want.Path]; !got.Equal(&want) {
		t.Fatalf("made %+v, want %+v", n.cgroups, want)
	}
	delete(n.cgroups, want.Path)
	n.restart()
	n.advance(5 * time.Second)
	want.NotBelowUsage = true // its processes run
	if got := n.cgroups[want.Path]; !got.Equal(&want) {
		t.Errorf("after a restart there is %+v, want %+v again", n.cgroups, want)
	}
	n.manifests = nil
	n.advance(time.Minute)
	if left := n.cgroupPaths(); left != "" {
		t.Errorf("left: %s", left)
	}
}

// tierShares returns the CPU shares of the tiers.
func (n *fakeNode) tierShares() string {
	var shares []string
	for _, path := range tiers {
		shares = append(shares, fmt.Sprintf("%s %d", path, n.cgroups[path].CPUShares))
	}
	return strings.Join(shares, ", ")
}

// The cgroups above those of the pods exist from the start. A change of a pod leads to one write of
// its tier, however many pods there are, and a restart to one of each.
func TestTiers(t *testing.T) {
	manifests := map[string]string{}
	for i := range 60 {
		manifests[fmt.Sprintf("%d.yaml", i)] = strings.NewReplacer("web, uid: u-1",
			fmt.Sprintf("p%d, uid: p-%d", i, i)).Replace(podWithLimits)
	}
	n := newNode(nil)
	n.machine.CPUs, n.machine.MemoryBytes = 64, 8<<30
	n.restart()
	n.advance(5 * time.Second)
	const none = "kubepods 65536, kubepods/burstable 2, kubepods/besteffort 2"
	if got := n.tierShares(); got != none {
		t.Errorf("without pods: %s", got)
	}
	n.manifests = manifests
	n.podsMax = 100
	n.restart()
	n.advance(30 * time.Second)
	const all = "kubepods 65536, kubepods/burstable 30720, kubepods/besteffort 2"
	if got := n.tierShares(); got != all || n.cgroups["kubepods"].MemoryBytes != 8<<30 {
		t.Errorf("with 60 pods: %s, %+v", got, n.cgroups["kubepods"])
	}
	writes := func(change func()) string {
		n.cgroupWrites = nil
		change()
		n.advance(time.Minute)
		return strings.Join(n.cgroupWrites, " ")
	}
	if got := writes(func() { manifests["one"] = podWithLimits }); got !=
		"kubepods/burstable kubepods/burstable/podu-1" {
		t.Errorf("one more pod: written are %s", got)
	}
	if got := writes(func() { delete(manifests, "one") }); got != "kubepods/burstable" ||
		n.tierShares() != all {
		t.Errorf("one pod less: written are %s; %s", got, n.tierShares())
	}
	if got := writes(n.restart); strings.Count(got, "kubepods/burstable ") > 1 ||
		n.tierShares() != all {
		t.Errorf("a restart: written are %s; %s", got, n.tierShares())
	}
	if got := writes(func() {}); got != "" {
		t.Errorf("nothing has changed: written are %s", got)
	}
}

// A pod starts although its tier cannot be set, and the tier is set once that is possible.
func TestTierThatCannotBeSet(t *testing.T) {
	n := newNode(map[string]string{"web.yaml": podWithLimits})
	fails := true
	n.answer = func(effect any) any {
		if set, isSet := effect.(*world.SetCgroup); isSet && fails && slices.Contains(tiers, set.Path) {
			return world.Errorf(world.KindInternal, "SetCgroup", "no space")
		}
		return nil
	}
	n.restart()
	n.advance(10 * time.Second)
	if _, exists := n.cgroups["kubepods/burstable/podu-1"]; !exists {
		t.Errorf("the pod waits: %v", n.calls)
	}
	fails = false
	n.advance(time.Minute)
	if got := n.tierShares(); got != "kubepods 2048, kubepods/burstable 512, kubepods/besteffort 2" {
		t.Errorf("after the failure: %s", got)
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
