package csi

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// A driver is asked for its node. It is registered once the CSINode and the Node have the answer,
// and these lose it when the driver goes.
func TestRegistration(t *testing.T) {
	n := newNode(t).run()
	n.expect("create CSINode")
	n.register()
	n.expect("info", "update CSINode")
	drivers := n.csiNode.Spec.Drivers
	if len(drivers) != 1 || drivers[0].Name != driverName || drivers[0].NodeID != "id-1" ||
		!slices.Equal(drivers[0].TopologyKeys, []string{"zone"}) || *drivers[0].Allocatable.Count != 9 {
		t.Errorf("got %+v", drivers)
	}
	owner := n.csiNode.OwnerReferences[0]
	if owner.Kind != "Node" || owner.UID != "node-uid" ||
		!strings.Contains(n.csiNode.Annotations[v1.MigratedPluginsAnnotationKey], "aws-ebs") {
		t.Errorf("got %+v", n.csiNode.ObjectMeta)
	}
	if id := n.object.Annotations[nodeIDAnnotation]; id != `{"d.example":"id-1"}` ||
		n.object.Labels["zone"] != "a" {
		t.Errorf("got %v %v", id, n.object.Labels)
	}
	n.observe()
	n.expect("update CSINode")
	if len(n.csiNode.Spec.Drivers) != 0 || n.object.Annotations[nodeIDAnnotation] != "" ||
		len(n.node.Drivers) != 0 {
		t.Errorf("left: %+v %v", n.csiNode.Spec, n.object.Annotations)
	}
}

// An agent that restarts writes nothing that is there already.
func TestRegistrationAfterRestart(t *testing.T) {
	n := newNode(t).run().register()
	n.restart().register()
	n.expect("info")
}

// A driver is not registered if its topology contradicts the Node, its answer is wrong or fails, or
// the API server refuses its entry.
func TestRefusedRegistration(t *testing.T) {
	p := Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1"}
	for want, prepare := range map[string]func(*node){
		`driver reported "zone":"a" but existing label is "zone":"b"`: func(n *node) {
			n.object.Labels = map[string]string{"zone": "b"}
		},
		"it is broken": func(n *node) {
			n.fail["GetCSINodeInfo"] = &failure{world.Errorf(world.KindInternal, "", "it is broken"), 1,
				false}
		},
		"the entry of d.example is invalid": func(n *node) {
			n.invalid = map[string]bool{driverName: true}
		},
		"labels are not allowed": func(n *node) {
			n.refuses = map[string]string{driverName: "labels are not allowed"}
		},
	} {
		n := newNode(t).run()
		prepare(n)
		n.observe(p)
		if ready, problem := n.node.Registration(p, n.env()); ready || !strings.Contains(problem, want) {
			t.Errorf("got %v %q, want %q", ready, problem, want)
		}
	}
	for _, info := range []*world.CSINodeInfo{{}, {NodeID: strings.Repeat("x", nodeIDMax+1)},
		{NodeID: "x", Topology: map[string]string{"a b": "c"}}} {
		if checkInfo(info) == "" {
			t.Errorf("%+v is accepted", info)
		}
	}
}

