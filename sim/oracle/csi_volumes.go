package oracle

import (
	"maps"
	"slices"

	"seedlet.dev/sim/truth"
)

// csiVolumes fires when a container is started while a CSI volume of its pod is not published, or
// another one is in its place, and when a volume is unpublished, or replaced, while a process of
// the pod runs. A restart of the agent or of the driver is no excuse: what is published stays.
// Targets of which a driver has lied to this agent are excused, as long as nothing is published
// there, and pods whose spec or manifest has changed.
type csiVolumes struct{}

func (*csiVolumes) describe() Entry {
	return Entry{"csi-volumes", "A container sees the CSI volumes of its pod, and no others, from " +
		"its start until no process of the pod runs."}
}

func (o *csiVolumes) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerStarted:
		return o.checkStart(m, f)
	case truth.VolumeUnpublished:
		return o.checkEnd(m, f)
	case truth.VolumePublished:
		return o.checkPublished(m, f)
	}
	return nil
}

// checkStart checks that all volumes of a pod are published when a container of it is started.
func (*csiVolumes) checkStart(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if p == nil || p.spec == nil || p.specChanged || p.wasRemoved() {
		return nil
	}
	for _, use := range m.csiUses(p.spec) {
		is, isPublished := m.csi.published[use.path]
		switch {
		case m.isDeceived(use.path, f.Time):
		case !isPublished:
			return findingf("container %s was started without volume %s: %s is not published at %s",
				f.Container, use.volume, use.csiName, use.path)
		case is.csiName != use.csiName:
			return findingf("container %s was started with %s at %s, want %s", f.Container, is.csiName,
				use.path, use.csiName)
		}
	}
	return nil
}

// checkEnd checks that no process of the pod runs when a volume of it is unpublished.
func (*csiVolumes) checkEnd(m *model, f *truth.Fact) *finding {
	p := m.podOfTarget(f.Path)
	if f.Cause != "" || p == nil || p.liveContainers == 0 || p.wasRemoved() && p.timesDesired > 1 {
		return nil
	}
	return findingf("%s^%s was unpublished from %s while %s runs", f.Volume.Driver, f.Volume.Handle,
		f.Path, p.anyLiveContainer())
}

// checkPublished checks that a volume is published only in the place of a pod that has it. The pod
// may have gone while the call was on its way.
func (*csiVolumes) checkPublished(m *model, f *truth.Fact) *finding {
	p := m.podOfTarget(f.Path)
	if p == nil || p.spec == nil || p.specChanged || p.wasRemoved() {
		return nil
	}
	name := csiName{f.Volume.Driver, f.Volume.Handle}
	for _, use := range m.csiUses(p.spec) {
		if use.path == f.Path && use.csiName == name {
			return nil
		}
	}
	return findingf("%s was published at %s, and pod %s has no such volume there", name, f.Path, p)
}

// csiData fires when the agent removes what is in a volume of a driver, or unmounts one itself: its
// driver is to do that.
type csiData struct{}

func (*csiData) describe() Entry {
	return Entry{"csi-data", "The agent removes nothing in a volume of a CSI driver, and leaves it " +
		"to the driver to unmount it."}
}

func (*csiData) checkFact(m *model, f *truth.Fact) *finding {
	switch {
	case f.Cause != "":
	case f.Kind == truth.PathRemoved && m.csi.isInVolume(f.Path):
		return findingf("%s was removed, which is in a volume", f.Path)
	case f.Kind == truth.Unmounted:
		for _, places := range []map[string]csiPlace{m.csi.published, m.csi.staged} {
			if is, isPlace := places[f.Path]; isPlace {
				return findingf("%s was unmounted from %s, and not by its driver", is.csiName, f.Path)
			}
		}
	}
	return nil
}

// csiOrder fires when a volume is unstaged while it is published, and when it is staged at two
// places.
type csiOrder struct{}

func (*csiOrder) describe() Entry {
	return Entry{"csi-order", "A volume is unstaged only after it was unpublished everywhere, and " +
		"is staged at one place."}
}

func (*csiOrder) checkFact(m *model, f *truth.Fact) *finding {
	if f.Volume == nil {
		return nil
	}
	name := csiName{f.Volume.Driver, f.Volume.Handle}
	switch f.Kind {
	case truth.VolumeUnstaged:
		if at := m.csi.publishedAt(name); len(at) > 0 {
			return findingf("%s was unstaged from %s, although it is published at %s", name, f.Path, at[0])
		}
	case truth.VolumeStaged:
		for _, path := range slices.Sorted(maps.Keys(m.csi.staged)) {
			if m.csi.staged[path].csiName == name && path != f.Path {
				return findingf("%s was staged at %s, although it is staged at %s", name, f.Path, path)
			}
		}
	}
	return nil
}
