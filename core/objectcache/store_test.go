package objectcache

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

type effectRecorder struct{ bodies []any }

func (t *effectRecorder) Emit(body any) { t.bodies = append(t.bodies, body) }
func (*effectRecorder) Now() time.Time  { return t0 }

var (
	t0           = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	podsTarget   = world.WatchTarget{Resource: world.ResourcePods}
	secretTarget = world.WatchTarget{Resource: world.ResourceSecrets, Namespace: "a", Name: "keys"}
	podObjects   = func(names ...string) []world.Object {
		var list []world.Object
		for _, name := range names {
			list = append(list, podObject(name, "1"))
		}
		return list
	}
)

func podObject(name, version string) world.Object {
	return world.Object{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: name, ResourceVersion: version}}}
}

func TestWatchEndsWithLastUser(t *testing.T) {
	var s Store
	var effects effectRecorder
	s.AddReference(secretTarget, "x", &effects)
	s.AddReference(secretTarget, "y", &effects)
	s.AddReference(secretTarget, "x", &effects)
	s.DeleteReference(secretTarget, "x", &effects)
	s.DeleteReference(secretTarget, "unknown", &effects)
	want := []any{&world.WatchObjects{Watch: 1, WatchTarget: secretTarget}}
	if d := cmp.Diff(want, effects.bodies); d != "" {
		t.Error(d)
	}
	s.DeleteReference(secretTarget, "y", &effects)
	s.AddReference(secretTarget, "z", &effects)
	want = append(want, &world.UnwatchObjects{Watch: 1},
		&world.WatchObjects{Watch: 2, WatchTarget: secretTarget})
	if d := cmp.Diff(want, effects.bodies); d != "" {
		t.Error(d)
	}
	if w, _ := s.HandleWatchEvent(&world.ObjectsListed{Watch: 1}, t0); w != nil || s.Dropped != 1 {
		t.Error("an event of a watch that has ended was not dropped")
	}
}

func TestUnknownBeforeFirstList(t *testing.T) {
	var s Store
	s.AddReference(secretTarget, "x", &effectRecorder{})
	if _, known := s.Get(secretTarget.Resource, "a", "keys"); known {
		t.Error("known before the first list")
	}
	s.HandleWatchEvent(&world.ObjectsListed{Watch: 1}, t0)
	if o, known := s.Get(secretTarget.Resource, "a", "keys"); !known || o != nil {
		t.Errorf("known %v, object %v; want known to be absent", known, o)
	}
}

func TestChangedObjects(t *testing.T) {
	var s Store
	s.AddReference(podsTarget, "x", &effectRecorder{})
	for _, step := range []struct {
		name string
		body any
		want []string
	}{
		{"first list", &world.ObjectsListed{Watch: 1, Objects: podObjects("p", "q")},
			[]string{"a/p", "a/q"}},
		{"unchanged list", &world.ObjectsListed{Watch: 1, Objects: podObjects("p", "q")}, nil},
		{"one deleted, one new", &world.ObjectsListed{Watch: 1, Objects: podObjects("q", "r")},
			[]string{"a/p", "a/r"}},
		{"a change", &world.ObjectChanged{Watch: 1, Object: podObject("q", "2")}, []string{"a/q"}},
		{"failing", &world.WatchFailing{Watch: 1, Err: world.Errorf(world.KindRefused, "", "")}, nil},
		{"a removal", &world.ObjectGone{Watch: 1, Object: podObject("q", "3")}, []string{"a/q"}},
	} {
		w, changed := s.HandleWatchEvent(step.body, t0)
		if w == nil {
			t.Fatalf("%s: no watch", step.name)
		}
		if d := cmp.Diff(step.want, changed); d != "" {
			t.Errorf("%s: %s", step.name, d)
		}
	}
	w := s.Watch(podsTarget)
	if d := cmp.Diff([]string{"a/r"}, w.Names()); d != "" {
		t.Error(d)
	}
	if w.Failing == nil || !w.FailingSince.Equal(t0) {
		t.Error("the failure was cleared before the next list")
	}
	if s.HandleWatchEvent(&world.ObjectsListed{Watch: 1}, t0); w.Failing != nil {
		t.Error("still failing after a list")
	}
}
