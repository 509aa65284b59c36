package criconfig

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/volume"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// mounts returns the mounts of a container. It fails if the spec asks for a mount that is not
// possible, whatever the images are.
func (p *Pod) mounts(container *v1.Container, variables *Variables,
	images Images) ([]*runtimeapi.Mount, error) {
	var mounts []*runtimeapi.Mount
	for i := range container.VolumeMounts {
		m := &container.VolumeMounts[i]
		v := p.Volumes[m.Name]
		if v == nil {
			return nil, fmt.Errorf("volume %q of the mount at %s not found", m.Name, m.MountPath)
		}
		recursive, err := RecursiveReadOnly(m, p.Node)
		if err != nil {
			return nil, fmt.Errorf("failed to resolve recursive read-only mode: %w", err)
		}
		if v.Image != nil {
			sub, err := subPath(m, variables)
			if err != nil {
				return nil, err
			}
			mounts = append(mounts, &runtimeapi.Mount{
				ContainerPath: absolutePath(m.MountPath), Readonly: true, RecursiveReadOnly: recursive,
				Image: imageSpec(images.Volumes[v.Name], v.Image.Reference), ImageSubPath: sub,
			})
			continue
		}
		bind, err := p.SubPathBind(container, i, variables)
		if err != nil {
			return nil, err
		}
		place := p.place(v)
		if place.Block {
			return nil, fmt.Errorf("cannot find volume %q to mount into container %q", m.Name,
				container.Name)
		}
		source := place.Path
		if bind != nil {
			source = bind.Target
		}
		mounts = append(mounts, &runtimeapi.Mount{
			ContainerPath: absolutePath(m.MountPath), HostPath: source,
			Readonly:          m.ReadOnly || place.ReadOnly,
			RecursiveReadOnly: recursive, Propagation: mountPropagation(m.MountPropagation),
			// The runtime gives every sandbox categories of its own, which the files of its volumes need.
			// A hostPath is the node's: the pod may not relabel it.
			SelinuxRelabel: p.Node.SELinux && place.Relabel,
		})
	}
	if p.NeedsHostsFile(container) {
		mounts = append(mounts, &runtimeapi.Mount{
			ContainerPath: etcHosts, HostPath: p.Node.HostsFilePath(string(p.Spec.UID)),
			SelinuxRelabel: p.Node.SELinux,
		})
	}
	return mounts, nil
}

// devices returns the devices of a container: those of the block volumes that it names
// (makeBlockVolumes in pkg/kubelet/kubelet_pods.go).
func (p *Pod) devices(container *v1.Container) ([]*runtimeapi.Device, error) {
	var devices []*runtimeapi.Device
	for i := range container.VolumeDevices {
		d := &container.VolumeDevices[i]
		if !path.IsAbs(d.DevicePath) {
			return nil, fmt.Errorf("error DevicePath `%s` must be an absolute path", d.DevicePath)
		}
		var at volume.Place
		if v := p.Volumes[d.Name]; v != nil {
			at = p.place(v)
		}
		if !at.Block {
			return nil, fmt.Errorf("cannot find volume %q to pass into container %q", d.Name,
				container.Name)
		}
		permissions := "mrw"
		if at.ReadOnly {
			permissions = "r"
		}
		devices = append(devices, &runtimeapi.Device{ContainerPath: d.DevicePath, HostPath: at.Path,
			Permissions: permissions})
	}
	return devices, nil
}

// place returns where a volume of the pod is on the node.
func (p *Pod) place(v *v1.Volume) volume.Place {
	set := p.Mounted
	if set == nil {
		set = &volume.Set{}
	}
	return set.Place(p.dir(), v)
}

// dir returns the pod's directory.
func (p *Pod) dir() string { return p.Node.PodDir(string(p.Spec.UID)) }

// messageMount returns the mount of the file to which a run writes its termination message; none if
// the container has no path for it.
func (p *Pod) messageMount(container *v1.Container, run *Run) []*runtimeapi.Mount {
	if container.TerminationMessagePath == "" {
		return nil
	}
	return []*runtimeapi.Mount{{
		ContainerPath:  absolutePath(container.TerminationMessagePath),
		HostPath:       p.Node.MessageFilePath(string(p.Spec.UID), container.Name, run.Restarts),
		SelinuxRelabel: p.Node.SELinux, // only this run has the file
	}}
}

