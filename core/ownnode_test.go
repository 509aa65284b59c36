package core

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// heartbeats is what the API server has of the node itself.
type heartbeats struct {
	lease    *coordinationv1.Lease
	renewals []time.Time
	patches  int
	hangs    bool // it never answers what is asked of the Node
}

// heartbeat answers what is asked of the Node and its lease; false for all else.
func (s *server) heartbeat(effect any) (any, bool) {
	read := func(o world.Object) (any, bool) { return &world.ObjectRead{Object: o}, true }
	on, is := effect.(world.OnObjects)
	switch {
	case !is:
	case on.Of() == world.ResourceLeases:
		switch e := effect.(type) {
		case *world.CreateObject:
			s.beats.lease = e.Object.Lease
		case *world.UpdateObject:
			s.beats.lease = e.Object.Lease
		}
		if s.beats.lease == nil {
			return world.Errorf(world.KindNotFound, world.Call(effect), "no lease"), true
		}
		if _, reads := effect.(*world.GetObject); !reads {
			s.beats.renewals = append(s.beats.renewals, s.beats.lease.Spec.RenewTime.Time)
		}
		return read(world.Object{Lease: s.beats.lease})
	case on.Of() == world.ResourceNodes && s.beats.hangs:
		return world.Errorf(world.KindTimeout, world.Call(effect), "no answer"), true
	case on.Of() == world.ResourceNodes:
		if patch, is := effect.(*world.PatchObject); is {
			s.beats.patches++
			s.node = patched(s.node, patch.Patch)
			s.version++
			s.node.ResourceVersion = fmt.Sprint(s.version)
		}
		return read(world.Object{Node: s.node})
	}
	return nil, false
}

func patched(is *v1.Node, patch []byte) *v1.Node {
	was, err := json.Marshal(is)
	if err != nil {
		panic(err)
	}
	data, err := strategicpatch.StrategicMergePatch(was, patch, v1.Node{})
	if err != nil {
		panic(err)
	}
	node := &v1.Node{}
	if err := json.Unmarshal(data, node); err != nil {
		panic(err)
	}
	return node
}

func nodeReady(n *node) v1.ConditionStatus {
	for _, c := range n.server.node.Status.Conditions {
		if c.Type == v1.NodeReady {
			return c.Status
		}
	}
	return ""
}

func runtimeStatus(ready bool) *runtimeapi.StatusResponse {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{
		Conditions: []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: ready},
			{Type: runtimeapi.NetworkReady, Status: true}}}}
}

func TestTheNodeIsReportedAndItsLeaseRenewed(t *testing.T) {
	n := newNode(nil)
	n.server, n.status = newServer(), runtimeStatus(true)
	n.restart()
	n.pass(2 * time.Second)
	if nodeReady(n) != v1.ConditionTrue {
		t.Fatalf("%+v", n.server.node.Status)
	}
	n.status = runtimeStatus(false)
	n.pass(7 * time.Second) // the runtime is asked every five
	if nodeReady(n) != v1.ConditionFalse {
		t.Errorf("%+v", n.server.node.Status.Conditions)
	}
	written := n.server.beats.patches
	n.server.beats.hangs = true
	n.pass(time.Minute)
	if got := len(n.server.beats.renewals); got < 6 || got > 8 {
		t.Errorf("%d renewals in 69 seconds", got)
	}
	n.server.beats.hangs = false
	n.status = runtimeStatus(true)
	n.pass(20 * time.Second)
	if nodeReady(n) != v1.ConditionTrue || n.server.beats.patches == written {
		t.Errorf("%d patches: %+v", n.server.beats.patches, n.server.node.Status.Conditions)
	}
	if owner := n.server.beats.lease.OwnerReferences; len(owner) != 1 || owner[0].UID != "node-uid" {
		t.Errorf("owned by %+v", owner)
	}
}
