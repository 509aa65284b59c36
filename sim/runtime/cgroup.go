package runtime

import (
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// cgroup is the directory of the cgroup that a sandbox and its containers are in; empty if the
// runtime chose it.
func (s *sandbox) cgroup() string {
	return strings.Trim(s.config.GetLinux().GetCgroupParent(), "/")
}

// ids are those of its user namespace.
func (s *sandbox) ids() truth.IDs {
	users := s.config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions()
	if users.GetMode() != runtimeapi.NamespaceMode_POD || len(users.GetUids()) != 1 {
		return truth.IDs{}
	}
	return truth.IDs{First: users.Uids[0].HostId, Length: users.Uids[0].Length}
}

// enter has something run in the cgroup of a sandbox.
func (r *Runtime) enter(s *sandbox) {
	if r.opts.EnterCgroup != nil && s != nil && s.cgroup() != "" {
		r.opts.EnterCgroup(s.cgroup())
	}
}

// KillCgroup ends every process in a cgroup and in those below it: of containers, and those that
// hold sandboxes.
func (r *Runtime) KillCgroup(dir string) {
	for _, s := range r.sandboxOrder {
		in := s.cgroup()
		if in != dir && !strings.HasPrefix(in, dir+"/") {
			continue
		}
		for _, c := range r.inSandbox(s) {
			if c.State == running {
				r.exit(c, exitOnKill, truth.CauseKilled)
			}
		}
		r.KillSandbox(s.ID)
	}
}
