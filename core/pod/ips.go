package pod

import (
	"net/netip"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The IPs of a pod: those of its sandbox, or the node's with hostNetwork.

// IPs returns the pod's IPs for its containers, its status and its probes: at most one of each
// family, that of the node's primary family first (sortPodIPs in kubelet_pods.go). The API server
// refuses a status with two IPs of one family.
//
// While the newest sandbox is ready, its IPs count. Afterwards the last IPs are kept, also when the
// pod has ended (getPodIPs in pleg/generic.go): logs and network policies refer to them.
func (p *Pod) IPs(node *Node) []string {
	if p.Spec != nil && p.Spec.Spec.HostNetwork {
		return node.IPs
	}
	for i := len(p.Sandboxes) - 1; i >= 0; i-- {
		if s := &p.Sandboxes[i]; s.Ready && i == len(p.Sandboxes)-1 || len(s.IPs) > 0 {
			return sortIPs(s.IPs, node.IPs)
		}
	}
	return nil
}

// needsIP reports whether the sandbox has to have an IP: the pod has a network of its own. It is
// not known before the spec is, but the sandbox may have been inspected by then.
func (p *Pod) needsIP() bool { return p.Spec != nil && !p.Spec.Spec.HostNetwork }

// sortIPs returns the first IP of each family, that of the node's first IP first; of IPv4 if the
// node has none.
func sortIPs(ips, nodeIPs []string) []string {
	first := func(is4 bool) []string {
		for _, text := range ips {
			if ip, err := netip.ParseAddr(text); err == nil && ip.Is4() == is4 {
				return []string{text}
			}
		}
		return nil
	}
	primaryIs4 := true
	if len(nodeIPs) > 0 {
		ip, err := netip.ParseAddr(nodeIPs[0])
		primaryIs4 = err != nil || ip.Unmap().Is4()
	}
	return append(first(primaryIs4), first(!primaryIs4)...)
}

// ipsFromRuntime returns the IPs of a sandbox, in their regular form. Those that cannot be parsed
// are left out.
func ipsFromRuntime(network *runtimeapi.PodSandboxNetworkStatus) []string {
	texts := []string{network.GetIp()}
	for _, more := range network.GetAdditionalIps() {
		texts = append(texts, more.GetIp())
	}
	var ips []string
	for _, text := range texts {
		if ip, err := netip.ParseAddr(withoutLeadingZeros(text)); err == nil && ip.Zone() == "" {
			ips = append(ips, ip.Unmap().String())
		}
	}
	return ips
}

// withoutLeadingZeros removes the leading zeros of the parts of an IPv4 address, which the kubelet
// accepts from a runtime (ParseIPSloppy).
func withoutLeadingZeros(text string) string {
	parts := strings.Split(text, ".")
	for i, part := range parts {
		if trimmed := strings.TrimLeft(part, "0"); len(parts) == 4 && trimmed != part {
			parts[i] = max(trimmed, "0")
		}
	}
	return strings.Join(parts, ".")
}
