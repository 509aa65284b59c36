package oracle

import (
	"path"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// takenImages are the private images that a kubelet has pulled and recorded (KEP-2535). An agent
// that takes over the records pulls none of them again, as long as the image stays. No scenario has
// a pod with another secret that is good for such an image.
type takenImages struct {
	pulled  map[string]bool // by reference
	pulling map[string]bool // by the name of the file: who may use the image is not recorded
}

// note notes what the kubelet does.
func (t *takenImages) note(f *truth.Fact) {
	if t.pulled == nil {
		t.pulled, t.pulling = map[string]bool{}, map[string]bool{}
	}
	switch {
	case f.Kind == truth.ImagePulled:
		t.pulled[f.Image] = true
	case f.Kind == truth.ImageRemoved:
		delete(t.pulled, f.Image)
	case f.Kind == truth.PathWritten && isIntent(f.Path):
		t.pulling[path.Base(f.Path)] = true
	case f.Kind == truth.PathRemoved && isIntent(f.Path):
		delete(t.pulling, path.Base(f.Path))
	}
}

// check checks that nothing is pulled again.
func (t *takenImages) check(m *model, f *truth.Fact) *finding {
	if f.Kind == truth.ImageRemoved {
		delete(t.pulled, f.Image)
	}
	if f.Kind != truth.ImagePulled || !t.pulled[f.Image] || len(m.opts.PullUsers[f.Image]) == 0 ||
		t.pulling[intentFile(f.Image)] || m.kubeletRuns || m.mayHavePulledAfresh(f) {
		return nil
	}
	return findingf("image %s was pulled again, although a kubelet has recorded who may use it",
		f.Image)
}

// pullDecisionBound is how long before the end of a pull it was decided.
const pullDecisionBound = 3 * time.Minute

// mayHavePulledAfresh reports whether an agent may have had a reason for a pull of an image that is
// on the node: a pod that wants one, or a fault that kept it from its records then.
func (m *model) mayHavePulledAfresh(f *truth.Fact) bool {
	for _, p := range m.podsInOrder {
		if p.spec == nil {
			continue
		}
		for i := range p.spec.Spec.Containers {
			c := &p.spec.Spec.Containers[i]
			if c.Image == f.Image && c.ImagePullPolicy == v1.PullAlways {
				return true
			}
		}
	}
	since := later(m.agentStartedAt, f.Time.Add(-pullDecisionBound))
	return m.anyFaultPossible(since, f.Time, "ReadFiles", "ImageStatus", "ListImages")
}
