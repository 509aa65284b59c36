package criconfig

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/sysctl"
)

// What the processes of a pod may do, by the security contexts of its spec.
// https://kubernetes.io/docs/tasks/configure-pod-container/security-context/

// sandboxSecurity returns the security context of the sandbox itself. The process of the sandbox
// always has the runtime's default seccomp profile: a profile that is made for the containers might
// not let it start (upstream #84623).
func (p *Pod) sandboxSecurity() *runtimeapi.LinuxSandboxSecurityContext {
	spec := &p.Spec.Spec
	s := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: p.namespaces(),
		Privileged:       hasPrivileged(spec),
		Seccomp:          newProfile(runtimeapi.SecurityProfile_RuntimeDefault),
	}
	pod := spec.SecurityContext
	if pod == nil {
		return s
	}
	s.RunAsUser = int64Value(pod.RunAsUser)
	if pod.RunAsUser != nil {
		s.RunAsGroup = int64Value(pod.RunAsGroup) // a runtime must refuse a group without a user
	}
	s.SupplementalGroups, s.SupplementalGroupsPolicy = supplementalGroups(pod)
	s.SelinuxOptions = seLinuxOptions(pod.SELinuxOptions)
	return s
}

// containerSecurity returns the security context of a container. The user is set even if the spec
// leaves the choice to the image, as the kubelet does. The group of an image with USER 1000:2000 is
// then not used; it would be if the runtime read the user of the image itself.
func (p *Pod) containerSecurity(container *v1.Container,
	user image.User) *runtimeapi.LinuxContainerSecurityContext {
	pod := &p.Spec.Spec
	e := EffectiveSecurityContext(pod, container)
	s := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: p.containerNamespaces(),
		Privileged:       isTrue(e.Privileged),
		Capabilities:     capabilities(e.Capabilities),
		SelinuxOptions:   seLinuxOptions(e.SELinuxOptions),
		RunAsUser:        int64Value(e.RunAsUser),
		RunAsGroup:       int64Value(e.RunAsGroup),
		ReadonlyRootfs:   isTrue(e.ReadOnlyRootFilesystem),
		NoNewPrivs:       noNewPrivileges(&e),
		Seccomp:          seccompProfile(e.SeccompProfile, p.Node),
		Apparmor:         appArmorProfile(e.AppArmorProfile),
	}
	if e.ProcMount == nil || *e.ProcMount != v1.UnmaskedProcMount {
		s.MaskedPaths, s.ReadonlyPaths = p.Node.maskedPaths(), slices.Clone(readonlyPaths)
	}
	if pod.SecurityContext != nil {
		s.SupplementalGroups, s.SupplementalGroupsPolicy = supplementalGroups(pod.SecurityContext)
	}
	s.SupplementalGroups = p.addVolumeGroups(s.SupplementalGroups)
	switch {
	case s.RunAsUser != nil:
	case user.Name != "":
		s.RunAsUsername = user.Name
	case user.UID != nil:
		s.RunAsUser = int64Value(user.UID)
	default:
		s.RunAsUser = &runtimeapi.Int64Value{}
	}
	return s
}

// EffectiveSecurityContext returns the security context of a container, with the pod's values for
// the fields that the container does not set.
func EffectiveSecurityContext(pod *v1.PodSpec, c *v1.Container) v1.SecurityContext {
	var e v1.SecurityContext
	if c.SecurityContext != nil {
		e = *c.SecurityContext
	}
	context := pod.SecurityContext
	if context == nil {
		return e
	}
	e.RunAsUser = cmp.Or(e.RunAsUser, context.RunAsUser)
	e.RunAsGroup = cmp.Or(e.RunAsGroup, context.RunAsGroup)
	e.RunAsNonRoot = cmp.Or(e.RunAsNonRoot, context.RunAsNonRoot)
	e.SELinuxOptions = cmp.Or(e.SELinuxOptions, context.SELinuxOptions)
	e.SeccompProfile = cmp.Or(e.SeccompProfile, context.SeccompProfile)
	e.AppArmorProfile = cmp.Or(e.AppArmorProfile, context.AppArmorProfile)
	return e
}

// checkProfiles returns an error if a profile of the node is to be used, and has no name. The API
// server refuses such a pod, as far as it knows.
func checkProfiles(pod *v1.PodSpec, container *v1.Container) error {
	e := EffectiveSecurityContext(pod, container)
	if s := e.SeccompProfile; s != nil && s.Type == v1.SeccompProfileTypeLocalhost &&
		s.LocalhostProfile == nil {
		return errors.New("localhostProfile must be set if seccompProfile type is Localhost")
	}
	if a := e.AppArmorProfile; a != nil && a.Type == v1.AppArmorProfileTypeLocalhost &&
		a.LocalhostProfile == nil {
		return errors.New("localhostProfile must be set if appArmorProfile type is Localhost")
	}
	return nil
}

// checkRunAsNonRoot returns an error if the spec gives a container the user root and forbids it.
func (p *Pod) checkRunAsNonRoot(container *v1.Container) error {
	e := EffectiveSecurityContext(&p.Spec.Spec, container)
	if !isTrue(e.RunAsNonRoot) || e.RunAsUser == nil || *e.RunAsUser != 0 {
		return nil
	}
	return fmt.Errorf("container's runAsUser breaks non-root policy (pod: %q, container: %s)",
		PodDesc(p.Spec), container.Name)
}

