package volume

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/world"
)

// The permission bits of created files and directories.
const (
	modeParent   = 0o750
	modeEmptyDir = 0o777 // containers run as any user
	// modeMemory is the kernel's default mode of a tmpfs, which the kubelet leaves: processes cannot
	// remove each other's files, as in /tmp.
	modeMemory   = 0o1777
	modeHostDir  = 0o755
	modeHostFile = 0o644
)

// steps returns the operations that an image, a host path or an emptyDir needs, in order. If the
// other ones depend on what exists at the path, the first one is a StatPath.
func (v *Volume) steps(spec *v1.Volume, pod *Pod) ([]any, error) {
	switch at := Path(pod.Dir, spec); {
	case spec.Image != nil:
		return nil, nil // the runtime mounts the image into the container
	case spec.HostPath != nil:
		return v.hostPathSteps(spec.HostPath, at)
	case spec.EmptyDir.Medium == v1.StorageMediumDefault:
		return v.emptyDirSteps(at, pod)
	default:
		return memorySteps(spec.EmptyDir, at, pod)
	}
}

// emptyDirSteps returns the operations for a directory on the disk. An existing directory is not
// changed: a container may have changed its permissions.
func (v *Volume) emptyDirSteps(at string, pod *Pod) ([]any, error) {
	steps := []any{&world.StatPath{Path: at}}
	switch {
	case v.StepsDone == 0 || v.Found == world.PathDirectory:
	case v.Found == "":
		steps = append(steps, &world.MakeDir{Path: path.Dir(at), Mode: modeParent},
			&world.MakeDir{Path: at, Mode: modeEmptyDir})
	default:
		return nil, fmt.Errorf("%s is not a directory", at)
	}
	return append(steps, shareWithGroup(at, pod)...), nil
}

// shareWithGroup returns the operation that gives an empty volume to the group of the pod.
// spec.securityContext.fsGroupChangePolicy is for volumes that exist with content: none of these.
func shareWithGroup(at string, pod *Pod) []any {
	gid := fsGroup(pod.Spec)
	if gid == nil {
		return nil
	}
	return []any{&world.ShareWithGroup{Path: at, GID: *gid, OnRootMismatch: true}}
}

func fsGroup(pod *v1.Pod) *int64 {
	if pod.Spec.SecurityContext == nil {
		return nil
	}
	return pod.Spec.SecurityContext.FSGroup
}

// kindNames are the names of the required kinds of a path.
var kindNames = map[world.PathKind]string{
	world.PathDirectory: "a directory", world.PathFile: "a file",
	world.PathSocket: "a socket file", world.PathCharDevice: "a character device",
	world.PathBlockDevice: "a block device",
}

// hostPathSteps returns the operations that check a path of the node and, if its type allows that,
// create it.
func (v *Volume) hostPathSteps(source *v1.HostPathVolumeSource, at string) ([]any, error) {
	var required world.PathKind
	var create any
	switch t := *source.Type; t {
	case v1.HostPathUnset:
		return nil, nil
	case v1.HostPathDirectoryOrCreate:
		required, create = world.PathDirectory, &world.MakeDir{Path: at, Mode: modeHostDir}
	case v1.HostPathFileOrCreate:
		required, create = world.PathFile, &world.MakeFile{Path: at, Mode: modeHostFile}
	default:
		required = world.PathKind(t)
	}
	steps := []any{&world.StatPath{Path: at}}
	switch {
	case v.StepsDone == 0 || v.Found == required:
		return steps, nil
	case v.Found == "" && create != nil:
		return append(steps, create), nil
	}
	return nil, fmt.Errorf("hostPath type check failed: %s is not %s", at, kindNames[required])
}

// memorySteps returns the operations for a file system in memory, or in huge pages.
func memorySteps(source *v1.EmptyDirVolumeSource, at string, pod *Pod) ([]any, error) {
	body := &world.MountMemory{Path: at, Mode: modeEmptyDir}
	if source.Medium == v1.StorageMediumMemory {
		body.Mode, body.BytesMax = modeMemory, memoryMax(source, pod)
	} else {
		size, err := hugePageSize(source.Medium, pod.Spec)
		if err != nil {
			return nil, err
		}
		body.HugePages = size
	}
	steps := []any{&world.MakeDir{Path: path.Dir(at), Mode: modeParent}, body}
	return append(steps, shareWithGroup(at, pod)...), nil
}

// memoryMax returns the least of the memory that pods can have of the node, the limit of the pod's
// cgroup, and the volume's own limit. Upstream: calculateEmptyDirMemorySize in pkg/volume/emptydir.
func memoryMax(source *v1.EmptyDirVolumeSource, pod *Pod) int64 {
	limit := pod.MemoryBytes
	lowerTo := func(n int64) {
		if n > 0 && (n < limit || limit <= 0) {
			limit = n
		}
	}
	if totals := cgroup.TotalsOf(pod.Spec); totals.MemoryLimited {
		lowerTo(totals.MemoryLimit)
	}
	if source.SizeLimit != nil {
		lowerTo(source.SizeLimit.Value())
	}
	return limit
}

// hugePageSize returns the size of the huge pages of a volume, in the format of the kernel: the
// size of the medium, as in "HugePages-2Mi", or the only size that the containers of the pod
// request.
func hugePageSize(medium v1.StorageMedium, pod *v1.Pod) (string, error) {
	requested := map[string]bool{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Requests { //ordered: collected into a set
				size, isHugePages := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
				if isHugePages {
					requested[size] = true
				}
			}
		}
	}
	size, given := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	switch sizes := slices.Sorted(maps.Keys(requested)); {
	case given && !requested[size]:
		return "", fmt.Errorf("medium %s needs containers that request hugepages-%s", medium, size)
	case given:
	case len(sizes) != 1:
		return "", fmt.Errorf("medium %s needs containers that request huge pages of one size, "+
			"not %d", medium, len(sizes))
	default:
		size = sizes[0]
	}
	return strings.TrimSuffix(size, "i"), nil // the kernel's M is 2^20
}
