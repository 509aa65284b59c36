package volume

import (
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// Mount points within a volume. The runtime cannot create them in a volume that containers can only
// read, so the agent creates them before it writes the content: as directories, like the kubelet.

// nestedMountPoints returns the paths within a volume at which containers mount other volumes,
// sorted. Paths below another one of them are left out: they are within that other volume. So are
// those whose first element the content has, since that name must be a link.
func (p *Pod) nestedMountPoints(name string, files []world.DirFile) ([]string, error) {
	points := map[string]bool{}
	spec := &p.Spec.Spec
	for i := range spec.InitContainers {
		addNested(points, name, spec.InitContainers[i].VolumeMounts)
	}
	for i := range spec.Containers {
		addNested(points, name, spec.Containers[i].VolumeMounts)
	}
	for i := range spec.EphemeralContainers {
		addNested(points, name, spec.EphemeralContainers[i].VolumeMounts)
	}
	if len(points) == 0 {
		return nil, nil
	}
	isLink := map[string]bool{}
	for i := range files {
		isLink[firstElement(files[i].Path)] = true
	}
	maps.DeleteFunc(points, func(point string, _ bool) bool { return isLink[firstElement(point)] })
	if len(points) > budget.NestedMountsMax {
		return nil, budget.NestedMounts.Errorf("%d volumes are mounted within it, more than %d",
			len(points), budget.NestedMountsMax)
	}
	return slices.Sorted(maps.Keys(points)), nil
}

func firstElement(at string) string {
	first, _, _ := strings.Cut(at, "/")
	return first
}

// addNested adds the mount points of one container within a volume. A mount of a sub-path has none:
// its content is behind a link, and replaced as a whole.
func addNested(points map[string]bool, name string, mounts []v1.VolumeMount) {
	var all, roots []string // where volumes are mounted, and this one
	for i := range mounts {
		m := &mounts[i]
		at := path.Join("/", m.MountPath)
		all = append(all, at)
		if m.Name == name && m.SubPath == "" && m.SubPathExpr == "" {
			roots = append(roots, at)
		}
	}
	if len(roots) == 0 {
		return
	}
	slices.SortFunc(all, comparePaths)
	for _, root := range roots {
		i, _ := slices.BinarySearchFunc(all, root, comparePaths)
		prefix, last := strings.TrimSuffix(root, "/")+"/", ""
		for _, at := range all[i:] { // first the root itself, then the paths below it
			below, isBelow := strings.CutPrefix(at, prefix)
			if !isBelow && at != root {
				break
			}
			if isBelow && below != "" && (last == "" || !strings.HasPrefix(below, last+"/")) {
				points[below], last = true, below
			}
		}
	}
}

// comparePaths sorts paths by element: what is below a path follows the path directly.
func comparePaths(x, y string) int {
	return strings.Compare(strings.ReplaceAll(x, "/", "\x00"), strings.ReplaceAll(y, "/", "\x00"))
}
