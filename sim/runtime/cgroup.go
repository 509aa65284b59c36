package runtime

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// cgroupParent returns the cgroup of a sandbox and its containers; empty if the runtime chose it.
func (s *sandbox) cgroupParent() string {
	return strings.Trim(s.config.GetLinux().GetCgroupParent(), "/")
}

// userIDRange returns the IDs of the sandbox's user namespace.
func (s *sandbox) userIDRange() truth.IDs {
	users := s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if users.GetMode() != runtimeapi.NamespaceMode_POD || len(users.GetUids()) != 1 {
		return truth.IDs{}
	}
	return truth.IDs{First: users.Uids[0].HostId, Length: users.Uids[0].Length}
}

// enterCgroup runs a process in the cgroup of a sandbox.
func (r *Runtime) enterCgroup(s *sandbox) {
	if r.opts.EnterCgroup != nil && s != nil && s.cgroupParent() != "" {
		r.opts.EnterCgroup(s.cgroupParent())
	}
}

// limits returns the limits of the container.
func (c *container) limits() truth.Limits {
	r := c.resources()
	var pages, files []string
	for _, l := range r.GetHugepageLimits() {
		pages = append(pages, fmt.Sprintf("%s %d", l.PageSize, l.Limit))
	}
	for _, file := range slices.Sorted(maps.Keys(r.GetUnified())) {
		files = append(files, file+" "+r.Unified[file])
	}
	return truth.Limits{CPUShares: uint64(r.GetCpuShares()), CPUQuota: r.GetCpuQuota(),
		CPUPeriod: uint64(r.GetCpuPeriod()), MemoryBytes: r.GetMemoryLimitInBytes(),
		SwapBytes: r.GetMemorySwapLimitInBytes(), HugePages: strings.Join(pages, ", "),
		Files: strings.Join(files, ", ")}
}

// CgroupMemory returns what the containers in a cgroup and its descendants use of memory.
func (r *Runtime) CgroupMemory(dir string) int64 {
	used := int64(0)
	for _, s := range r.sandboxOrder {
		if in := s.cgroupParent(); in != dir && !strings.HasPrefix(in, dir+"/") {
			continue
		}
		for _, c := range r.containersIn(s) {
			if c.State == running {
				used += c.memoryUsage()
			}
		}
	}
	return used
}

// KillCgroup kills every process in a cgroup and its descendants: containers, and the processes
// that hold sandboxes.
func (r *Runtime) KillCgroup(dir string) {
	for _, s := range r.sandboxOrder {
		in := s.cgroupParent()
		if in != dir && !strings.HasPrefix(in, dir+"/") {
			continue
		}
		for _, c := range r.containersIn(s) {
			if c.State == running {
				r.exit(c, exitCodeKill, truth.CauseKilled)
			}
		}
		r.KillSandbox(s.ID)
	}
}