// A write of the CSINode whose outcome is unknown, or that conflicts, is repeated after a read.
func TestCSINodeWriteFails(t *testing.T) {
	for _, f := range []*failure{
		{world.Errorf(world.KindTimeout, "", "late"), 1, true},
		{world.Errorf(world.KindTimeout, "", "late"), 1, false},
		{world.Errorf(world.KindConflict, "", "changed"), 1, false},
	} {
		n := newNode(t).run()
		n.calls = nil
		n.fail["UpdateObject"] = f
		n.observe(Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1"})
		n.wait(time.Second)
		n.observe(Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1"})
		n.expect("info", "update CSINode")
	}
}

// A driver that comes back while the removal of its entry may still take effect is registered once
// that cannot be any more: the removal is made again, as nothing else would change the CSINode.
func TestLateRemovalOfEntry(t *testing.T) {
	n := newNode(t).run().register()
	before := n.csiNode.ResourceVersion
	n.fail["UpdateObject"] = &failure{world.Errorf(world.KindTimeout, "", "late"), 1, false}
	n.observe()
	p := Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "2"}
	n.hold["UpdateObject"] = true
	n.calls = nil
	n.observe(p)
	n.wait(time.Second)
	if ready, _ := n.node.Registration(p, n.env()); ready || n.csiNode.ResourceVersion != before {
		t.Errorf("ready %v with %+v", ready, n.csiNode)
	}
	n.release("UpdateObject")
	n.run()
	n.expect("info", "update CSINode", "update CSINode")
	if ready, problem := n.node.Registration(p, n.env()); !ready ||
		entryIn(n.csiNode, driverName) == nil || n.csiNode.ResourceVersion == before {
		t.Errorf("ready %v %q with %+v", ready, problem, n.csiNode)
	}
}

// An update of the CSINode with unknown outcome stays pending if it is refused when it is made
// again, but not if it is invalid, and ends with any change, such as that of another driver.
func TestPendingEntries(t *testing.T) {
	unknown := world.Errorf(world.KindTimeout, "UpdateObject", "late")
	for _, c := range []struct {
		name      string
		first     *world.Error
		second    *world.Error
		isPending bool
	}{
		{"refused", world.Errorf(world.KindRefused, "UpdateObject", "no"), nil, false},
		{"unknown", unknown, nil, true},
		{"unknown, then refused", unknown, world.Errorf(world.KindRefused, "UpdateObject", "no"), true},
		{"unknown, then throttled", unknown, world.Errorf(world.KindThrottled, "", "slow"), true},
		{"unknown, then invalid", unknown, world.Errorf(world.KindInvalid, "UpdateObject", "no"), false},
		{"unknown, then not understood", unknown, unknown, true},
	} {
		o := &Object{CSINode: &storagev1.CSINode{}, Pending: []EntryWrite{{Driver: "a"}, {Driver: "b"}}}
		for _, err := range []*world.Error{c.first, c.second} {
			if err != nil {
				o.failPending("a", err, t0)
			}
		}
		if o.isPending("a") != c.isPending || !o.isPending("b") {
			t.Errorf("%s: pending %+v", c.name, o.Pending)
		}
	}
	n := newNode(t).run().register()
	n.node.Object.Pending = []EntryWrite{{Version: n.csiNode.ResourceVersion, Driver: "other"},
		{Version: n.csiNode.ResourceVersion, Driver: driverName, Unknown: true}}
	n.calls = nil
	n.observe() // its entry is removed, which is the only update
	n.expect("update CSINode")
	if len(n.node.Object.Pending) > 0 {
		t.Errorf("pending %+v", n.node.Object.Pending)
	}
}

// A CSINode of an earlier Node of the same name is replaced.
func TestCSINodeOfAnotherNode(t *testing.T) {
	n := newNode(t)
	n.csiNode = &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: "n1",
		OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: "n1", UID: "old"}}}}
	n.run()
	n.expect("delete CSINode", "create CSINode")
}

// While a driver is replaced, its volumes are used through the plugin that is registered.
func TestReplacedDriver(t *testing.T) {
	n := newReady(t)
	old := Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1",
		Registered: true}
	next := Plugin{Name: driverName, Endpoint: "/e.sock", Socket: "s2", Registration: "2"}
	n.hold["GetCSINodeInfo"] = true
	n.observe(old, next)
	if s := n.node.session(driverName); s == nil || s.Endpoint != "/d.sock" {
		t.Errorf("got %+v", s)
	}
	n.release("GetCSINodeInfo")
	next.Registered = true
	n.observe(old, next)
	if s := n.node.session(driverName); s == nil || s.Endpoint != "/e.sock" {
		t.Errorf("got %+v", s)
	}
}

// newCounted returns a node whose driver is asked every minute how many volumes the node can have.
func newCounted(t *testing.T) *node {
	n := newNode(t)
	spec, seconds := noAttach(), int64(60)
	spec.NodeAllocatableUpdatePeriodSeconds = &seconds
	n.setDriverObject(spec)
	n.run().register()
	n.calls = nil
	return n
}

