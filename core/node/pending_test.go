package node

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// newInUseHarness returns a registered node that has volumes in use.
func newInUseHarness(t *testing.T, names *[]v1.UniqueVolumeName) *harness {
	r := newHarness(t, nil, Options{})
	r.env.VolumesInUse = func(*v1.Node) ([]v1.UniqueVolumeName, bool) { return *names, true }
	r.planUntilIdle(0)
	r.planUntilIdle(time.Minute)
	return r
}

func (r *harness) saysInUse(name v1.UniqueVolumeName) bool {
	return slices.Contains(r.node.Object.Status.VolumesInUse, name) && r.node.KeepsInUse(name)
}

// A volume is not in use for certain while a write may be about to take that back, nor while the
// outcome of such a write is unknown.
func TestVolumesInUse(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		names := []v1.UniqueVolumeName{"a", "b"}
		r := newInUseHarness(t, &names)
		if !r.saysInUse("a") || !r.saysInUse("b") || r.saysInUse("c") {
			t.Fatalf("in use are %v", r.node.Object.Status.VolumesInUse)
		}
		names = names[:1]
		r.node.CheckStatusNow()
		if calls := r.plan(0); len(calls) != 1 {
			t.Fatalf("issued %q", calls)
		}
		if !r.saysInUse("a") || r.saysInUse("b") {
			t.Error("want only the volume to be in use that the write in flight names")
		}
		names = append(names, "b") // needed again, after the write was planned
		if unknown {
			r.complete(world.Errorf(world.KindTimeout, "", "late"))
			if r.saysInUse("b") {
				t.Error("in use after a write of unknown outcome")
			}
			r.planUntilIdle(time.Minute)
		} else {
			r.complete(nil)
			if !r.saysInUse("a") || r.saysInUse("b") {
				t.Error("the volume that was taken back is in use")
			}
			r.node.CheckStatusNow()
			r.planUntilIdle(0)
		}
		if !r.saysInUse("b") {
			t.Errorf("unknown outcome %t: not in use although that was written", unknown)
		}
	}
}

// A write that the API server refuses takes nothing back.
func TestVolumesInUseOfRefusedWrite(t *testing.T) {
	names := []v1.UniqueVolumeName{"a"}
	r := newInUseHarness(t, &names)
	names = nil
	r.node.CheckStatusNow()
	r.plan(0)
	r.complete(world.Errorf(world.KindRefused, "", "no"))
	if !r.saysInUse("a") {
		t.Error("not in use, although the API server has refused to take it back")
	}
}

// A status that is too large with the volumes in use is written without them, so that the
// conditions are, and with them again once they may have become fewer.
func TestTooManyVolumesInUse(t *testing.T) {
	names := []v1.UniqueVolumeName{"a"}
	r := newInUseHarness(t, &names)
	names = []v1.UniqueVolumeName{"a", "b"}
	r.node.CheckStatusNow()
	r.plan(0)
	r.complete(world.Errorf(world.KindTooLarge, "", "too large"))
	r.env.Shutdown = "the machine shuts down"
	r.planUntilIdle(time.Second)
	ready, inUse := readyStatus(&r.node.Object.Status), r.node.Object.Status.VolumesInUse
	if ready != v1.ConditionFalse || !slices.Equal(inUse, names[:1]) {
		t.Errorf("ready is %s, in use are %v, want the conditions without the change", ready, inUse)
	}
	r.planUntilIdle(lesserPeriod)
	if !r.saysInUse("b") {
		t.Errorf("in use are %v, want both once they may be written", r.node.Object.Status.VolumesInUse)
	}
}

// A write that has timed out takes effect minutes later, if ever. A read that does not show it
// proves nothing: the status is written again, after which the object has another version, and the
// late write is refused.
func TestLateWriteOfVolumesInUse(t *testing.T) {
	names := []v1.UniqueVolumeName{"a", "b"}
	r := newInUseHarness(t, &names)
	names = names[:1]
	r.node.CheckStatusNow()
	r.plan(0)
	late := r.issued[0].Body
	names = append(names, "b")
	r.complete(world.Errorf(world.KindTimeout, "", "late"))
	if calls := r.plan(time.Second); len(calls) != 1 || calls[0] != "GetObject" {
		t.Fatalf("issued %q, want a read", calls)
	}
	r.complete(nil)
	if len(r.node.Object.Status.VolumesInUse) != 2 || r.saysInUse("b") || !r.saysInUse("a") {
		t.Error("a read has shown that a write in flight has no effect")
	}
	if calls := r.plan(0); len(calls) != 1 || calls[0] != "PatchObjectstatus" {
		t.Fatalf("issued %q, want a status", calls)
	}
	r.complete(nil)
	if !r.saysInUse("b") {
		t.Error("not in use after a write of the status")
	}
	if _, err := r.serve(late); !err.Has(world.KindConflict) {
		t.Errorf("the late write has ended with %v", err)
	}
}

