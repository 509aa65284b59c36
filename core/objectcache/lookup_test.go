package objectcache

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

func TestFind(t *testing.T) {
	var s Store
	s.AddReference(secretTarget, "x", &effectRecorder{})
	check := func(when string, known, exists bool, err string) {
		t.Helper()
		f := s.Lookup(secretTarget.Resource, "a", "keys")
		text := ""
		if f.Err != nil {
			text = f.Err.Error()
		}
		if f.Known != known || (f.Object != nil) != exists || text != err {
			t.Errorf("%s: %+v, want known %v, exists %v, %q", when, f, known, exists, err)
		}
	}
	check("before the first list", false, false, "")
	s.HandleWatchEvent(&world.WatchFailing{Watch: 1, Err: world.Errorf(world.KindRefused, "", "")}, t0)
	check("refused", false, false,
		"failed to sync secret cache: timed out waiting for the condition")
	s.HandleWatchEvent(&world.ObjectsListed{Watch: 1}, t0)
	check("absent", true, false, `secret "keys" not found`)
	is := world.Object{Secret: &v1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "keys", ResourceVersion: "7", UID: "s"}}}
	s.HandleWatchEvent(&world.ObjectChanged{Watch: 1, Object: is}, t0)
	check("exists", true, true, "")
	s.HandleWatchEvent(&world.WatchFailing{Watch: 1,
		Err: world.Errorf(world.KindUnavailable, "", "")}, t0)
	check("exists, and the server is unavailable", true, true, "")
	if got := Version(&is); got != "s/7" {
		t.Errorf("version %s", got)
	}
}
