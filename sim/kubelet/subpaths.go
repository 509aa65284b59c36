package kubelet

import (
	"fmt"
	"path"
	"strconv"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Sub-paths of volumes (pkg/volume/util/subpath): each is bound in the directory of its pod, by the
// name of the volume's directory, of the container and of the mount, and is bound again for each
// run, which changes nothing if it is there. A kubelet undoes those of a volume before the volume.

func subPathsDir(podDir string) string { return podDir + "/volume-subpaths" }

// subPathOf returns where the sub-path of a container's mount is bound.
func (k *Kubelet) subPathOf(p *pod, c *v1.Container, i int) string {
	name := c.VolumeMounts[i].Name
	if u := p.used[name]; u != nil {
		name = u.name
	}
	return path.Join(subPathsDir(k.dir(p)), name, c.Name, strconv.Itoa(i))
}

// subPathSteps bind the sub-paths of a run of a container.
func (k *Kubelet) subPathSteps(p *pod, c *v1.Container, run string) []*step {
	var steps []*step
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		if m.SubPath == "" {
			continue
		}
		steps = append(steps, &step{fmt.Sprintf("subpath %s %d", run, i), world.PortFS,
			&world.BindSubPath{Root: k.volumePath(p, p.volume(m.Name)), SubPath: m.SubPath,
				Target: k.subPathOf(p, c, i)}})
	}
	return steps
}

// subPathsRemovedSteps undo all sub-paths of a pod.
func (k *Kubelet) subPathsRemovedSteps(p *pod) []*step {
	dir := subPathsDir(k.dir(p))
	if !k.opts.Disk.Exists(dir) {
		return nil
	}
	return []*step{{"subpaths unmounted", world.PortFS, &world.Unmount{Path: dir}},
		{"subpaths removed", world.PortFS, &world.RemoveTree{Path: dir}}}
}

// subPathProblems returns which sub-paths of a pod a kubelet never undoes: it looks for them by the
// names of the pod's volumes.
func (l *Left) subPathProblems(uid string, p *v1.Pod) []string {
	known := map[string]bool{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		name := v.Name
		if pv := l.VolumeOf(p, v); pv != nil {
			name = pv.Name
		}
		known[name] = true
	}
	var problems []string
	dir := subPathsDir(l.RootDir + "/pods/" + uid)
	for _, name := range l.List(dir) {
		if !known[name] {
			problems = append(problems, fmt.Sprintf("the sub-paths in %s/%s stay for ever", dir, name))
		}
	}
	return problems
}