// The watch shows as well that a write can no longer take effect.
func TestVolumesInUseAfterChangeByOthers(t *testing.T) {
	names := []v1.UniqueVolumeName{"a"}
	r := newInUseHarness(t, &names)
	names = nil
	r.node.CheckStatusNow()
	r.plan(0)
	r.complete(world.Errorf(world.KindTimeout, "", "late"))
	r.plan(time.Second)
	r.complete(nil)
	if r.saysInUse("a") {
		t.Error("in use, while a write may take that back")
	}
	r.observe(r.change(func(node *v1.Node) { node.Spec.Unschedulable = true }))
	if !r.saysInUse("a") {
		t.Error("not in use, although the object has changed otherwise")
	}
}

// Of two writes of unknown outcome to one version, either may take effect.
func TestTwoUnknownWritesOfVolumesInUse(t *testing.T) {
	names := []v1.UniqueVolumeName{"a", "b", "c"}
	r := newInUseHarness(t, &names)
	for _, names = range [][]v1.UniqueVolumeName{{"a", "b"}, {"a", "c"}} {
		r.node.CheckStatusNow()
		r.plan(time.Second)
		r.complete(world.Errorf(world.KindTimeout, "", "late"))
		r.plan(time.Second)
		r.complete(nil)
	}
	if !r.saysInUse("a") || r.saysInUse("b") || r.saysInUse("c") {
		t.Errorf("in use are %+v", r.node.InUse)
	}
	r.plan(time.Second)
	r.complete(world.Errorf(world.KindRefused, "", "no"))
	if r.saysInUse("b") || r.saysInUse("c") {
		t.Error("a refused write settles those before it")
	}
}

// An earlier agent may have written a status that takes a volume back later.
func TestVolumesInUseOfEarlierAgent(t *testing.T) {
	names := []v1.UniqueVolumeName{"a"}
	r := newInUseHarness(t, &names)
	r.restartAgent()
	r.plan(time.Second)
	r.complete(nil)
	if r.saysInUse("a") {
		t.Error("in use by the status of an earlier agent")
	}
	r.planUntilIdle(0)
	if !r.saysInUse("a") {
		t.Error("not in use after a status of this agent")
	}
}

// What the object has of a driver is not certain while a write that changes it may still take
// effect. If no write is needed any more, the status is written, which ends that.
func TestLateWriteOfDriver(t *testing.T) {
	r := newHarness(t, nil, Options{})
	leaves := false
	r.env.Metadata = func(node *v1.Node, after string, _ time.Time) (string, map[string]any,
		map[string]any) {
		switch _, has := node.Annotations["id"]; {
		case after == "" && has && leaves:
			return "a", nil, map[string]any{"id": nil}
		case after == "" && !has && !leaves:
			return "a", nil, map[string]any{"id": "x"}
		}
		return "", nil, nil
	}
	r.planUntilIdle(0)
	r.planUntilIdle(time.Minute)
	if r.node.Object.Annotations["id"] != "x" || r.node.IsWritingDriver("a") {
		t.Fatal("want the ID to be written for certain")
	}
	leaves = true
	r.node.CheckDriversNow()
	r.plan(0)
	if !r.node.IsWritingDriver("a") || r.node.IsWritingDriver("b") {
		t.Error("want the write in flight to be that of the driver")
	}
	late := r.issued[0].Body
	leaves = false // it has come back
	r.complete(world.Errorf(world.KindTimeout, "", "late"))
	r.plan(time.Second)
	r.complete(nil) // of the read
	if r.node.Object.Annotations["id"] != "x" || !r.node.IsWritingDriver("a") {
		t.Error("a read has shown that a write in flight has no effect")
	}
	if calls := r.planUntilIdle(0); !slices.Contains(calls, "PatchObjectstatus") {
		t.Errorf("issued %q, want a status", calls)
	}
	if r.node.IsWritingDriver("a") {
		t.Error("the write may take effect although the object has changed")
	}
	if _, err := r.serve(late); !err.Has(world.KindConflict) {
		t.Errorf("the late write has ended with %v", err)
	}
}

// A write for a driver that the API server refuses changes nothing.
func TestRefusedWriteOfDriver(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.planUntilIdle(0)
	r.env.Metadata = func(_ *v1.Node, after string, _ time.Time) (string, map[string]any,
		map[string]any) {
		if after != "" {
			return "", nil, nil
		}
		return "a", nil, map[string]any{"id": "x"}
	}
	r.node.CheckDriversNow()
	r.plan(0)
	r.complete(world.Errorf(world.KindRefused, "", "no"))
	if r.node.IsWritingDriver("a") {
		t.Error("a refused write may take effect")
	}
}