// A driver whose CSIDriver says so is asked again how many volumes the node can have.
func TestAllocatableIsUpdated(t *testing.T) {
	n := newCounted(t)
	n.wait(2*time.Minute + time.Second)
	n.expect("info", "info")
}

// others are plugins of three other drivers, that have answered and are to be registered.
var others = []Plugin{
	{Name: "a.example", Endpoint: "/a.sock", Socket: "a", Registration: "a1"},
	{Name: "b.example", Endpoint: "/b.sock", Socket: "b", Registration: "b1"},
	{Name: "c.example", Endpoint: "/c.sock", Socket: "c", Registration: "c1"},
}

// expectRegistration fails unless the plugins that are not named with a problem are ready, and the
// others have it.
func (n *node) expectRegistration(plugins []Plugin, problems map[string]string) {
	n.t.Helper()
	for _, p := range plugins {
		ready, problem := n.node.Registration(p, n.env())
		want := problems[p.Name]
		if ready != (want == "") || !strings.Contains(problem, want) || want == "" && problem != "" {
			n.t.Errorf("%s: ready %v, problem %q, want %q", p.Name, ready, problem, want)
		}
	}
}

// What the API server refuses of one driver, in the Node or in the CSINode, keeps no other driver
// from being registered, whichever is first.
func TestRefusedDriverIsAlone(t *testing.T) {
	for _, p := range others {
		n := newNode(t).run()
		n.refuses = map[string]string{p.Name: "labels are not allowed"}
		n.observe(others...)
		n.expectRegistration(others, map[string]string{p.Name: "labels are not allowed"})
		if entryIn(n.csiNode, p.Name) != nil || nodeIDs(n.object)[p.Name] != "" {
			t.Errorf("the refused driver is known to the cluster: %+v", n.csiNode.Spec)
		}
		n = newNode(t).run()
		n.invalid = map[string]bool{p.Name: true}
		n.observe(others...)
		n.wait(time.Second)
		n.expectRegistration(others, map[string]string{p.Name: "is invalid"})
	}
}

// The CSINode is created without drivers, so that none can be why it is refused. If it is, no
// driver can be registered.
func TestCSINodeIsCreatedWithoutDrivers(t *testing.T) {
	n := newNode(t)
	n.fail["GetObject"] = &failure{world.Errorf(world.KindTimeout, "", "late"), 1, false}
	n.invalid = map[string]bool{"a.example": true}
	n.observe(others...)
	n.calls = nil
	n.wait(time.Second)
	n.expect("create CSINode", "update CSINode", "update CSINode", "update CSINode")
	n.expectRegistration(others, map[string]string{"a.example": "is invalid"})

	n = newNode(t)
	n.fail["GetObject"] = &failure{world.Errorf(world.KindTimeout, "", "late"), 1, false}
	n.fail["CreateObject"] = &failure{world.Errorf(world.KindRefused, "", "not yours"), 1, false}
	n.observe(others...)
	n.wait(time.Second)
	want := map[string]string{}
	for _, p := range others {
		want[p.Name] = "not yours"
	}
	n.expectRegistration(others, want)
}

// Two drivers with one topology key and different values: the first by its name sets the label, and
// the other one is refused.
func TestTopologiesCollide(t *testing.T) {
	for range 20 {
		n := newNode(t).run()
		n.infos = map[string]*world.CSINodeInfo{}
		for i, p := range others {
			n.infos[p.Name] = &world.CSINodeInfo{NodeID: "x",
				Topology: map[string]string{"rack": string(rune('1' + i))}}
		}
		n.observe(others...)
		n.expectRegistration(others,
			map[string]string{"b.example": "collision", "c.example": "collision"})
		if n.object.Labels["rack"] != "1" || len(nodeIDs(n.object)) != 1 {
			t.Fatalf("got %v %v", n.object.Labels, n.object.Annotations)
		}
	}
}

