package object

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

type told struct{ bodies []any }

func (t *told) Tell(body any) { t.bodies = append(t.bodies, body) }
func (*told) Now() time.Time  { return t0 }

var (
	t0    = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pods  = world.Watched{Resource: world.ResourcePods}
	keys  = world.Watched{Resource: world.ResourceSecrets, Namespace: "a", Name: "keys"}
	aPods = func(names ...string) []world.Object {
		var list []world.Object
		for _, name := range names {
			list = append(list, aPod(name, "1"))
		}
		return list
	}
)

func aPod(name, version string) world.Object {
	return world.Object{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: name, ResourceVersion: version}}}
}

func TestWatchLivesAsLongAsItsUsers(t *testing.T) {
	var s Store
	var out told
	s.Want(keys, "x", &out)
	s.Want(keys, "y", &out)
	s.Want(keys, "x", &out)
	s.Drop(keys, "x", &out)
	s.Drop(keys, "nobody", &out)
	want := []any{&world.WatchObjects{Watch: 1, Watched: keys}}
	if d := cmp.Diff(want, out.bodies); d != "" {
		t.Error(d)
	}
	s.Drop(keys, "y", &out)
	s.Want(keys, "z", &out)
	want = append(want, &world.UnwatchObjects{Watch: 1}, &world.WatchObjects{Watch: 2, Watched: keys})
	if d := cmp.Diff(want, out.bodies); d != "" {
		t.Error(d)
	}
	if w, _ := s.Take(&world.ObjectsListed{Watch: 1}, t0); w != nil || s.Stray != 1 {
		t.Error("a watch that has ended was told something")
	}
}

func TestWhatIsNotListedIsNotKnown(t *testing.T) {
	var s Store
	s.Want(keys, "x", &told{})
	if _, known := s.One(keys.Resource, "a", "keys"); known {
		t.Error("known before it was listed")
	}
	s.Take(&world.ObjectsListed{Watch: 1}, t0)
	if o, known := s.One(keys.Resource, "a", "keys"); !known || o != nil {
		t.Errorf("known %v, object %v; want known to be absent", known, o)
	}
}

func TestNews(t *testing.T) {
	var s Store
	s.Want(pods, "x", &told{})
	for _, step := range []struct {
		name string
		body any
		want []string
	}{
		{"first list", &world.ObjectsListed{Watch: 1, Objects: aPods("p", "q")},
			[]string{"a/p", "a/q"}},
		{"the same", &world.ObjectsListed{Watch: 1, Objects: aPods("p", "q")}, nil},
		{"one gone, one new", &world.ObjectsListed{Watch: 1, Objects: aPods("q", "r")},
			[]string{"a/p", "a/r"}},
		{"a change", &world.ObjectChanged{Watch: 1, Object: aPod("q", "2")}, []string{"a/q"}},
		{"failing", &world.WatchFailing{Watch: 1, Err: world.Errorf(world.KindRefused, "", "")}, nil},
		{"a removal", &world.ObjectGone{Watch: 1, Object: aPod("q", "3")}, []string{"a/q"}},
	} {
		w, news := s.Take(step.body, t0)
		if w == nil {
			t.Fatalf("%s: no watch", step.name)
		}
		if d := cmp.Diff(step.want, news); d != "" {
			t.Errorf("%s: %s", step.name, d)
		}
	}
	w := s.Watch(pods)
	if d := cmp.Diff([]string{"a/r"}, w.Names()); d != "" {
		t.Error(d)
	}
	if w.Failing == nil || !w.Since.Equal(t0) {
		t.Error("that it fails was forgotten before it was listed again")
	}
	if s.Take(&world.ObjectsListed{Watch: 1}, t0); w.Failing != nil {
		t.Error("it was listed and is still failing")
	}
}
