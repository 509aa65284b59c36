package oracle

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	podresources "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// sandboxConfig fires when the runtime is asked for a sandbox that is not what the spec says. It
// works as the oracle container-config does.
type sandboxConfig struct{}

func (*sandboxConfig) describe() Entry {
	return Entry{"sandbox-config", "A sandbox is created with the host name, resolver, ports, " +
		"namespaces, sysctls, privileges, labels and annotations that its spec gives it."}
}

// DNS is how the node resolves names: the cluster's servers and domain, and the text of the node's
// own resolv.conf.
type DNS struct {
	Servers []string
	Domain  string
	Resolv  string
}

func (*sandboxConfig) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Kind != truth.SandboxCreated || p == nil || f.SandboxConfig == nil || len(p.specs) == 0 {
		return nil
	}
	have, problem := m.sandboxSettings(f.SandboxConfig), ""
	for _, spec := range p.specs {
		problem = difference(m.wantedSandbox(p, spec, f), have)
		if problem == "" {
			return nil
		}
	}
	return findingf("the sandbox of pod %s: %s", p, problem)
}

// ownAnnotations begins the names of the agent's own annotations of a sandbox. annotationSeen is
// when the agent saw the pod.
const (
	ownAnnotations = "seedlet.dev/"
	annotationSeen = "kubernetes.io/config.seen"
)

// sandboxSettings returns what the runtime was asked for.
func (m *model) sandboxSettings(c *runtimeapi.PodSandboxConfig) settings {
	s, l := settings{}, c.GetLinux()
	s.set("host name", c.Hostname)
	s.set("log directory", c.LogDirectory)
	s.set("DNS servers", c.GetDnsConfig().GetServers())
	s.set("DNS searches", c.GetDnsConfig().GetSearches())
	s.set("DNS options", c.GetDnsConfig().GetOptions())
	for _, port := range c.PortMappings {
		s.set(fmt.Sprintf("port %d of %q %s", port.HostPort, port.HostIp, port.Protocol),
			port.ContainerPort)
	}
	for key, text := range c.Labels { //ordered: into a map
		s.set("label "+key, text)
	}
	for key, text := range c.Annotations { //ordered: into a map
		if !strings.HasPrefix(key, ownAnnotations) && key != annotationSeen {
			s.set("annotation "+key, text)
		}
	}
	for key, text := range l.GetSysctls() { //ordered: into a map
		s.set("sysctl "+key, text)
	}
	context := l.GetSecurityContext()
	s.setNamespaces(context.GetNamespaceOptions())
	s.set("privileged", context.GetPrivileged())
	s.set("user", groupText(context.GetRunAsUser()))
	s.set("group", groupText(context.GetRunAsGroup()))
	s.set("groups", context.GetSupplementalGroups())
	s.set("groups policy", context.GetSupplementalGroupsPolicy())
	s.set("seccomp", profileText(context.GetSeccomp()))
	s.set("SELinux", selinuxText(context.GetSelinuxOptions()))
	s.setResources(l.GetResources())
	s.set("overhead", fmt.Sprintf("%d of CPU, %d bytes", l.GetOverhead().GetCpuQuota(),
		l.GetOverhead().GetMemoryLimitInBytes()))
	return s
}

