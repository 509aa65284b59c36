package oracle

import (
	"seedlet.dev/sim/truth"
)

// userNamespaces fires when two pods with user namespaces share IDs, or when a pod with hostUsers
// false has IDs of the host (KEP-127).
type userNamespaces struct{}

func (*userNamespaces) describe() Entry {
	return Entry{"user-namespaces", "Every pod with hostUsers false runs with IDs that are " +
		"neither the host's nor those of another running pod."}
}

// hostIDCount is the number of IDs that belong to the host itself.
const hostIDCount = 1 << 16

func (*userNamespaces) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerStarted {
		return nil
	}
	p, s := m.pods[f.PodUID], m.sandboxes[f.SandboxID]
	if p == nil || s == nil {
		return nil
	}
	if s.ids.Length == 0 {
		if !p.needsOwnIDs() {
			return nil
		}
		return findingf("container %s of pod %s was started with the host's "+
			"IDs, but hostUsers is false", f.Container, p)
	}
	if s.ids.First < hostIDCount {
		return findingf("pod %s has IDs of the host: %+v", p, s.ids)
	}
	for _, other := range m.podsInOrder {
		if other == p {
			continue
		}
		for _, c := range other.containers {
			if c.state == running && c.sandbox != nil && overlap(c.sandbox.ids, s.ids) {
				return findingf("container %s of pod %s was started with IDs "+
					"%+v, but %s runs with %+v", f.Container, p, s.ids, c, c.sandbox.ids)
			}
		}
	}
	return nil
}

// needsOwnIDs reports whether hostUsers is false in every spec of the pod.
func (p *pod) needsOwnIDs() bool {
	for _, spec := range p.specs {
		if users := spec.Spec.HostUsers; users == nil || *users {
			return false
		}
	}
	return len(p.specs) > 0
}

// overlap reports whether two ranges have an ID in common.
func overlap(a, b truth.IDs) bool {
	return uint64(a.First) < uint64(b.First)+uint64(b.Length) &&
		uint64(b.First) < uint64(a.First)+uint64(a.Length)
}
