package op

import (
	"testing"
	"time"

	"seedlet.dev/world"
)

// An effect says for which pod it is, and of nothing else that it is for a pod.
func TestEffectsNameTheirPod(t *testing.T) {
	var out Out
	out.Begin(&Table{}, time.Unix(0, 0))
	out.Ask(Owner{Component: "pod", Name: "u1"}, "", time.Second, &world.MakeDir{})
	out.Ask(Owner{Component: "image", Name: "i"}, "", time.Second, &world.MakeDir{})
	out.Log(world.LevelInfo, "done")
	for i, want := range []string{"u1", "", ""} {
		if got := out.Take()[i].Pod; got != want {
			t.Errorf("effect %d is for pod %q, want %q", i, got, want)
		}
	}
}