// A driver whose ID of the node, or whose topology, is another one than an earlier agent has
// written gets a new entry: of one nothing but the number of volumes can change.
func TestEntryIsReplaced(t *testing.T) {
	n := newNode(t).run()
	n.register()
	n.restart()
	n.infos = map[string]*world.CSINodeInfo{driverName: {NodeID: "id-2", VolumesMax: 3}}
	n.register()
	n.expect("info", "update CSINode", "update CSINode")
	entry := entryIn(n.csiNode, driverName)
	if entry.NodeID != "id-2" || len(entry.TopologyKeys) != 0 || *entry.Allocatable.Count != 3 {
		t.Errorf("got %+v", entry)
	}
}

// While the API server refuses what a driver needs in the Node, its earlier entry stays.
func TestEntryStaysWithoutLabels(t *testing.T) {
	n := newNode(t).run()
	n.register()
	n.restart()
	n.refuses = map[string]string{driverName: "forbidden label"}
	n.infos = map[string]*world.CSINodeInfo{driverName: {NodeID: "id-2", VolumesMax: 3}}
	n.observe(Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1"})
	n.wait(10 * time.Minute)
	if entry := entryIn(n.csiNode, driverName); entry == nil || entry.NodeID != "id-1" {
		t.Errorf("got %+v", entry)
	}
}

// Writes of the CSINode that fail are repeated with a back-off, also if reads between them succeed.
func TestFailingWritesOfCSINode(t *testing.T) {
	for _, kind := range []world.ErrorKind{world.KindInternal, world.KindConflict} {
		n := newNode(t).run()
		n.fail["UpdateObject"] = &failure{world.Errorf(kind, "", "the webhook has failed"), 1000, false}
		n.observe(Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1"})
		before := n.fail["UpdateObject"].times
		n.wait(10 * time.Minute)
		if writes := before - n.fail["UpdateObject"].times; writes == 0 || writes > 20 {
			t.Errorf("%s: %d writes in ten minutes", kind, writes)
		}
		n.fail["UpdateObject"] = nil
		if n.wait(5 * time.Minute); entryIn(n.csiNode, driverName) == nil {
			t.Errorf("%s: the entry is missing in the end", kind)
		}
	}
}

// Of a registered driver only the number of volumes changes. Another ID or topology is that of its
// next registration, and keeps no other driver from being registered.
func TestRegisteredDriverAnswersOtherwise(t *testing.T) {
	n := newCounted(t)
	n.infos = map[string]*world.CSINodeInfo{driverName: {NodeID: "id-2", VolumesMax: 3,
		Topology: map[string]string{"rack": "1"}}}
	n.wait(time.Minute)
	n.expect("info", "update CSINode")
	entry := entryIn(n.csiNode, driverName)
	if entry.NodeID != "id-1" || !slices.Equal(entry.TopologyKeys, []string{"zone"}) ||
		*entry.Allocatable.Count != 3 {
		t.Errorf("got %+v", entry)
	}
	registered := Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1",
		Registered: true}
	n.observe(append([]Plugin{registered}, others...)...)
	n.expectRegistration(others, nil)
}

// What the API server refuses of a registered driver, or of one that has gone, is written again
// after a back-off, and what others need is written meanwhile.
func TestRefusedRegisteredDriver(t *testing.T) {
	n := newNode(t).run().register()
	registered := Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1",
		Registered: true}
	n.csiNode.Spec.Drivers, n.node.Object.CSINode.Spec.Drivers = nil, nil // by another client
	n.invalid = map[string]bool{driverName: true}
	n.calls = nil
	n.observe(registered)
	n.wait(100 * time.Millisecond)
	last := Plugin{Name: "z.example", Endpoint: "/z.sock", Socket: "z", Registration: "z"}
	all := append(slices.Clone(others), last) // also one whose turn is after that of the refused one
	n.observe(append([]Plugin{registered}, all...)...)
	n.wait(time.Second)
	n.expectRegistration(all, nil)
	if s := n.node.session(driverName); s == nil || s.Problem != "" {
		t.Errorf("got %+v", s)
	}
	n.invalid = nil
	n.wait(5 * time.Second)
	if entryIn(n.csiNode, driverName) == nil {
		t.Error("the entry is not written again")
	}
}

