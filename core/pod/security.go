package pod

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/sysctl"
)

// What the processes of a pod may do, as its security contexts say it and as the runtime is told.
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/

// sandboxSecurity is what holds for the sandbox itself. Its own process always gets the runtime's
// seccomp profile, for one made for the containers might not let it start (upstream #84623).
func (p *Pod) sandboxSecurity() *runtimeapi.LinuxSandboxSecurityContext {
	spec := &p.Spec.Spec
	s := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: p.namespaces(),
		Privileged:       privileged(spec),
		Seccomp:          profileOf(runtimeapi.SecurityProfile_RuntimeDefault),
	}
	pod := spec.SecurityContext
	if pod == nil {
		return s
	}
	s.RunAsUser = id(pod.RunAsUser)
	if pod.RunAsUser != nil {
		s.RunAsGroup = id(pod.RunAsGroup) // a runtime must refuse a group without a user
	}
	s.SupplementalGroups, s.SupplementalGroupsPolicy = groups(pod)
	s.SelinuxOptions = seLinux(pod.SELinuxOptions)
	return s
}

// containerSecurity is what holds for a container. Whom it runs as is told even if it is the
// image's choice, as the kubelet does: the group is not the image's then (USER 1000:2000), which
// it would be if the runtime were left to look.
func (p *Pod) containerSecurity(want *v1.Container, user image.User,
	node *Node) *runtimeapi.LinuxContainerSecurityContext {
	spec := &p.Spec.Spec
	e := effective(spec, want)
	s := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: p.namespaces(),
		Privileged:       isTrue(e.Privileged),
		Capabilities:     capabilities(e.Capabilities),
		SelinuxOptions:   seLinux(e.SELinuxOptions),
		RunAsUser:        id(e.RunAsUser),
		RunAsGroup:       id(e.RunAsGroup),
		ReadonlyRootfs:   isTrue(e.ReadOnlyRootFilesystem),
		NoNewPrivs:       noNewPrivs(&e),
		Seccomp:          seccomp(e.SeccompProfile, node),
		Apparmor:         appArmor(e.AppArmorProfile),
	}
	if e.ProcMount == nil || *e.ProcMount != v1.UnmaskedProcMount {
		s.MaskedPaths, s.ReadonlyPaths = slices.Clone(maskedPaths), slices.Clone(readonlyPaths)
	}
	if spec.SecurityContext != nil {
		s.SupplementalGroups, s.SupplementalGroupsPolicy = groups(spec.SecurityContext)
	}
	switch {
	case s.RunAsUser != nil:
	case user.Name != "":
		s.RunAsUsername = user.Name
	case user.UID != nil:
		s.RunAsUser = id(user.UID)
	default:
		s.RunAsUser = &runtimeapi.Int64Value{}
	}
	return s
}

// effective is the security context of a container, with what it leaves open as the pod's says.
func effective(spec *v1.PodSpec, c *v1.Container) v1.SecurityContext {
	var e v1.SecurityContext
	if c.SecurityContext != nil {
		e = *c.SecurityContext
	}
	pod := spec.SecurityContext
	if pod == nil {
		return e
	}
	e.RunAsUser = cmp.Or(e.RunAsUser, pod.RunAsUser)
	e.RunAsGroup = cmp.Or(e.RunAsGroup, pod.RunAsGroup)
	e.RunAsNonRoot = cmp.Or(e.RunAsNonRoot, pod.RunAsNonRoot)
	e.SELinuxOptions = cmp.Or(e.SELinuxOptions, pod.SELinuxOptions)
	e.SeccompProfile = cmp.Or(e.SeccompProfile, pod.SeccompProfile)
	e.AppArmorProfile = cmp.Or(e.AppArmorProfile, pod.AppArmorProfile)
	return e
}

// asRoot is an error if a container is to run as root and must not.
func (p *Pod) asRoot(want *v1.Container) error {
	e := effective(&p.Spec.Spec, want)
	if !isTrue(e.RunAsNonRoot) || e.RunAsUser == nil || *e.RunAsUser != 0 {
		return nil
	}
	return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)",
		p.logged(), want.Name)
}

