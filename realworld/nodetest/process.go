package nodetest

import (
	"slices"
	"strings"

	"seedlet.dev/realworld/cleanup"
)

// daemons are the programs whose arguments contain a node's directory.
var daemons = []string{"containerd", "containerd-shim-runc-v2", "runc", "seedlet", "kubelet",
	"loopcsi"}

// nodeProcesses identifies a node's processes: the daemons that were started with its directory,
// and all processes in the cgroups of its containers.
type nodeProcesses struct {
	dir          string   // the node's directory
	containerIDs []string // the node's containers
}

func (o nodeProcesses) owns(p cleanup.Process) bool {
	return p.BelongsTo(o.dir, daemons) || o.containerByCgroup(p) != ""
}

// containerByCgroup returns the container whose cgroup a process is in; empty if the process is in
// none of the node's.
func (o nodeProcesses) containerByCgroup(p cleanup.Process) string {
	i := slices.IndexFunc(o.containerIDs, func(id string) bool {
		return strings.Contains(p.Cgroup, "/"+id)
	})
	if i < 0 {
		return ""
	}
	return o.containerIDs[i]
}

// containerOf returns the container of a process of the node: the one it is in or, for a shim,
// the one that it was started for.
func (o nodeProcesses) containerOf(p cleanup.Process) string {
	id := o.containerByCgroup(p)
	if i := slices.Index(p.Args, "-id"); id == "" && i > 0 && i+1 < len(p.Args) {
		return p.Args[i+1]
	}
	return id
}
