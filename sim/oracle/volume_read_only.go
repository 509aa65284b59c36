package oracle

import (
	"path"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// volumeReadOnly fires when a container can write to a volume that the agent fills. The other
// containers of the pod trust its content, and so does the agent when it replaces the content
// (CVE-2017-1002102).
type volumeReadOnly struct{}

func (*volumeReadOnly) describe() Entry {
	return Entry{"volume-read-only", "A container sees volumes of ConfigMaps, Secrets, fields and " +
		"projections, sub-paths included, and mounts that its spec has as read-only, read-only."}
}

func (*volumeReadOnly) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind != truth.ContainerCreated {
		return nil
	}
	for _, mount := range f.Mounts {
		if !mount.ReadOnly && (m.isContentPath(f.PodUID, mount.HostPath) || m.mustBeReadOnly(f, mount)) {
			return findingf("container %s of %s can write to %s (%s)", f.Container, f.PodName,
				mount.ContainerPath, mount.HostPath)
		}
	}
	return nil
}

// isContentPath reports whether a path of the node is in a volume that the agent fills for a pod.
func (m *model) isContentPath(uid, p string) bool {
	dir := m.opts.PodsDir + "/" + uid
	pod := m.pods[uid]
	if pod == nil || !isWithin(p, dir) {
		return false
	}
	for _, spec := range pod.specs {
		for i := range spec.Spec.Volumes {
			v := &spec.Spec.Volumes[i]
			if hasContent(v) && (isWithin(p, volumePath(dir, v)) ||
				isWithin(p, subPathsDir(dir)+"/"+v.Name)) {
				return true
			}
		}
	}
	return false
}

func hasContent(v *v1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
}

// mustBeReadOnly reports whether the spec of a created container has a mount as read-only.
func (m *model) mustBeReadOnly(f *truth.Fact, mount truth.Mount) bool {
	pod := m.pods[f.PodUID]
	if pod == nil {
		return false
	}
	for _, spec := range pod.specs {
		c := m.createdFrom(spec, f)
		if c == nil {
			continue
		}
		for i := range c.VolumeMounts {
			at := path.Join("/", c.VolumeMounts[i].MountPath)
			if c.VolumeMounts[i].ReadOnly && at == mount.ContainerPath {
				return true
			}
		}
	}
	return false
}
