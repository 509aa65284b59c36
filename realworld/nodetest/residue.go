package nodetest

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"seedlet.dev/realworld/owned"
)

// Residue lists what pods have left on a node that runs on: processes, mounts, cgroups, network
// results and addresses. An empty list is what a node without pods has.
func (n *Node) Residue() ([]string, error) {
	r, err := find(n.Dir)
	if err != nil {
		return nil, err
	}
	r.bridge, r.present = "", false      // they are the node's
	standing := func(path string) bool { // a cgroup of the agent, for pods to come
		return strings.Contains(path, CgroupRoot(n.Dir)) && !strings.Contains(path, "/pod") &&
			!idForm.MatchString(path)
	}
	r.files = slices.DeleteFunc(r.files, func(path string) bool {
		return strings.HasPrefix(path, "/sys/fs/cgroup/") && standing(path)
	})
	r.procs = slices.DeleteFunc(r.procs, func(p owned.Process) bool {
		return p.Name == "containerd" || p.Name == "seedlet"
	})
	lines := r.Lines()
	reserved, _ := filepath.Glob(filepath.Join(n.Dir, "ipam", owned.BridgeName(n.Dir), "*"))
	for _, path := range reserved {
		if _, err := netip.ParseAddr(filepath.Base(path)); err == nil {
			lines = append(lines, "address "+filepath.Base(path))
		}
	}
	return lines, nil
}

// Gateway is the node's own address in the network of its pods.
func (n *Node) Gateway() netip.Addr { return n.subnet.Addr().Next() }
