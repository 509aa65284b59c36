package volume

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	podresources "k8s.io/component-helpers/resource"

	"seedlet.dev/world"
)

// The permission bits of what is made.
const (
	modeParent   = 0o750
	modeEmptyDir = 0o777 // containers run as whoever they like
	modeHostDir  = 0o755
	modeHostFile = 0o644
)

// steps are the operations that a volume needs, in order. The first is a look where what there
// is decides about the others.
func (v *Volume) steps(want *v1.Volume, pod *Pod) ([]any, error) {
	switch at := Path(pod.Dir, want); {
	case want.Image != nil:
		return nil, nil // the runtime mounts it into the container
	case want.HostPath != nil:
		return v.hostPath(want.HostPath, at)
	case isContent(want):
		return pod.write(want, at)
	case want.EmptyDir.Medium == v1.StorageMediumDefault:
		return v.emptyDir(at, pod)
	default:
		return memory(want.EmptyDir, at, pod)
	}
}

// emptyDir makes a directory on the disk. One that is there is left alone: a container may have
// changed its permissions.
func (v *Volume) emptyDir(at string, pod *Pod) ([]any, error) {
	steps := []any{&world.StatPath{Path: at}}
	switch {
	case v.Steps == 0 || v.Found == world.PathDirectory:
	case v.Found == "":
		steps = append(steps, &world.MakeDir{Path: path.Dir(at), Mode: modeParent},
			&world.MakeDir{Path: at, Mode: modeEmptyDir})
	default:
		return nil, fmt.Errorf("%s is not a directory", at)
	}
	return append(steps, share(at, pod)...), nil
}

// share gives what has just been made, and is empty, to the group of the pod. The policy of
// spec.securityContext.fsGroupChangePolicy is about volumes that come with content: none here.
func share(at string, pod *Pod) []any {
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

// kinds are the words for what a path has to be.
var kinds = map[world.PathKind]string{
	world.PathDirectory: "a directory", world.PathFile: "a file",
	world.PathSocket: "a socket file", world.PathCharDevice: "a character device",
	world.PathBlockDevice: "a block device",
}

// hostPath checks what is at a path of the node, and makes it if it may.
func (v *Volume) hostPath(source *v1.HostPathVolumeSource, at string) ([]any, error) {
	var must world.PathKind
	var create any
	switch t := *source.Type; t {
	case v1.HostPathUnset:
		return nil, nil
	case v1.HostPathDirectoryOrCreate:
		must, create = world.PathDirectory, &world.MakeDir{Path: at, Mode: modeHostDir}
	case v1.HostPathFileOrCreate:
		must, create = world.PathFile, &world.MakeFile{Path: at, Mode: modeHostFile}
	default:
		must = world.PathKind(t)
	}
	steps := []any{&world.StatPath{Path: at}}
	switch {
	case v.Steps == 0 || v.Found == must:
		return steps, nil
	case v.Found == "" && create != nil:
		return append(steps, create), nil
	}
	return nil, fmt.Errorf("hostPath type check failed: %s is not %s", at, kinds[must])
}

// memory mounts a file system in memory, or in huge pages.
func memory(source *v1.EmptyDirVolumeSource, at string, pod *Pod) ([]any, error) {
	body := &world.MountMemory{Path: at, Mode: modeEmptyDir}
	if source.Medium == v1.StorageMediumMemory {
		body.BytesMax = memoryMax(source, pod)
	} else {
		size, err := pageSize(source.Medium, pod.Spec)
		if err != nil {
			return nil, err
		}
		body.HugePages = size
	}
	steps := []any{&world.MakeDir{Path: path.Dir(at), Mode: modeParent}, body}
	return append(steps, share(at, pod)...), nil
}

// memoryMax is the least of what the machine has, what the pod's containers may use together if
// all of them are limited, and the volume's own limit.
func memoryMax(source *v1.EmptyDirVolumeSource, pod *Pod) int64 {
	most := pod.MemoryBytes
	lower := func(q *resource.Quantity) {
		if n := q.Value(); n > 0 && (n < most || most <= 0) {
			most = n
		}
	}
	if limited(&pod.Spec.Spec) {
		limits := podresources.PodLimits(pod.Spec, podresources.PodResourcesOptions{})
		lower(limits.Memory())
	}
	if source.SizeLimit != nil {
		lower(source.SizeLimit)
	}
	return most
}

// limited says whether the memory of every container is limited.
func limited(spec *v1.PodSpec) bool {
	unlimited := func(c v1.Container) bool { return c.Resources.Limits.Memory().IsZero() }
	return !slices.ContainsFunc(spec.InitContainers, unlimited) &&
		!slices.ContainsFunc(spec.Containers, unlimited)
}

// pageSize is the size of the huge pages of a volume, as the kernel reads it: that of the
// medium, "HugePages-2Mi", or the only one that the containers of the pod ask for.
func pageSize(medium v1.StorageMedium, pod *v1.Pod) (string, error) {
	asked := map[string]bool{}
	for _, list := range [][]v1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			for name := range list[i].Resources.Requests { //ordered: collected into a set
				size, is := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
				if is {
					asked[size] = true
				}
			}
		}
	}
	size, given := strings.CutPrefix(string(medium), string(v1.StorageMediumHugePagesPrefix))
	switch sizes := slices.Sorted(maps.Keys(asked)); {
	case given && !asked[size]:
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
