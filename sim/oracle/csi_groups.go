package oracle

import (
	"seedlet.dev/sim/truth"
)

// csiGroups fires when the first container of a pod, since a volume of a CSI driver was published
// for the pod, is started although the volume was not given to the group of the pod before: the
// root of a volume is changed last. After a reboot a volume is published once more. Pods of
// several groups that have a volume at the same time change it in turns, and are not judged.
type csiGroups struct{}

func (*csiGroups) describe() Entry {
	return Entry{"csi-groups", "A pod with an fsGroup gets a volume of a CSI driver after its files " +
		"were given to that group, if the driver and the kind of the volume want that."}
}

func (*csiGroups) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerStarted || m.opts.GroupOf == nil || p == nil || p.spec == nil ||
		p.specChanged || p.wasRemoved() {
		return nil
	}
	for _, use := range m.csiUses(p.spec) {
		is, isPublished := m.csi.published[use.path]
		want, mustHave := m.wantedGroup(p, use.path)
		if !isPublished || !mustHave || is.csiName != use.csiName || !usesVolume(p.spec, use.volume) ||
			!m.csi.sharedAt[is.csiName].Before(is.since) ||
			!is.startedAt.IsZero() && is.startedAt.Before(f.Time) {
			continue
		}
		if got, exists := m.opts.GroupOf(use.path); exists && got != want {
			return findingf("container %s was started with %s, whose root has group %d, want %d",
				f.Container, use.csiName, got, want)
		}
	}
	return nil
}
