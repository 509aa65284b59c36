package csi

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"the entry is invalid": func(n *node) {
			n.fail["UpdateObject"] = &failure{world.Errorf(world.KindInvalid, "", "the entry is invalid"), 1,
				false}
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

// A driver whose CSIDriver says so is asked again how many volumes the node can have.
func TestAllocatableIsUpdated(t *testing.T) {
	n := newNode(t)
	spec, seconds := noAttach(), int64(60)
	spec.NodeAllocatableUpdatePeriodSeconds = &seconds
	n.setDriverObject(spec)
	n.run().register()
	n.calls = nil
	n.wait(2*time.Minute + time.Second)
	n.expect("info", "info")
}
