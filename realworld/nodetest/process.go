package nodetest

import (
	"slices"
	"strings"

	"seedlet.dev/realworld/owned"
)

// daemons are the programs that a node's directory may appear in the arguments of.
var daemons = []string{"containerd", "containerd-shim-runc-v2", "runc", "seedlet"}

// owner tells a node's processes from others: the daemons that were started on its directory, and
// everything in the cgroups of its containers.
type owner struct {
	dir string   // the node's directory
	ids []string // the node's containers
}

func (o owner) owns(p owned.Process) bool {
	return p.On(o.dir, daemons) || o.container(p) != ""
}

// container is the container that a process is in, empty if it is in none of the node's.
func (o owner) container(p owned.Process) string {
	i := slices.IndexFunc(o.ids, func(id string) bool {
		return strings.Contains(p.Cgroup, "/"+id)
	})
	if i < 0 {
		return ""
	}
	return o.ids[i]
}

// of is the container that a process of the node is in, or of a shim, that it was started for.
func (o owner) of(p owned.Process) string {
	id := o.container(p)
	if i := slices.Index(p.Args, "-id"); id == "" && i > 0 && i+1 < len(p.Args) {
		return p.Args[i+1]
	}
	return id
}
