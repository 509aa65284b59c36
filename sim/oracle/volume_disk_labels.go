package oracle

import (
	"slices"
	"strings"

	"seedlet.dev/sim/truth"
)

// diskLabels fires when a container is started with a disk of a network whose files have another
// SELinux label than its pod needs, or one where the access mode or the pod want none (KEP-1710).
type diskLabels struct{}

func (*diskLabels) describe() Entry {
	return Entry{"disk-labels", "A container gets the file system of a disk of a network with the " +
		"SELinux label of its pod, if access mode and pod allow to mount it so, and otherwise without " +
		"one."}
}

func (*diskLabels) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerStarted || p == nil || p.spec == nil || p.specChanged ||
		p.wasRemoved() {
		return nil
	}
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		d := m.volumes.diskOf(p.spec, v)
		if d == nil || d.block || !usesVolume(p.spec, v.Name) {
			continue
		}
		at := m.mountAt(d.backing(m.opts.PodsDir + "/" + p.uid).path)
		if want := m.labelInMode(p.spec, v.Name); at != nil && at.label != want {
			return findingf("container %s was started with %s at %s, whose label is %q, want %q",
				f.Container, at.source, at.path, at.label, want)
		}
	}
	return nil
}

// mountAt returns what is mounted at a path, the newest if there are several; nil if nothing is.
func (m *model) mountAt(p string) *mounted {
	for i := range slices.Backward(m.volumes.mounts) {
		if at := &m.volumes.mounts[i]; at.path == p {
			return at
		}
	}
	return nil
}

// isOfDisks reports whether the source of a mount is a disk of a network.
func isOfDisks(source string) bool {
	return slices.ContainsFunc(diskKinds, func(kind string) bool {
		return strings.HasPrefix(source, "/dev/"+kind+"/")
	})
}
