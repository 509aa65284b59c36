package pod

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// A pod reports that a volume with a claim takes long to be given to its group, and has that ended
// early, once, when it ends. It does not report the same of a volume that it has filled itself.
func TestSlowGroup(t *testing.T) {
	for _, hasClaim := range []bool{true, false} {
		p := withVolume(v1.VolumeMount{MountPath: "/data"})
		if hasClaim {
			p = withClaim()
		}
		p.Storage.Volumes.Volumes = []volume.Volume{{Name: "data", InFlight: true,
			Backing: &volume.Backing{Plugin: volume.LocalPlugin, Name: "pv"}}}
		table := &op.Table{}
		env := claimEnv(&objectcache.Store{})
		env.Effects.Reset(table, t0)
		p.Op = env.Effects.Issue(p.Key(), subjectVolume+"data", time.Hour, &world.ShareWithGroup{})
		var events []string
		planAt := func(after time.Duration) (wake time.Time, canceled []world.OpID) {
			env.Effects.Reset(table, t0.Add(after))
			wake = p.Plan(env)
			for _, e := range env.Effects.List() {
				switch b := e.Body.(type) {
				case *world.RecordEvent:
					if b.Reason == csi.ReasonSlowGroup {
						events = append(events, b.Message)
					}
				case *world.CancelOperation:
					canceled = append(canceled, b.Operation)
				}
			}
			return wake, canceled
		}
		if wake, _ := planAt(29 * time.Second); hasClaim && !wake.Equal(t0.Add(30*time.Second)) {
			t.Errorf("next at %v", wake.Sub(t0))
		}
		planAt(30 * time.Second)
		planAt(40 * time.Second)
		planAt(90 * time.Second)
		got := strings.Join(events, "\n")
		if hasClaim != (len(events) == 2 && strings.HasPrefix(got, "Setting volume ownership for "+
			"u/volumes/kubernetes.io~local-volume/pv is taking longer ")) || !hasClaim && got != "" {
			t.Errorf("claim %v: %q", hasClaim, got)
		}
		p.ClearDesired(t0.Add(91 * time.Second))
		_, canceled := planAt(91 * time.Second)
		_, again := planAt(92 * time.Second)
		if !slices.Equal(canceled, []world.OpID{p.Op}) || len(again) > 0 {
			t.Errorf("canceled %v, then %v", canceled, again)
		}
	}
}
