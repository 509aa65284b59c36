package object

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

func TestFind(t *testing.T) {
	var s Store
	s.Want(keys, "x", &told{})
	check := func(when string, known, there bool, err string) {
		t.Helper()
		f := s.Find(keys.Resource, "a", "keys")
		text := ""
		if f.Err != nil {
			text = f.Err.Error()
		}
		if f.Known != known || (f.Object != nil) != there || text != err {
			t.Errorf("%s: %+v, want known %v, there %v, %q", when, f, known, there, err)
		}
	}
	check("before it is listed", false, false, "")
	s.Take(&world.WatchFailing{Watch: 1, Err: world.Errorf(world.KindRefused, "", "")}, t0)
	check("refused", false, false,
		"failed to sync secret cache: timed out waiting for the condition")
	s.Take(&world.ObjectsListed{Watch: 1}, t0)
	check("absent", true, false, `secret "keys" not found`)
	is := world.Object{Secret: &v1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: "a", Name: "keys", ResourceVersion: "7", UID: "s"}}}
	s.Take(&world.ObjectChanged{Watch: 1, Object: is}, t0)
	check("there", true, true, "")
	s.Take(&world.WatchFailing{Watch: 1, Err: world.Errorf(world.KindUnavailable, "", "")}, t0)
	check("there, and the server is away", true, true, "")
	if got := Version(&is); got != "s/7" {
		t.Errorf("version %s", got)
	}
}
