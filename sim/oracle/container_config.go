package oracle

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// containerConfig fires when the runtime is asked for a container that is not what the spec says.
// What the spec says is worked out again here, as lines of a name and a value: a wrong line is what
// the violation shows. If the pod had several specs, any of them may hold. The image, the image's
// user and the variables are judged by the oracles images and environment.
type containerConfig struct{}

func (*containerConfig) describe() Entry {
	return Entry{"container-config", "A container is created with the command, mounts, resources, " +
		"namespaces, privileges, labels and log that its spec gives it."}
}

// settings are what a container or sandbox is given, by name.
type settings map[string]string

// set sets a line. One that is empty is as if it were not there.
func (s settings) set(name string, value any) {
	if text := fmt.Sprint(value); text != "" && text != "[]" {
		s[name] = text
	}
}

// difference returns how a configuration differs from what is wanted; empty if it does not.
func difference(want, have settings) string {
	names := maps.Clone(want)
	maps.Copy(names, have)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if want[name] != have[name] {
			return fmt.Sprintf("%s is %q, but its spec says %q", name, have[name], want[name])
		}
	}
	return ""
}

func (*containerConfig) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.ContainerCreated || p == nil || f.ContainerConfig == nil {
		return nil
	}
	have := containerSettings(f.ContainerConfig)
	// An agent that cannot read what is allocated has it from what the containers have: that does not
	// tell how much memory a resize had requested, on which the score depends.
	mayLackRequest := len(p.specs) > 1 && m.faultPossible("ReadFiles", p.firstDesiredAt, f.Time)
	problem := ""
	for _, spec := range p.specsAndAllocations() {
		c := m.createdFrom(spec, f)
		if c == nil {
			continue
		}
		if p.spec == nil && m.volumes.hasNewerClaim(spec, p.removedAt) {
			return nil // it was created with the volume that the claim of that name had before
		}
		want := m.wantedContainer(p, spec, c, f)
		if mayLackRequest {
			want[oomScoreLine] = have[oomScoreLine]
		}
		if problem = difference(want, have); problem == "" {
			return nil
		}
	}
	if problem == "" {
		return nil
	}
	return findingf("container %s of pod %s: %s", f.Container, p, problem)
}

const oomScoreLine = "oom score"

// containerSettings returns what the runtime was asked for.
func containerSettings(c *runtimeapi.ContainerConfig) settings {
	s := settings{}
	s.set("image", c.GetImage().GetUserSpecifiedImage())
	s.set("command", quoted(c.Command))
	s.set("arguments", quoted(c.Args))
	s.set("working directory", c.WorkingDir)
	s.set("standard input", fmt.Sprintf("open %t, once %t, terminal %t", c.Stdin, c.StdinOnce, c.Tty))
	s.set("stop signal", strings.TrimPrefix(c.StopSignal.String(), "RUNTIME_DEFAULT"))
	s.set("log", c.LogPath)
	for key, value := range c.Labels { //ordered: into a map
		s.set("label "+key, value)
	}
	for _, key := range []string{annotationRestarts, annotationPolicy, annotationMessagePath} {
		s.set("annotation "+key, c.Annotations[key])
	}
	for _, m := range c.Mounts {
		s.set("mount at "+m.ContainerPath, mountText(m))
	}
	l := c.GetLinux()
	s.setResources(l.GetResources())
	s.set(oomScoreLine, l.GetResources().GetOomScoreAdj())
	s.setPrivileges(l.GetSecurityContext())
	return s
}

// mountText describes a mount. That of an image is judged by another oracle.
func mountText(m *runtimeapi.Mount) string {
	if m.Image != nil {
		return fmt.Sprintf("image, sub-path %q, read-only %t", m.ImageSubPath, m.Readonly)
	}
	return fmt.Sprintf("%s, read-only %t recursive %t, %s, relabelled %t, IDs %v", m.HostPath,
		m.Readonly, m.RecursiveReadOnly, strings.TrimPrefix(m.Propagation.String(), "PROPAGATION_"),
		m.SelinuxRelabel, idsOfMappings(m.UidMappings))
}

func (s settings) setResources(r *runtimeapi.LinuxContainerResources) {
	s.set("CPU shares", r.GetCpuShares())
	s.set("CPU quota", fmt.Sprintf("%d each %d us", r.GetCpuQuota(), r.GetCpuPeriod()))
	s.set("memory limit", r.GetMemoryLimitInBytes())
}

