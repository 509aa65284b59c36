package oracle

import (
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// podVolumes fires when a container is started before its pod's volumes exist, or when they
// are unmounted or removed while a container runs (upstream #113979, #120150, #75345). A mount
// that a removed pod leaves behind keeps its directory, which progress reports. A delayed
// operation from before a manifest came back, or before its spec changed, is excused.
type podVolumes struct {
	// present has paths below the pods' directories: a directory, or a mount as "tmpfs PATH".
	present map[string]bool
}

func (*podVolumes) describe() Entry {
	return Entry{"volumes", "The volumes of a pod exist before a container starts, and as long " +
		"as a process of the pod runs."}
}

func (o *podVolumes) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerStarted:
		return o.checkStart(m, f)
	case truth.PathCreated, truth.PathWritten:
		if isVolumePath(m, f.Path) {
			o.add(f.Path)
		}
	case truth.Mounted:
		o.add(tmpfsPrefix + f.Path)
	case truth.Unmounted:
		delete(o.present, tmpfsPrefix+f.Path)
		return o.checkLoss(m, f, "unmounted")
	case truth.PathRemoved:
		for path := range o.present { //ordered: each is removed or kept by itself
			if isWithin(path, f.Path) {
				delete(o.present, path)
			}
		}
		return o.checkLoss(m, f, "removed")
	case truth.PowerLost: // every mount is gone; the disk tells which directories are left
		o.present = nil
		o.readDirectories(m)
	}
	return nil
}

// readDirectories adds the volumes that are directories, of all pods.
func (o *podVolumes) readDirectories(m *model) {
	if m.opts.ListFiles == nil {
		return
	}
	for pod := range m.opts.ListFiles(m.opts.PodsDir) {
		volumes := m.opts.PodsDir + "/" + pod.Name + "/volumes"
		for kind := range m.opts.ListFiles(volumes) {
			for v := range m.opts.ListFiles(volumes + "/" + kind.Name) {
				o.add(volumes + "/" + kind.Name + "/" + v.Name)
			}
		}
	}
}

const tmpfsPrefix = "tmpfs "

func (o *podVolumes) add(path string) {
	if o.present == nil {
		o.present = map[string]bool{}
	}
	o.present[path] = true
}

// checkStart checks the start of a container.
func (o *podVolumes) checkStart(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if p == nil || p.spec == nil || p.specChanged || p.wasRemoved() {
		return nil
	}
	dir := m.opts.PodsDir + "/" + f.PodUID
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		path := volumePath(dir, v)
		switch {
		case v.HostPath != nil, v.Image != nil, isBacked(v): // see the oracles images and claims
			continue
		case !usesVolume(p.spec, v.Name):
			continue
		case v.CSI != nil, v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
			continue // the oracle csi-volumes checks those of drivers
		case v.EmptyDir != nil && v.EmptyDir.Medium != v1.StorageMediumDefault:
			path = tmpfsPrefix + path
		}
		if !o.present[path] {
			return findingf("container %s was started without volume %s (%s)", f.Container,
				v.Name, path)
		}
	}
	return nil
}

// isVolumePath reports whether a path is that of a pod's volume, or of a sub-path of one.
func isVolumePath(m *model, path string) bool {
	rest, ok := strings.CutPrefix(path, m.opts.PodsDir+"/")
	_, rest, in := strings.Cut(rest, "/")
	return ok && in && (strings.HasPrefix(rest, "volumes") ||
		strings.HasPrefix(rest, "volume-subpaths"))
}

// checkLoss checks a removal or an unmount below a pod's volumes.
func (o *podVolumes) checkLoss(m *model, f *truth.Fact, how string) *finding {
	uid, below := childName(m.opts.PodsDir, f.Path)
	p := m.pods[uid]
	if f.Cause != "" || !below || p == nil || p.liveContainers == 0 ||
		p.wasRemoved() && p.timesDesired > 1 {
		return nil
	}
	if !isVolumePath(m, f.Path) {
		return nil
	}
	// A sub-path below VOLUME/CONTAINER is that container's alone.
	rest, isSubPath := strings.CutPrefix(f.Path, subPathsDir(m.opts.PodsDir+"/"+uid)+"/")
	if parts := strings.Split(rest, "/"); isSubPath && len(parts) > 1 && p.liveRun(parts[1]) == nil {
		return nil
	}
	return findingf("%s was %s while %s runs", f.Path, how, p.anyLiveContainer())
}
