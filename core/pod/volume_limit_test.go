package pod

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

// A pod that waits in vain for a volume, because the node has too many, ends as a rejected one.
func TestPodEndsAtVolumeLimit(t *testing.T) {
	p := withVolume(v1.VolumeMount{MountPath: "/data"})
	p.Spec.Spec.Volumes[0].VolumeSource = v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "d"}}
	env := claimEnv(&objectcache.Store{})
	node, counted := csi.NewNode("n", "/k", true), ""
	env.CSI = CSI{Node: &node, Enqueue: func(string) {}}
	env.CountRejection = func(reason string) { counted += reason }
	p.Plan(env)
	if p.Stage != Syncing || counted != "" || len(node.Volumes) != 1 {
		t.Fatalf("stage %s, counted %q, %d volumes", p.Stage, counted, len(node.Volumes))
	}
	for _, v := range node.Volumes {
		for _, u := range v.Uses {
			u.NodeFull = true
		}
	}
	p.Plan(env)
	end := &p.Termination
	if p.Stage == Syncing || end.Reason != ReasonVolumeLimit || end.Phase != v1.PodFailed ||
		!strings.HasPrefix(end.Message, "Pod was rejected: Node has reached its volume attachment "+
			"limit, rejecting pod. unmounted volumes=[data], unattached volumes=[data], ") {
		t.Errorf("stage %s, end %+v", p.Stage, end)
	}
	if counted != ReasonVolumeLimit {
		t.Errorf("counted %q", counted)
	}
	var events []string
	for _, e := range env.Effects.List() {
		if event, isEvent := e.Body.(*world.RecordEvent); isEvent {
			events = append(events, event.Reason)
		}
	}
	if got := strings.Join(events, " "); !strings.Contains(got, ReasonVolumeLimit) {
		t.Errorf("events %s", got)
	}
}
