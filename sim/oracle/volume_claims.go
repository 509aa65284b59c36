package oracle

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// volumeClaims fires when a container is started that does not see the volume of its claim, or sees
// another one, as an empty mount point, or when the agent removes data of a volume. That nothing is
// unmounted while a container runs is checked by the oracle volumes.
type volumeClaims struct {
	mounts map[string][]truth.Mount // by ID of the container that was created with them
}

func (*volumeClaims) describe() Entry {
	return Entry{"claims", "A container sees the volumes of its pod's claims and servers where its " +
		"spec mounts them, no other ones, and their data is never removed."}
}

func (o *volumeClaims) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerCreated:
		if o.mounts == nil {
			o.mounts = map[string][]truth.Mount{}
		}
		o.mounts[f.ContainerID] = f.Mounts
	case truth.ContainerStarted:
		mounts := o.mounts[f.ContainerID]
		delete(o.mounts, f.ContainerID)
		return o.checkStart(m, f, mounts)
	case truth.PathRemoved:
		if f.Cause == "" {
			return o.checkRemoval(m, f)
		}
	}
	return nil
}

// checkStart checks what a container sees that is started.
func (o *volumeClaims) checkStart(m *model, f *truth.Fact, mounts []truth.Mount) *finding {
	p := m.pods[f.PodUID]
	if p == nil || p.spec == nil {
		return nil
	}
	c := containerOf(p.spec, f.Container)
	if c == nil {
		return nil
	}
	for i := range c.VolumeMounts {
		mount := &c.VolumeMounts[i]
		of := slices.IndexFunc(p.spec.Spec.Volumes, func(v v1.Volume) bool {
			return v.Name == mount.Name
		})
		if of < 0 || !isBacked(&p.spec.Spec.Volumes[of]) {
			continue
		}
		v := &p.spec.Spec.Volumes[of]
		wanted := m.volumes.backingOf(p.spec, v, m.opts.PodsDir+"/"+f.PodUID)
		if wanted == nil {
			return findingf("container %s of %s was started, and volume %s has nothing that backs it",
				f.Container, p, v.Name)
		}
		at := slices.IndexFunc(mounts, func(m truth.Mount) bool {
			return m.ContainerPath == path.Join("/", mount.MountPath)
		})
		if at < 0 {
			return findingf("container %s of %s was started without volume %s", f.Container, p, v.Name)
		}
		want := place{wanted.at.source, path.Join(wanted.at.path, mount.SubPath)}
		if m.isDeceived(wanted.path, f.Time) { // it sees what is below the mount that is missing
			want = place{nodeDisk, path.Join(wanted.path, mount.SubPath)}
		}
		if got := m.volumes.lookup(mounts[at].HostPath); got != want {
			return findingf("container %s of %s sees %s of %s at %s, not %s of %s (volume %s)",
				f.Container, p, got.path, got.source, mount.MountPath, want.path, want.source, v.Name)
		}
	}
	return nil
}

// checkRemoval checks that a removed path is not in a persistent volume.
func (o *volumeClaims) checkRemoval(m *model, f *truth.Fact) *finding {
	at := m.volumes.lookup(f.Path)
	if at.source != nodeDisk && !strings.HasPrefix(at.source, "tmpfs") {
		return findingf("%s was removed, which is %s of %s", f.Path, at.path, at.source)
	}
	for name, volume := range m.volumes.volumes { //ordered: whether there is one
		dir := ""
		switch s := &volume.Spec; {
		case s.HostPath != nil:
			dir = s.HostPath.Path
		case s.Local != nil:
			dir = s.Local.Path
		}
		if dir != "" && at.source == nodeDisk && isWithin(at.path, dir) {
			return findingf("%s was removed, which is data of volume %s", f.Path, name)
		}
	}
	return nil
}