// CheckImageUser returns an error if the spec forbids a container to run as root and the user of
// its image is root, or may be.
func (p *Pod) CheckImageUser(container *v1.Container, user image.User) error {
	e := EffectiveSecurityContext(&p.Spec.Spec, container)
	reason := "image will run as root"
	switch {
	case !isTrue(e.RunAsNonRoot) || e.RunAsUser != nil || user.UID != nil && *user.UID != 0:
		return nil
	case user.UID == nil && user.Name != "":
		reason = fmt.Sprintf("image has non-numeric user (%s), cannot verify user is non-root",
			user.Name)
	}
	return fmt.Errorf("container has runAsNonRoot and %s (pod: %q, container: %s)", reason,
		PodDesc(p.Spec), container.Name)
}

// supplementalGroups returns the supplemental groups of every process, and whether the groups that
// the image has for its user are added. The group of the volumes is among them: without it a
// process could not read their files.
func supplementalGroups(pod *v1.PodSecurityContext) ([]int64,
	runtimeapi.SupplementalGroupsPolicy) {
	var groups []int64
	if pod.FSGroup != nil {
		groups = append(groups, *pod.FSGroup)
	}
	groups = append(groups, pod.SupplementalGroups...)
	policy := pod.SupplementalGroupsPolicy
	if policy != nil && *policy == v1.SupplementalGroupsPolicyStrict {
		return groups, runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return groups, runtimeapi.SupplementalGroupsPolicy_Merge
}

// addVolumeGroups adds the groups that the pod's persistent volumes name. The sandbox does not have
// them: its process uses no volume, and it is made before they are known.
func (p *Pod) addVolumeGroups(groups []int64) []int64 {
	if p.Mounted == nil {
		return groups
	}
	for _, group := range p.Mounted.Groups() {
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
	}
	return groups
}

// hasPrivileged reports whether any container of the pod is privileged.
func hasPrivileged(spec *v1.PodSpec) bool {
	privileged := func(c v1.Container) bool {
		return c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
	}
	return slices.ContainsFunc(spec.InitContainers, privileged) ||
		slices.ContainsFunc(spec.Containers, privileged)
}

// noNewPrivileges reports whether processes cannot gain privileges. A container that is privileged
// or has CAP_SYS_ADMIN can: validation rejects a spec that asks for both.
func noNewPrivileges(e *v1.SecurityContext) bool {
	if e.AllowPrivilegeEscalation == nil || *e.AllowPrivilegeEscalation || isTrue(e.Privileged) {
		return false
	}
	return e.Capabilities == nil || !slices.Contains(e.Capabilities.Add, "CAP_SYS_ADMIN")
}

// seccompDir is the directory of the node's own profiles, beside the directory of the pods.
const seccompDir = "seccomp"

// seccompProfile returns the seccomp profile of a container. Without one it is unconfined, unless
// the node has a default (KEP-2413).
func seccompProfile(profile *v1.SeccompProfile, node *Node) *runtimeapi.SecurityProfile {
	if profile == nil && node.SeccompDefault {
		return newProfile(runtimeapi.SecurityProfile_RuntimeDefault)
	}
	if profile == nil {
		return newProfile(runtimeapi.SecurityProfile_Unconfined)
	}
	switch profile.Type {
	case v1.SeccompProfileTypeLocalhost:
		local := newProfile(runtimeapi.SecurityProfile_Localhost)
		local.LocalhostRef = path.Join(path.Dir(node.PodsDir), seccompDir,
			*profile.LocalhostProfile)
		return local
	case v1.SeccompProfileTypeRuntimeDefault:
		return newProfile(runtimeapi.SecurityProfile_RuntimeDefault)
	}
	return newProfile(runtimeapi.SecurityProfile_Unconfined)
}

// appArmorProfile returns the AppArmor profile of a container; nil leaves it to the runtime.
func appArmorProfile(profile *v1.AppArmorProfile) *runtimeapi.SecurityProfile {
	if profile == nil {
		return nil
	}
	switch profile.Type {
	case v1.AppArmorProfileTypeLocalhost:
		local := newProfile(runtimeapi.SecurityProfile_Localhost)
		local.LocalhostRef = *profile.LocalhostProfile
		return local
	case v1.AppArmorProfileTypeUnconfined:
		return newProfile(runtimeapi.SecurityProfile_Unconfined)
	}
	return newProfile(runtimeapi.SecurityProfile_RuntimeDefault)
}

func newProfile(t runtimeapi.SecurityProfile_ProfileType) *runtimeapi.SecurityProfile {
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

func seLinuxOptions(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(n *int64) *runtimeapi.Int64Value {
	if n == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *n}
}

func isTrue(b *bool) bool { return b != nil && *b }

// The paths of /proc and /sys that a container with the default procMount cannot read or cannot
// write. Every runtime and the kubelet have the same lists.
var (
	maskedEverywhere = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
		"/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{
		"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger",
	}
)

// maskedPaths returns the paths that a container cannot read. The temperature counters of the CPUs
// tell what other containers do; where a CPU has none there is nothing to mask.
func (n *Node) maskedPaths() []string {
	paths := slices.Clone(maskedEverywhere)
	for _, cpu := range n.ThermalThrottleCPUs {
		paths = append(paths, fmt.Sprintf("/sys/devices/system/cpu/cpu%d/thermal_throttle", cpu))
	}
	return paths
}

// sysctls returns the kernel parameters of the sandbox's namespaces.
func sysctls(spec *v1.PodSpec) map[string]string {
	if spec.SecurityContext == nil || len(spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	all := map[string]string{}
	for _, s := range spec.SecurityContext.Sysctls {
		all[sysctl.NormalizeName(s.Name)] = s.Value
	}
	return all
}
