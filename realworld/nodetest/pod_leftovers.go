package nodetest

import (
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"seedlet.dev/realworld/cleanup"
)

// PodLeftovers lists what pods have left on a running node: processes, mounts, cgroups, CNI results
// and addresses. The list of a node without pods is empty.
func (n *Node) PodLeftovers() ([]string, error) {
	r, err := findLeftovers(n.Dir)
	if err != nil {
		return nil, err
	}
	r.bridge, r.dirExists = "", false    // these are the node's, not the pods'
	standing := func(path string) bool { // a cgroup of the agent that stays for later pods
		return strings.Contains(path, CgroupRoot(n.Dir)) && !strings.Contains(path, "/pod") &&
			!idPattern.MatchString(path)
	}
	r.files = slices.DeleteFunc(r.files, func(path string) bool {
		return strings.HasPrefix(path, "/sys/fs/cgroup/") && standing(path)
	})
	r.procs = slices.DeleteFunc(r.procs, func(p cleanup.Process) bool {
		return slices.Contains([]string{"containerd", "seedlet", "kubelet"}, p.Name)
	})
	lines := r.Lines()
	reserved, _ := filepath.Glob(filepath.Join(n.Dir, "ipam", cleanup.BridgeName(n.Dir), "*"))
	for _, path := range reserved {
		if _, err := netip.ParseAddr(filepath.Base(path)); err == nil {
			lines = append(lines, "address "+filepath.Base(path))
		}
	}
	return lines, nil
}

// Gateway returns the node's own address in the network of its pods.
func (n *Node) Gateway() netip.Addr { return n.subnet.Addr().Next() }
