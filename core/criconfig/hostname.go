package criconfig

import (
	"fmt"
	"strings"
)

const (
	hostnameMax = 64 // the kernel's bound
	labelMax    = 63 // a DNS label's; longer names are cut
)

// hostname returns the host name of the pod, without its domain.
func (p *Pod) hostname() string {
	spec := &p.Spec.Spec
	name := p.Spec.Name
	switch {
	case spec.HostnameOverride != nil:
		name = *spec.HostnameOverride
	case spec.Hostname != "":
		name = spec.Hostname
	}
	if len(name) > labelMax {
		name = strings.TrimRight(name[:labelMax], "-.")
	}
	return name
}

// hostDomain returns the domain of the pod; empty if it has none.
func (p *Pod) hostDomain() string {
	spec := &p.Spec.Spec
	if spec.Subdomain == "" || spec.HostnameOverride != nil {
		return ""
	}
	return spec.Subdomain + "." + p.Spec.Namespace + ".svc." + p.Node.DNS.Domain
}

// SandboxHostname returns the host name that the kernel reports in the pod. It fails if the name is
// longer than the kernel allows.
func (p *Pod) SandboxHostname() (string, error) {
	name, domain := p.hostname(), p.hostDomain()
	if !isTrue(p.Spec.Spec.SetHostnameAsFQDN) || domain == "" {
		return name, nil
	}
	full := name + "." + domain
	if len(full) > hostnameMax {
		return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s "+
			"is too long (%d characters is the max, %d characters requested)", full, hostnameMax,
			len(full))
	}
	return full, nil
}
