package image

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/timer"
)

// An image that is being removed is neither inspected nor pulled: the answer would be wrong after
// the end of the removal. Other images are.
func TestImageThatIsBeingRemoved(t *testing.T) {
	for removing, want := range map[string]int{"i": 0, "other": 1, "": 1} { //ordered: each by itself
		r := &harness{}
		r.store.Require("a", Request{Ref: "i"}, v1.PullIfNotPresent, t0)
		r.store.Require("b", Request{Ref: "i"}, v1.PullAlways, t0)
		r.out.Reset(&r.table, t0.Add(time.Second))
		wake := r.store.Plan("i", &Env{Effects: &r.out, Enqueue: func(timer.Key) {},
			IsRemoving: func(ref string) bool { return ref == removing }})
		issued := map[string]int{}
		for _, record := range r.table.Records {
			issued[record.Call]++
		}
		if issued["ImageStatus"] != want || issued["PullImage"] != want || want == 0 && !wake.IsZero() {
			t.Errorf("while %q is removed: issued %v, again at %v", removing, issued, wake)
		}
	}
}
