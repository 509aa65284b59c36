package volume

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"sort"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
)

// Mount points within a volume. The runtime cannot create them in a volume that containers can only
// read, so the agent creates them before it writes the content: as directories, like the kubelet.

// nestedMountPoints returns the paths within a volume at which containers mount other volumes,
// sorted. Paths below another one of them are left out: they are within that other volume. So are
// those whose first element the content has, since that name must be a link.
func (p *Pod) nestedMountPoints(name string, files []contentFile) ([]string, error) {
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
		isLink[firstElement(files[i].path)] = true
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
// its content is behind a link, and replaced as a whole. Each path is looked at once, however deep
// mounts are nested in one another.
func addNested(points map[string]bool, name string, mounts []v1.VolumeMount) {
	isRoot := func(m v1.VolumeMount) bool {
		return m.Name == name && m.SubPath == "" && m.SubPathExpr == ""
	}
	if !slices.ContainsFunc(mounts, isRoot) {
		return
	}
	var all, roots []string // where volumes are mounted, and this one
	for i := range mounts {
		at := path.Join("/", mounts[i].MountPath)
		all = append(all, at)
		if isRoot(mounts[i]) {
			roots = append(roots, at)
		}
	}
	slices.SortFunc(all, comparePaths)
	slices.Sort(roots)
	all = slices.Compact(all)
	for _, root := range slices.Compact(roots) {
		i, _ := slices.BinarySearchFunc(all, root, comparePaths)
		for i++; i < len(all) && isBelow(all[i], root); i = endBelow(all, i) {
			points[strings.TrimPrefix(all[i][len(root):], "/")] = true
		}
	}
}

// endBelow returns the position after the paths that are below the one at a position.
func endBelow(sorted []string, i int) int {
	rest := sorted[i+1:]
	return i + 1 + sort.Search(len(rest), func(k int) bool { return !isBelow(rest[k], sorted[i]) })
}

// isBelow reports whether one path is below another one.
func isBelow(at, above string) bool {
	below, isPrefixed := strings.CutPrefix(at, above)
	return isPrefixed && below != "" && (below[0] == '/' || above == "/")
}

// comparePaths sorts paths by element: what is below a path follows the path directly. Paths can
// begin with the same thousands of bytes, which are compared in pieces.
func comparePaths(x, y string) int {
	const piece = 64
	i, both := 0, min(len(x), len(y))
	for i+piece <= both && x[i:i+piece] == y[i:i+piece] {
		i += piece
	}
	for i < both && x[i] == y[i] {
		i++
	}
	switch {
	case i == both:
		return cmp.Compare(len(x), len(y))
	case x[i] == '/':
		return -1
	case y[i] == '/':
		return 1
	}
	return cmp.Compare(x[i], y[i])
}
