package criconfig

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// etcHosts is the path of the hosts file in a container.
const etcHosts = "/etc/hosts"

// hostsBytesUsual is at least as long as the file usually is.
const hostsBytesUsual = 256

// HostsFileContent returns the content of /etc/hosts in the pod's containers.
func (p *Pod) HostsFileContent() string {
	var b strings.Builder
	b.Grow(hostsBytesUsual)
	if p.Spec.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.WriteString(p.Node.Hosts.Text)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		names := p.hostname()
		if domain := p.hostDomain(); domain != "" {
			names = names + "." + domain + "\t" + names
		}
		for _, ip := range p.IPs {
			b.WriteString(ip + "\t" + names + "\n")
		}
	}
	b.WriteString(aliasLines(p.Spec.Spec.HostAliases))
	return b.String()
}

func aliasLines(aliases []v1.HostAlias) string {
	if len(aliases) == 0 {
		return ""
	}
	var lines strings.Builder
	lines.WriteString("\n# Entries added by HostAliases.\n")
	for _, alias := range aliases {
		lines.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	return lines.String()
}

// NeedsHostsFile reports whether the hosts file is mounted in a container: the container mounts
// nothing else at that path, and the pod has an IP to write to the file.
func (p *Pod) NeedsHostsFile(container *v1.Container) bool {
	for i := range container.VolumeMounts {
		if absolutePath(container.VolumeMounts[i].MountPath) == etcHosts {
			return false
		}
	}
	return p.Spec.Spec.HostNetwork || len(p.IPs) > 0
}
