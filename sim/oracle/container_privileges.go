package oracle

import (
	"cmp"
	"path"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// What a container may do by its spec, in the words of the CRI: a part of the oracle
// container-config.

// setWantedPrivileges sets the namespaces and the security context of a container.
func (m *model) setWantedPrivileges(s settings, spec *v1.Pod, c *v1.Container, f *truth.Fact,
	ids truth.IDs) {
	own, pod := v1.SecurityContext{}, v1.PodSecurityContext{}
	if c.SecurityContext != nil {
		own = *c.SecurityContext
	}
	if spec.Spec.SecurityContext != nil {
		pod = *spec.Spec.SecurityContext
	}
	m.setWantedNamespaces(s, spec, c, f, ids)
	privileged := own.Privileged != nil && *own.Privileged
	s.set("privileged", privileged)
	if own.Capabilities != nil {
		s.set("added capabilities", own.Capabilities.Add)
		s.set("dropped capabilities", own.Capabilities.Drop)
	}
	if group := cmp.Or(own.RunAsGroup, pod.RunAsGroup); group != nil {
		s.set("group", *group)
	}
	s.setGroups(&pod, m.volumeGroups(spec)...)
	s.set("read-only root", own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem)
	mayEscalate := own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation ||
		privileged || own.Capabilities != nil && slices.Contains(own.Capabilities.Add, "CAP_SYS_ADMIN")
	s.set("no new privileges", !mayEscalate)
	s.set("seccomp", m.seccompText(cmp.Or(own.SeccompProfile, pod.SeccompProfile)))
	s.set("AppArmor", appArmorText(cmp.Or(own.AppArmorProfile, pod.AppArmorProfile)))
	if o := cmp.Or(own.SELinuxOptions, pod.SELinuxOptions); o != nil {
		s.set("SELinux", selinuxText(&runtimeapi.SELinuxOption{User: o.User, Role: o.Role,
			Type: o.Type, Level: o.Level}))
	}
	s.set("unmasked /proc", own.ProcMount != nil && *own.ProcMount == v1.UnmaskedProcMount)
}

// setGroups sets the supplemental groups of every process of the pod: the group of its volumes is
// among them, since no process could read their files without it. More are those that persistent
// volumes name.
func (s settings) setGroups(pod *v1.PodSecurityContext, more ...int64) {
	var groups []int64
	if pod.FSGroup != nil {
		groups = append(groups, *pod.FSGroup)
	}
	s.set("groups", slices.Concat(groups, pod.SupplementalGroups, more))
	s.set("groups policy", cmp.Or(value(pod.SupplementalGroupsPolicy),
		v1.SupplementalGroupsPolicyMerge))
}

// annotationGroup names the group of the files of a persistent volume.
const annotationGroup = "pv.beta.kubernetes.io/gid"

// volumeGroups returns the groups that the persistent volumes of a pod's claims name.
func (m *model) volumeGroups(spec *v1.Pod) (groups []int64) {
	for i := range spec.Spec.Volumes {
		v := &spec.Spec.Volumes[i]
		pv := m.volumes.volumeOf(spec, v)
		if pv == nil || !usesVolume(spec, v.Name) {
			continue
		}
		group, err := strconv.ParseInt(pv.Annotations[annotationGroup], 10, 64)
		if err == nil && !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	return groups
}

// setWantedNamespaces sets the namespaces of a container. An ephemeral one with a target sees the
// processes of a run of the target (kubectl debug --target).
func (m *model) setWantedNamespaces(s settings, spec *v1.Pod, c *v1.Container, f *truth.Fact,
	ids truth.IDs) {
	s.setSandboxNamespaces(spec, ids)
	target := ""
	for i := range spec.Spec.EphemeralContainers {
		if e := &spec.Spec.EphemeralContainers[i]; e.Name == c.Name {
			target = e.TargetContainerName
		}
	}
	id := f.ContainerConfig.GetLinux().GetSecurityContext().GetNamespaceOptions().GetTargetId()
	seen := m.containers[id]
	if s["pid namespace"] == "CONTAINER" && target != "" && seen != nil && seen.name == target &&
		seen.pod.uid == f.PodUID {
		s["pid namespace"], s["target"] = "TARGET", id
	}
}

// setSandboxNamespaces sets the namespaces that all containers of a pod have.
func (s settings) setSandboxNamespaces(spec *v1.Pod, ids truth.IDs) {
	of := func(isHosts bool, otherwise runtimeapi.NamespaceMode) runtimeapi.NamespaceMode {
		if isHosts {
			return runtimeapi.NamespaceMode_NODE
		}
		return otherwise
	}
	pid := runtimeapi.NamespaceMode_CONTAINER
	if value(spec.Spec.ShareProcessNamespace) {
		pid = runtimeapi.NamespaceMode_POD
	}
	s.set("pid namespace", of(spec.Spec.HostPID, pid))
	s.set("network namespace", of(spec.Spec.HostNetwork, runtimeapi.NamespaceMode_POD))
	s.set("ipc namespace", of(spec.Spec.HostIPC, runtimeapi.NamespaceMode_POD))
	s.set("user namespace", ids)
}

// seccompText describes a seccomp profile; a container without one is not confined.
func (m *model) seccompText(p *v1.SeccompProfile) string {
	switch {
	case p == nil || p.Type == v1.SeccompProfileTypeUnconfined:
		return "Unconfined"
	case p.Type == v1.SeccompProfileTypeLocalhost:
		return "Localhost " + path.Join(path.Dir(m.opts.PodsDir), "seccomp", value(p.LocalhostProfile))
	}
	return "RuntimeDefault"
}

// appArmorText describes an AppArmor profile; without one the runtime decides.
func appArmorText(p *v1.AppArmorProfile) string {
	switch {
	case p == nil:
		return ""
	case p.Type == v1.AppArmorProfileTypeLocalhost:
		return "Localhost " + value(p.LocalhostProfile)
	}
	return string(p.Type)
}

// value returns what a pointer points to; the zero value if it is nil.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
