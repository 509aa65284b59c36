package runtime

import (
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