func (s settings) setPrivileges(c *runtimeapi.LinuxContainerSecurityContext) {
	s.setNamespaces(c.GetNamespaceOptions())
	s.set("privileged", c.GetPrivileged())
	s.set("added capabilities", c.GetCapabilities().GetAddCapabilities())
	s.set("dropped capabilities", c.GetCapabilities().GetDropCapabilities())
	s.set("group", groupText(c.GetRunAsGroup()))
	s.set("groups", c.GetSupplementalGroups())
	s.set("groups policy", c.GetSupplementalGroupsPolicy())
	s.set("read-only root", c.GetReadonlyRootfs())
	s.set("no new privileges", c.GetNoNewPrivs())
	s.set("seccomp", profileText(c.GetSeccomp()))
	s.set("AppArmor", profileText(c.GetApparmor()))
	s.set("SELinux", selinuxText(c.GetSelinuxOptions()))
	s.set("unmasked /proc", len(c.GetMaskedPaths()) == 0 && len(c.GetReadonlyPaths()) == 0)
}

func (s settings) setNamespaces(o *runtimeapi.NamespaceOption) {
	s.set("pid namespace", o.GetPid())
	s.set("network namespace", o.GetNetwork())
	s.set("ipc namespace", o.GetIpc())
	s.set("target", o.GetTargetId())
	s.set("user namespace", fmt.Sprint(idsOfMappings(o.GetUsernsOptions().GetUids())))
}

// wantedContainer returns what a container is to be given by its spec.
func (m *model) wantedContainer(p *pod, spec *v1.Pod, c *v1.Container, f *truth.Fact) settings {
	s, restarts := settings{}, f.Annotations[annotationRestarts]
	s.set("image", c.Image)
	s.set("command", quoted(expandAll(c.Command, f.Env)))
	s.set("arguments", quoted(expandAll(c.Args, f.Env)))
	s.set("working directory", c.WorkingDir)
	s.set("standard input", fmt.Sprintf("open %t, once %t, terminal %t", c.Stdin, c.StdinOnce, c.TTY))
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		s.set("stop signal", *c.Lifecycle.StopSignal)
	}
	s.set("log", c.Name+"/"+restarts+".log")
	s.set("label io.kubernetes.pod.name", spec.Name)
	s.set("label io.kubernetes.pod.namespace", spec.Namespace)
	s.set("label io.kubernetes.pod.uid", p.uid)
	s.set("label io.kubernetes.container.name", c.Name)
	s.set("annotation "+annotationRestarts, restarts)
	s.set("annotation "+annotationPolicy, c.TerminationMessagePolicy)
	s.set("annotation "+annotationMessagePath, c.TerminationMessagePath)
	ids := truth.IDs{}
	if sandbox := m.sandboxes[f.SandboxID]; sandbox != nil {
		ids = sandbox.ids
	}
	s.setMounts(m, m.opts.PodsDir+"/"+p.uid, spec, c, f, ids)
	m.setWantedResources(s, p, spec, c)
	m.setWantedPrivileges(s, spec, c, f, ids)
	return s
}

// setMounts sets the mounts of a container: of its volumes, of /etc/hosts unless a volume is there,
// and of the file for its termination message.
func (s settings) setMounts(m *model, dir string, spec *v1.Pod, c *v1.Container, f *truth.Fact,
	ids truth.IDs) {
	const hosts = "/etc/hosts"
	bind := func(at, from string, readOnly, recursive bool, propagation string, relabels bool) {
		s.set("mount at "+path.Join("/", at), fmt.Sprintf("%s, read-only %t recursive %t, %s, "+
			"relabelled %t, IDs %v", from, readOnly, recursive, propagation, relabels, ids))
	}
	bind(hosts, dir+"/etc-hosts", false, false, "PRIVATE", m.opts.SELinux)
	for i := range c.VolumeMounts {
		mount := &c.VolumeMounts[i]
		of := slices.IndexFunc(spec.Spec.Volumes, func(v v1.Volume) bool { return v.Name == mount.Name })
		if of < 0 {
			continue
		}
		v := &spec.Spec.Volumes[of]
		sub := mount.SubPath
		if mount.SubPathExpr != "" {
			sub = expand(mount.SubPathExpr, f.Env)
		}
		if v.Image != nil {
			s.set("mount at "+path.Join("/", mount.MountPath),
				fmt.Sprintf("image, sub-path %q, read-only true", sub))
			continue
		}
		from, readOnly := volumePath(dir, v), mount.ReadOnly || hasContent(v) ||
			isReadOnlyCSI(v)
		name, b := v.Name, m.volumes.backingOf(spec, v, dir)
		if b != nil {
			from, name, readOnly = b.path, b.name, readOnly || b.readOnly
		}
		relabels := m.mustRelabel(v, b, from)
		if sub != "" {
			from = fmt.Sprintf("%s/%s/%s/%d", subPathsDir(dir), name, c.Name, i)
		}
		propagation := "PRIVATE"
		if mode := mount.MountPropagation; mode != nil {
			propagation = map[v1.MountPropagationMode]string{
				v1.MountPropagationNone: "PRIVATE", v1.MountPropagationHostToContainer: "HOST_TO_CONTAINER",
				v1.MountPropagationBidirectional: "BIDIRECTIONAL"}[*mode]
		}
		recursive := mount.RecursiveReadOnly != nil &&
			*mount.RecursiveReadOnly != v1.RecursiveReadOnlyDisabled
		bind(mount.MountPath, from, readOnly, recursive, propagation, relabels)
	}
	if c.TerminationMessagePath != "" {
		bind(c.TerminationMessagePath, dir+"/containers/"+c.Name+"/"+f.Annotations[annotationRestarts],
			false, false, "PRIVATE", m.opts.SELinux)
	}
}

