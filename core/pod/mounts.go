package pod

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/volume"
	"seedlet.dev/world"
)

// What a container sees of the pod's volumes.

// mounts are the mounts of a container as the runtime is asked for them. It fails if a mount
// cannot be what the spec wants, whatever the images are.
func (p *Pod) mounts(want *v1.Container, env []*runtimeapi.KeyValue, from images,
	node *Node) ([]*runtimeapi.Mount, error) {
	var mounts []*runtimeapi.Mount
	security := effective(&p.Spec.Spec, want)
	relabel := security.SELinuxOptions != nil
	for i := range want.VolumeMounts {
		m := &want.VolumeMounts[i]
		v := p.volume(m.Name)
		if v == nil {
			return nil, fmt.Errorf("volume %q of the mount at %s not found", m.Name, m.MountPath)
		}
		recursive, err := recursiveReadOnly(m, node)
		if err != nil {
			return nil, err
		}
		if v.Image != nil {
			sub, err := subPath(m, env)
			if err != nil {
				return nil, err
			}
			mounts = append(mounts, &runtimeapi.Mount{
				ContainerPath: absolute(m.MountPath), Readonly: true, RecursiveReadOnly: recursive,
				Image: imageSpec(from.of(v.Name), v.Image.Reference), ImageSubPath: sub,
			})
			continue
		}
		bind, err := p.bind(want, i, env, node)
		if err != nil {
			return nil, err
		}
		source := volume.Path(p.dir(node), v)
		if bind != nil {
			source = bind.Target
		}
		mounts = append(mounts, &runtimeapi.Mount{
			ContainerPath: absolute(m.MountPath), HostPath: source, Readonly: m.ReadOnly,
			RecursiveReadOnly: recursive, Propagation: propagation(m.MountPropagation),
			// A path of the node is not the pod's to relabel.
			SelinuxRelabel: relabel && v.HostPath == nil && !m.ReadOnly,
		})
	}
	if p.hostsMounted(want) {
		mounts = append(mounts, &runtimeapi.Mount{
			ContainerPath: hostsInside, HostPath: p.hostsPath(node),
			Readonly: isTrue(security.ReadOnlyRootFilesystem), SelinuxRelabel: relabel,
		})
	}
	return mounts, nil
}

// bind is what makes the sub-path of a mount appear where the runtime is to take it from; nil for a
// mount of a whole volume, and for one of an image, which the runtime mounts itself.
func (p *Pod) bind(want *v1.Container, i int, env []*runtimeapi.KeyValue,
	node *Node) (*world.BindSubPath, error) {
	m := &want.VolumeMounts[i]
	v := p.volume(m.Name)
	if v == nil {
		return nil, fmt.Errorf("volume %q of the mount at %s not found", m.Name, m.MountPath)
	}
	sub, err := subPath(m, env)
	if sub == "" || v.Image != nil || err != nil {
		return nil, err
	}
	dir := p.dir(node)
	mode := uint32(0o755)
	if v.EmptyDir != nil {
		mode = 0o777 // as the volume itself, for whoever the container runs as
	}
	return &world.BindSubPath{
		Root: volume.Path(dir, v), SubPath: sub, Mode: mode,
		Target: volume.SubPaths(dir) + "/" + m.Name + "/" + want.Name + "/" + strconv.Itoa(i),
	}, nil
}

// subPath is the path within a volume that is mounted; empty for the whole volume.
func subPath(m *v1.VolumeMount, env []*runtimeapi.KeyValue) (string, error) {
	sub := m.SubPath
	if m.SubPathExpr != "" {
		if name := unknownVariable(m.SubPathExpr, env); name != "" {
			return "", fmt.Errorf("missing value for %q in subPathExpr of volume mount %q",
				name, m.Name)
		}
		sub = expand(m.SubPathExpr, env)
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

// unknownVariable is the first variable that a text refers to and that there is not.
func unknownVariable(text string, env []*runtimeapi.KeyValue) string {
	for {
		_, after, found := strings.Cut(text, "$")
		if !found {
			return ""
		}
		name, rest, closed := strings.Cut(strings.TrimPrefix(after, "("), ")")
		switch {
		case strings.HasPrefix(after, "$"):
			text = after[1:]
		case !strings.HasPrefix(after, "(") || !closed:
			text = after
		default:
			if _, is := lookup(name, env); !is {
				return name
			}
			text = rest
		}
	}
}

func (p *Pod) volume(name string) *v1.Volume {
	for i := range p.Spec.Spec.Volumes {
		if v := &p.Spec.Spec.Volumes[i]; v.Name == name {
			return v
		}
	}
	return nil
}

// absolute is the place of a mount in a container: one that is not absolute is below the root.
func absolute(p string) string { return path.Join("/", p) }

func propagation(mode *v1.MountPropagationMode) runtimeapi.MountPropagation {
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

// recursiveReadOnly says whether what is mounted within a volume is read-only as well (KEP-3857).
func recursiveReadOnly(m *v1.VolumeMount, node *Node) (bool, error) {
	if m.RecursiveReadOnly == nil {
		return false, nil
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
	return false, nil
}

// mountStatuses are a container's mounts as its status shows them.
func mountStatuses(want *v1.Container, node *Node) []v1.VolumeMountStatus {
	var statuses []v1.VolumeMountStatus
	for i := range want.VolumeMounts {
		m := &want.VolumeMounts[i]
		status := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if recursive, err := recursiveReadOnly(m, node); err == nil && recursive {
				mode = v1.RecursiveReadOnlyEnabled
			}
			status.RecursiveReadOnly = &mode
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// showMounts fills in the mounts of the container statuses, which are in the order of the spec.
func (p *Pod) showMounts(status *v1.PodStatus, node *Node) {
	for i := range status.InitContainerStatuses {
		status.InitContainerStatuses[i].VolumeMounts =
			mountStatuses(&p.Spec.Spec.InitContainers[i], node)
	}
	for i := range status.ContainerStatuses {
		status.ContainerStatuses[i].VolumeMounts = mountStatuses(&p.Spec.Spec.Containers[i], node)
	}
}
