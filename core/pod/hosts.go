package pod

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// What a pod is called, and the /etc/hosts that says so.

// hostnameMax is the kernel's bound on a host name; names that are made up keep to DNS's.
const (
	hostnameMax = 64
	labelMax    = 63
)

// hostname is the host name of the pod, without its domain.
func (p *Pod) hostname() string {
	spec := &p.Spec.Spec
	name := p.Name
	switch {
	case spec.HostnameOverride != nil:
		return *spec.HostnameOverride
	case spec.Hostname != "":
		name = spec.Hostname
	}
	if len(name) > labelMax {
		name = strings.TrimRight(name[:labelMax], "-.")
	}
	return name
}

// hostDomain is the domain of the pod; empty if it has none.
func (p *Pod) hostDomain(node *Node) string {
	spec := &p.Spec.Spec
	if spec.Subdomain == "" || spec.HostnameOverride != nil {
		return ""
	}
	return spec.Subdomain + "." + p.Namespace + ".svc." + node.DNS.Domain
}

// sandboxHostname is what the kernel of the pod says it is called. It fails if that is longer
// than the kernel takes.
func (p *Pod) sandboxHostname(node *Node) (string, error) {
	name, domain := p.hostname(), p.hostDomain(node)
	if !isTrue(p.Spec.Spec.SetHostnameAsFQDN) || domain == "" {
		return name, nil
	}
	full := name + "." + domain
	if len(full) > hostnameMax {
		return "", fmt.Errorf("the FQDN %s is too long for a host name: %d characters, at most %d",
			full, len(full), hostnameMax)
	}
	return full, nil
}

func (p *Pod) hostsPath(node *Node) string { return p.dir(node) + "/etc-hosts" }

// hostsUsual is the most bytes that the file usually has.
const hostsUsual = 256

// hostsFile is what the pod's containers find in /etc/hosts.
func (p *Pod) hostsFile(node *Node) string {
	var b strings.Builder
	b.Grow(hostsUsual)
	if p.Spec.Spec.HostNetwork {
		b.WriteString("# Kubernetes-managed hosts file (host network).\n")
		b.WriteString(node.Hosts.Text)
	} else {
		b.WriteString("# Kubernetes-managed hosts file.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n")
		names := p.hostname()
		if domain := p.hostDomain(node); domain != "" {
			names = names + "." + domain + "\t" + names
		}
		for _, ip := range p.current().IPs {
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
	lines := "\n# Entries added by HostAliases.\n"
	for _, alias := range aliases {
		lines += alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n"
	}
	return lines
}

// hostsMounted says whether a container is given the file: it mounts nothing there itself, and
// the pod has an address to be called by.
func (p *Pod) hostsMounted(want *v1.Container) bool {
	for i := range want.VolumeMounts {
		if absolute(want.VolumeMounts[i].MountPath) == hostsInside {
			return false
		}
	}
	s := p.current()
	return p.Spec.Spec.HostNetwork || s != nil && len(s.IPs) > 0
}

// hostsInside is where a container has the file.
const hostsInside = "/etc/hosts"

// nameable says whether the sandbox can be told its host name and its resolver. The node's
// resolv.conf has to have been read; a name that is too long stays so.
func (p *Pod) nameable(env *Env) bool {
	_, err := p.sandboxHostname(env.Node)
	if err != nil && !p.Spec.Spec.HostNetwork {
		if p.problem("") == nil {
			p.Problems = append(p.Problems, Problem{
				Call: callConfigure, Reason: "ContainerCreating", Message: err.Error(),
			})
			p.event(env, "", warning, reasonSandbox, "Failed to create pod sandbox: %v", err)
		}
		return false
	}
	return env.Node.Resolv.Known
}