// mapIDs makes the files of mounts appear with the pod's IDs, if it has its own.
func (p *Pod) mapIDs(mounts []*runtimeapi.Mount) []*runtimeapi.Mount {
	if !p.IDs.IsEmpty() {
		for _, m := range mounts {
			m.UidMappings, m.GidMappings = p.IDs.IDMappings(), p.IDs.IDMappings()
		}
	}
	return mounts
}

// SubPathBind returns the operation that makes the subpath of a container's mount i appear at the
// path that the runtime mounts; nil for a mount of a whole volume, and for one of an image, which
// the runtime mounts itself.
func (p *Pod) SubPathBind(container *v1.Container, i int,
	variables *Variables) (*world.BindSubPath, error) {
	m := &container.VolumeMounts[i]
	v := p.Volumes[m.Name]
	if v == nil {
		return nil, fmt.Errorf("volume %q of the mount at %s not found", m.Name, m.MountPath)
	}
	sub, err := subPath(m, variables)
	if sub == "" || v.Image != nil || err != nil {
		return nil, err
	}
	place := p.place(v)
	return &world.BindSubPath{
		Root: place.Path, SubPath: sub, Target: volumeop.SubPathDir(p.dir()) +
			"/" + place.Name + "/" + container.Name + "/" + strconv.Itoa(i),
	}, nil
}

const (
	// subPathExprMax bounds a subPathExpr before it is expanded: a reference may be longer than its
	// value, and whatever is expanded at each plan takes time.
	subPathExprMax = 64 << 10
	missingNamed   = 5 // variables that an error names
)

// subPath returns the path within a volume that is mounted; empty for the whole volume.
func subPath(m *v1.VolumeMount, variables *Variables) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		if len(m.SubPathExpr) > subPathExprMax {
			return "", budget.SubPathBytes.Errorf(
				"subPathExpr of volume mount %q has %d bytes before it is expanded, at most %d", m.Name,
				len(m.SubPathExpr), subPathExprMax)
		}
		if names := missingVariables(m.SubPathExpr, variables); len(names) > missingNamed {
			return "", fmt.Errorf("missing value for %s and %d others",
				strings.Join(names[:missingNamed], ", "), len(names)-missingNamed)
		} else if len(names) > 0 {
			return "", fmt.Errorf("missing value for %s", strings.Join(names, ", "))
		}
		var fits bool
		if sub, fits = expand(m.SubPathExpr, budget.SubPathMax, variables); !fits {
			return "", budget.SubPathBytes.Errorf("subPathExpr of volume mount %q is longer than %d bytes",
				m.Name, budget.SubPathMax)
		}
	}
	switch {
	case path.IsAbs(sub):
		return "", fmt.Errorf("subPath %q must not be an absolute path", sub)
	case slices.Contains(strings.Split(sub, "/"), ".."):
		return "", fmt.Errorf("subPath %q must not contain '..'", sub)
	case strings.ContainsRune(sub, 0):
		return "", fmt.Errorf("subPath %q must not contain a zero byte", sub)
	}
	return sub, nil
}

// absolutePath returns the path of a mount in a container: a relative one is below the root.
func absolutePath(p string) string { return path.Join("/", p) }

func mountPropagation(mode *v1.MountPropagationMode) runtimeapi.MountPropagation {
	if mode != nil {
		switch *mode {
		case v1.MountPropagationHostToContainer:
			return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case v1.MountPropagationBidirectional:
			return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}

// RecursiveReadOnly reports whether mounts within a mounted volume are read-only as well
// (KEP-3857). It fails if the spec requires that and the runtime does not support it, or if that
// contradicts the rest of the mount.
func RecursiveReadOnly(m *v1.VolumeMount, node *Node) (bool, error) {
	if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return false, nil
	}
	if !m.ReadOnly {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not "+
			"read-only", m.Name)
	}
	if m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		return false, fmt.Errorf("volume %q requested recursive read-only mode, but it is not "+
			"compatible with propagation %q", m.Name, *m.MountPropagation)
	}
	switch *m.RecursiveReadOnly {
	case v1.RecursiveReadOnlyIfPossible:
		return node.RecursiveReadOnly, nil
	case v1.RecursiveReadOnlyEnabled:
		if !node.RecursiveReadOnly {
			return false, fmt.Errorf("volume %q requested recursive read-only mode, "+
				"but it is not supported by the runtime", m.Name)
		}
		return true, nil
	}
	return false, fmt.Errorf("unknown recursive read-only mode %q", *m.RecursiveReadOnly)
}