// A plugin that waits to be registered is refused once one of its name and a higher version is: the
// cluster knows what that one has answered.
func TestSupersededPlugin(t *testing.T) {
	n := newNode(t).run()
	lower := Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1"}
	higher := Plugin{Name: driverName, Endpoint: "/e.sock", Socket: "s2", Registration: "2"}
	n.observe(lower)
	n.infos = map[string]*world.CSINodeInfo{driverName: {NodeID: "id-2"}}
	n.observe(lower, higher)
	higher.Registered = true
	n.observe(lower, higher)
	n.expectRegistration([]Plugin{lower}, map[string]string{driverName: "a higher version"})
	n.observe(lower)
	lower.Registration = "3"
	n.observe(lower)
	n.expectRegistration([]Plugin{lower}, nil)
}

// It is refused as well while the higher one has only answered: that one may be notified again and
// again in vain, and the cluster knows only what it has answered.
func TestPluginBesideHigherVersion(t *testing.T) {
	n := newNode(t)
	lower := Plugin{Name: driverName, Endpoint: "/d.sock", Socket: "s1", Registration: "1"}
	higher := Plugin{Name: driverName, Endpoint: "/e.sock", Socket: "s2", Registration: "2"}
	n.observe(lower, higher)
	n.run()
	n.expectRegistration([]Plugin{lower}, map[string]string{driverName: "a higher version"})
	n.expectRegistration([]Plugin{higher}, nil)
}

// A changed period counts from the last question.
func TestPeriodChanges(t *testing.T) {
	n := newNode(t)
	spec, seconds := noAttach(), int64(3600)
	spec.NodeAllocatableUpdatePeriodSeconds = &seconds
	n.setDriverObject(spec)
	n.run().register()
	n.wait(30 * time.Second)
	n.calls = nil
	spec, seconds = spec.DeepCopy(), 60
	spec.NodeAllocatableUpdatePeriodSeconds = &seconds
	n.setDriverObject(spec)
	n.queue = append(n.queue, DriverKey(driverName))
	n.run().wait(29 * time.Second)
	n.expect()
	n.wait(2 * time.Second)
	n.expect("info")
}

// The back-offs of volumes end when their driver is registered: a pod whose volume could not be
// published meanwhile does not wait for it.
func TestRetryEndsBackOffs(t *testing.T) {
	n := newReady(t)
	n.fail["PublishVolume"] = &failure{world.Errorf(world.KindInternal, "", "down"), 10, false}
	n.need(use("a"))
	n.wait(time.Minute)
	delete(n.fail, "PublishVolume")
	for _, name := range n.node.Retry([]string{driverName}) {
		n.queue = append(n.queue, VolumeKey(name))
	}
	if n.run(); !n.isReady(use("a")) {
		t.Error("the pod waits for the back-off of its volume")
	}
	n.fail["UnpublishVolume"] = &failure{world.Errorf(world.KindInternal, "", "down"), 10, false}
	n.end("a")
	n.wait(time.Minute)
	delete(n.fail, "UnpublishVolume")
	for _, name := range n.node.Retry([]string{driverName}) {
		n.queue = append(n.queue, VolumeKey(name))
	}
	n.run()
	n.expectClean()
}

// What concerns all drivers is one pass over the volumes, and not one for each driver.
func TestWorkDoesNotMultiplyByDrivers(t *testing.T) {
	n := newReady(t)
	for i := range 4096 {
		driver := fmt.Sprint("d", i%driversMax)
		n.node.addVolume(driver, fmt.Sprint("h", i), false)
		n.node.Drivers[driver] = &Driver{}
	}
	env := n.env()
	env.Enqueue = func(timer.Key) {}
	ev := world.Event{Body: &world.ObjectRead{Object: world.Object{CSINode: n.csiNode}}}
	of := map[string]func(){
		"the CSINode": func() { n.node.HandleObjectCompletion(op.Record{Call: "GetObject"}, ev, env) },
		"all drivers": func() { n.node.Retry(n.node.DriverNames()) },
	}
	for name, do := range of {
		// Sorting the names of all volumes takes a dozen allocations.
		if allocs := testing.AllocsPerRun(1, do); allocs > driversMax {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}