// mustRelabel reports whether the runtime has to relabel the files of a volume that is at a path:
// they are of the pod alone, and have labels that can be changed.
func (m *model) mustRelabel(v *v1.Volume, b *backing, at string) bool {
	switch is, isCSI := m.csi.published[at]; {
	case !m.opts.SELinux, v.HostPath != nil, v.NFS != nil, isReadOnlyCSI(v):
		return false
	case b == nil && v.CSI == nil:
		return true
	case isCSI:
		return is.label == "" && (b == nil || !b.readOnly)
	}
	if at := m.mountAt(at); at != nil && b != nil && isOfDisks(at.source) {
		return at.label == "" && !b.readOnly
	}
	return b != nil && !b.readOnly && strings.Contains(b.path, "/kubernetes.io~local-volume/")
}

// setWantedResources sets the resources of a container. A limit without a request is the request
// too, and the limit of the pod is that of a container without one (KEP-2837).
func (m *model) setWantedResources(s settings, p *pod, spec *v1.Pod, c *v1.Container) {
	limit := func(name v1.ResourceName) resource.Quantity {
		if q := c.Resources.Limits[name]; !q.IsZero() || spec.Spec.Resources == nil {
			return q
		}
		return spec.Spec.Resources.Limits[name]
	}
	cpu, memory := limit(v1.ResourceCPU), limit(v1.ResourceMemory)
	request, exists := c.Resources.Requests[v1.ResourceCPU]
	if !exists {
		request = cpu
	}
	s.setResources(m.opts.Tiers.cpuAndMemory(request, cpu, memory))
	s.set(oomScoreLine, m.oomScore(p, spec, c))
}

// cpuAndMemory returns amounts in the units of the kernel: 1024 shares for a CPU, at least 2, and
// microseconds of each tenth of a second, at least 1000; zero without a limit.
func (t *Tiers) cpuAndMemory(request, limit, memory resource.Quantity) (
	r *runtimeapi.LinuxContainerResources) {
	r = &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuQuota: t.quota(limit.MilliValue()),
		CpuShares:          max(2, min(262_144, request.MilliValue()*1024/1000)),
		MemoryLimitInBytes: memory.Value()}
	if t != nil && t.NoQuota {
		r.CpuPeriod = 0
	}
	return r
}

// annotationMessagePath is the container's terminationMessagePath.
const annotationMessagePath = "io.kubernetes.container.terminationMessagePath"

func quoted(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf("%q", words)
}

// expandAll replaces references to variables in each word.
func expandAll(words []string, env map[string]string) []string {
	var all []string
	for _, w := range words {
		all = append(all, expand(w, env))
	}
	return all
}

// expand replaces $(NAME) by the value of a variable that exists, and $$ by $.
func expand(text string, env map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		rest := text[i+1:]
		name, _, closed := strings.Cut(strings.TrimPrefix(rest, "("), ")")
		value, exists := env[name]
		switch {
		case rest[0] == '$':
			b.WriteByte('$')
			i++
		case rest[0] == '(' && closed && exists:
			b.WriteString(value)
			i += len(name) + 2
		default:
			b.WriteByte('$')
		}
	}
	return b.String()
}

// idsOfMappings returns the IDs of the node that a user namespace has.
func idsOfMappings(all []*runtimeapi.IDMapping) truth.IDs {
	if len(all) == 0 {
		return truth.IDs{}
	}
	return truth.IDs{First: all[0].HostId, Length: all[0].Length}
}

func groupText(group *runtimeapi.Int64Value) string {
	if group == nil {
		return ""
	}
	return strconv.FormatInt(group.Value, 10)
}

func profileText(p *runtimeapi.SecurityProfile) string {
	if p == nil {
		return ""
	}
	return strings.TrimSpace(p.ProfileType.String() + " " + p.LocalhostRef)
}

func selinuxText(o *runtimeapi.SELinuxOption) string {
	if o == nil {
		return ""
	}
	return strings.Join([]string{o.User, o.Role, o.Type, o.Level}, ":")
}

// isReadOnlyCSI reports whether the spec of a pod says that a CSI volume in it is read-only.
func isReadOnlyCSI(v *v1.Volume) bool {
	return v.CSI != nil && v.CSI.ReadOnly != nil && *v.CSI.ReadOnly
}