// groups are the supplemental groups of every process, and whether those that the image has for
// its user are added. The group of the volumes is one, or their files could not be read.
func groups(pod *v1.PodSecurityContext) ([]int64, runtimeapi.SupplementalGroupsPolicy) {
	var all []int64
	if pod.FSGroup != nil {
		all = append(all, *pod.FSGroup)
	}
	all = append(all, pod.SupplementalGroups...)
	policy := pod.SupplementalGroupsPolicy
	if policy != nil && *policy == v1.SupplementalGroupsPolicyStrict {
		return all, runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return all, runtimeapi.SupplementalGroupsPolicy_Merge
}

// privileged says whether any container of the pod is.
func privileged(spec *v1.PodSpec) bool {
	is := func(c v1.Container) bool {
		return c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
	}
	return slices.ContainsFunc(spec.InitContainers, is) || slices.ContainsFunc(spec.Containers, is)
}

// noNewPrivs says whether processes are kept from gaining privileges. A container that has them
// all, or nearly, is not: validation refuses to ask for both.
func noNewPrivs(e *v1.SecurityContext) bool {
	if e.AllowPrivilegeEscalation == nil || *e.AllowPrivilegeEscalation || isTrue(e.Privileged) {
		return false
	}
	return e.Capabilities == nil || !slices.Contains(e.Capabilities.Add, "CAP_SYS_ADMIN")
}

// seccompDir is where profiles of the node are, beside the directory of the pods.
const seccompDir = "seccomp"

func seccomp(profile *v1.SeccompProfile, node *Node) *runtimeapi.SecurityProfile {
	if profile == nil {
		return profileOf(runtimeapi.SecurityProfile_Unconfined)
	}
	switch profile.Type {
	case v1.SeccompProfileTypeLocalhost:
		local := profileOf(runtimeapi.SecurityProfile_Localhost)
		local.LocalhostRef = path.Join(path.Dir(node.PodsDir), seccompDir,
			*profile.LocalhostProfile)
		return local
	case v1.SeccompProfileTypeRuntimeDefault:
		return profileOf(runtimeapi.SecurityProfile_RuntimeDefault)
	}
	return profileOf(runtimeapi.SecurityProfile_Unconfined)
}

// appArmor is the profile of a container; nil leaves it to the runtime.
func appArmor(profile *v1.AppArmorProfile) *runtimeapi.SecurityProfile {
	if profile == nil {
		return nil
	}
	switch profile.Type {
	case v1.AppArmorProfileTypeLocalhost:
		local := profileOf(runtimeapi.SecurityProfile_Localhost)
		local.LocalhostRef = *profile.LocalhostProfile
		return local
	case v1.AppArmorProfileTypeUnconfined:
		return profileOf(runtimeapi.SecurityProfile_Unconfined)
	}
	return profileOf(runtimeapi.SecurityProfile_RuntimeDefault)
}

func profileOf(t runtimeapi.SecurityProfile_ProfileType) *runtimeapi.SecurityProfile {
	return &runtimeapi.SecurityProfile{ProfileType: t}
}

func capabilities(c *v1.Capabilities) *runtimeapi.Capability {
	if c == nil {
		return nil
	}
	converted := &runtimeapi.Capability{}
	for _, name := range c.Add {
		converted.AddCapabilities = append(converted.AddCapabilities, string(name))
	}
	for _, name := range c.Drop {
		converted.DropCapabilities = append(converted.DropCapabilities, string(name))
	}
	return converted
}

func seLinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func id(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

func isTrue(b *bool) bool { return b != nil && *b }

// The paths of /proc and /sys that a container with the default procMount does not see or cannot
// write, as every runtime and the kubelet have them.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{
		"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
	}
)

// sysctls are the kernel parameters of the sandbox's namespaces.
func sysctls(spec *v1.PodSpec) map[string]string {
	if spec.SecurityContext == nil || len(spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	all := map[string]string{}
	for _, s := range spec.SecurityContext.Sysctls {
		all[sysctl.Name(s.Name)] = s.Value
	}
	return all
}
