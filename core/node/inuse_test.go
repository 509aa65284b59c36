package node

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// A volume is not in use for certain while a write may be about to take that back, nor while the
// outcome of such a write is unknown.
func TestVolumesInUse(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		r := newHarness(t, nil, Options{})
		names := []v1.UniqueVolumeName{"a", "b"}
		r.env.VolumesInUse = func(*v1.Node) ([]v1.UniqueVolumeName, bool) { return names, true }
		r.planUntilIdle(0)
		r.planUntilIdle(time.Minute)
		saysInUse := func(name v1.UniqueVolumeName) bool {
			return r.node.SaysInUse(r.node.Object, name)
		}
		if !saysInUse("a") || !saysInUse("b") || saysInUse("c") || r.node.SaysInUse(nil, "a") {
			t.Fatalf("in use are %v", r.node.Object.Status.VolumesInUse)
		}
		names = names[:1]
		r.node.CheckStatusNow()
		if calls := r.plan(0); len(calls) != 1 {
			t.Fatalf("issued %q", calls)
		}
		if !saysInUse("a") || saysInUse("b") {
			t.Error("want only the volume to be in use that the write in flight names")
		}
		names = append(names, "b") // needed again, after the write was planned
		if unknown {
			r.complete(world.Errorf(world.KindTimeout, "", "late"))
			if saysInUse("b") {
				t.Error("in use after a write of unknown outcome")
			}
			r.planUntilIdle(time.Minute)
		} else {
			r.complete(nil)
			if !saysInUse("a") || saysInUse("b") {
				t.Error("the volume that was taken back is in use")
			}
			r.node.CheckStatusNow()
			r.planUntilIdle(0)
		}
		if !saysInUse("b") {
			t.Errorf("unknown outcome %t: not in use although that was written", unknown)
		}
	}
}

// A write that the API server refuses takes nothing back.
func TestVolumesInUseOfRefusedWrite(t *testing.T) {
	r := newHarness(t, nil, Options{})
	names := []v1.UniqueVolumeName{"a"}
	r.env.VolumesInUse = func(*v1.Node) ([]v1.UniqueVolumeName, bool) { return names, true }
	r.planUntilIdle(0)
	r.planUntilIdle(time.Minute)
	names = nil
	r.node.CheckStatusNow()
	r.plan(0)
	r.complete(world.Errorf(world.KindRefused, "", "no"))
	if !r.node.SaysInUse(r.node.Object, "a") {
		t.Error("not in use, although the API server has refused to take it back")
	}
}