// wantedSandbox returns what a sandbox is to be given by the spec of its pod.
func (m *model) wantedSandbox(p *pod, spec *v1.Pod, f *truth.Fact) settings {
	s := settings{}
	if !spec.Spec.HostNetwork {
		s.set("host name", m.hostName(spec))
		s.setPorts(spec)
	}
	s.set("log directory", fmt.Sprintf("%s/%s_%s_%s", m.opts.LogsDir, spec.Namespace, spec.Name,
		p.uid))
	m.setResolver(s, spec)
	labels := maps.Clone(spec.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels["io.kubernetes.pod.name"] = spec.Name
	labels["io.kubernetes.pod.namespace"] = spec.Namespace
	labels["io.kubernetes.pod.uid"] = p.uid
	for key, text := range labels { //ordered: into a map
		s.set("label "+key, text)
	}
	s.set("annotation "+annotationSource, "api")
	for key, text := range spec.Annotations { //ordered: into a map
		s.set("annotation "+key, text)
	}
	s.setSandboxNamespaces(spec, f.IDs)
	s.setSandboxPrivileges(spec)
	without := podresources.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := podresources.PodRequests(spec, without), podresources.PodLimits(spec, without)
	cpu, exists := requests[v1.ResourceCPU]
	if !exists {
		cpu = limits[v1.ResourceCPU]
	}
	s.setResources(m.opts.Tiers.cpuAndMemory(cpu, limits[v1.ResourceCPU], limits[v1.ResourceMemory]))
	overhead := m.opts.Tiers.cpuAndMemory(*spec.Spec.Overhead.Cpu(), *spec.Spec.Overhead.Cpu(),
		*spec.Spec.Overhead.Memory())
	s.set("overhead", fmt.Sprintf("%d of CPU, %d bytes", overhead.CpuQuota,
		overhead.MemoryLimitInBytes))
	return s
}

// setSandboxPrivileges sets the security context of the process that keeps the namespaces.
func (s settings) setSandboxPrivileges(spec *v1.Pod) {
	privileged := false
	for _, list := range [][]v1.Container{spec.Spec.InitContainers, spec.Spec.Containers} {
		for i := range list {
			own := list[i].SecurityContext
			privileged = privileged || own != nil && value(own.Privileged)
		}
	}
	s.set("privileged", privileged)
	s.set("seccomp", "RuntimeDefault")
	pod := v1.PodSecurityContext{}
	if spec.Spec.SecurityContext != nil {
		pod = *spec.Spec.SecurityContext
	}
	if pod.RunAsUser != nil {
		s.set("user", *pod.RunAsUser)
		if pod.RunAsGroup != nil { // a group without a user is refused by runtimes
			s.set("group", *pod.RunAsGroup)
		}
	}
	s.setGroups(&pod)
	if o := pod.SELinuxOptions; o != nil {
		s.set("SELinux", selinuxText(&runtimeapi.SELinuxOption{User: o.User, Role: o.Role,
			Type: o.Type, Level: o.Level}))
	}
	for _, sysctl := range pod.Sysctls {
		s.set("sysctl "+strings.ReplaceAll(sysctl.Name, "/", "."), sysctl.Value)
	}
}

// setPorts sets the ports of the node that lead to the pod.
func (s settings) setPorts(spec *v1.Pod) {
	for i := range spec.Spec.Containers {
		for _, port := range spec.Spec.Containers[i].Ports {
			if port.HostPort > 0 {
				s.set(fmt.Sprintf("port %d of %q %s", port.HostPort, port.HostIP, port.Protocol),
					port.ContainerPort)
			}
		}
	}
}

// hostName returns the host name of a pod, which the kernel bounds to 64 bytes and DNS to 63.
func (m *model) hostName(spec *v1.Pod) string {
	name := spec.Name
	if spec.Spec.Hostname != "" {
		name = spec.Spec.Hostname
	}
	if spec.Spec.HostnameOverride != nil {
		name = *spec.Spec.HostnameOverride
	}
	if len(name) > 63 {
		name = strings.TrimRight(name[:63], "-.")
	}
	if value(spec.Spec.SetHostnameAsFQDN) && spec.Spec.Subdomain != "" &&
		spec.Spec.HostnameOverride == nil {
		name += "." + spec.Spec.Subdomain + "." + spec.Namespace + ".svc." + m.opts.DNS.Domain
	}
	return name
}

// setResolver sets the servers, domains and options of the pod's resolv.conf.
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-dns-policy
func (m *model) setResolver(s settings, spec *v1.Pod) {
	dns := m.opts.DNS
	servers, searches, options := readResolvConf(dns.Resolv)
	isCluster := spec.Spec.DNSPolicy == v1.DNSClusterFirstWithHostNet ||
		spec.Spec.DNSPolicy == v1.DNSClusterFirst && !spec.Spec.HostNetwork
	switch {
	case spec.Spec.DNSPolicy == v1.DNSNone:
		servers, searches, options = nil, nil, nil
	case isCluster && len(dns.Servers) > 0:
		servers, options = dns.Servers, []string{"ndots:5"}
		if dns.Domain != "" {
			searches = append([]string{spec.Namespace + ".svc." + dns.Domain, "svc." + dns.Domain,
				dns.Domain}, searches...)
		}
	}
	if own := spec.Spec.DNSConfig; own != nil {
		servers = append(slices.Clone(servers), own.Nameservers...)
		searches = append(slices.Clone(searches), own.Searches...)
		for _, o := range own.Options {
			text := o.Name
			if value(o.Value) != "" {
				text += ":" + *o.Value
			}
			options = withOption(options, text)
		}
	}
	servers = unique(servers)
	s.set("DNS servers", servers[:min(3, len(servers))])
	s.set("DNS searches", unique(searches))
	s.set("DNS options", options)
}

// readResolvConf reads a resolv.conf: all servers, the last search line, all options.
func readResolvConf(text string) (servers, searches, options []string) {
	for _, line := range strings.Split(text, "\n") {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			servers = append(servers, words[1])
		case "search":
			searches = slices.DeleteFunc(words[1:], func(d string) bool { return d == "." })
		case "options":
			for _, o := range words[1:] {
				options = withOption(options, o)
			}
		}
	}
	return servers, searches, options
}

// withOption adds an option of the resolver, or replaces that of the same name.
func withOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	options = slices.Clone(options)
	for i, o := range options {
		if have, _, _ := strings.Cut(o, ":"); have == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}

func unique(words []string) []string {
	var all []string
	for _, w := range words {
		if !slices.Contains(all, w) {
			all = append(all, w)
		}
	}
	return all
}
