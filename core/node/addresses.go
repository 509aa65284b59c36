package node

import (
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// The addresses of the Node, and those of the node in the statuses of pods.

// addresses returns the node's addresses; current are those of the object. An external cloud
// provider sets the addresses itself; until it has, the addresses are those of the command line.
func (s *Settings) addresses(boot *world.Boot, current []v1.NodeAddress) []v1.NodeAddress {
	if s.ExternalCloud && len(current) > 0 {
		return current
	}
	ips := s.IPs
	if len(ips) < 2 && !(s.ExternalCloud && len(ips) == 0) {
		ips = s.singleIP(boot)
		if ips == nil {
			return current // the machine has no address that others can reach
		}
	}
	var list []v1.NodeAddress
	for _, ip := range ips {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return append(list, v1.NodeAddress{Type: v1.NodeHostName, Address: s.Name})
}

// singleIP returns the one address that the node reports unless the command line has both families:
// that of the command line, else the node's name if it is an address, else what the name resolves
// to, else that of the interface with the default route. Of several, the first of the requested
// family counts, else the first. The order is the kubelet's (NodeAddress in nodestatus/setters.go).
func (s *Settings) singleIP(boot *world.Boot) []string {
	if len(s.IPs) == 1 && !isUnspecified(s.IPs[0]) {
		return s.IPs
	}
	if ip, err := netip.ParseAddr(s.Name); err == nil {
		return []string{ip.String()}
	}
	wantsIPv6 := len(s.IPs) == 1 && s.IPs[0] == "::"
	hasFamily := func(ip string) bool { return isIPv6(ip) == wantsIPv6 }
	for _, candidates := range [][]string{boot.NameAddresses, boot.Addresses} {
		if i := slices.IndexFunc(candidates, hasFamily); i >= 0 {
			return candidates[i : i+1]
		}
		if len(candidates) > 0 {
			return candidates[:1]
		}
	}
	return nil
}

// NameToResolve returns the node's name if what it resolves to may be the address of the node, else
// nothing.
func (o *Options) NameToResolve(name string) string {
	_, err := netip.ParseAddr(name)
	if len(o.IPs) > 0 && !isUnspecified(o.IPs[0]) || err == nil ||
		o.ExternalCloud && len(o.IPs) == 0 {
		return ""
	}
	return name
}

// HostIPs returns the addresses of the node in the statuses of pods: the first of the Node object,
// and the first of the other family; internal addresses are before external ones. Without an object
// they are those with which the node would register. The object counts, and not what the agent has
// detected: a cloud provider may have set its addresses (GetNodeHostIPs in pkg/util/node).
func (n *Node) HostIPs(boot *world.Boot) []string {
	var current []v1.NodeAddress
	if n.Object != nil { // also while it is not known what became of it
		current = n.Object.Status.Addresses
	}
	if len(current) == 0 {
		current = n.Settings.addresses(boot, nil)
	}
	var ips []string
	for _, t := range []v1.NodeAddressType{v1.NodeInternalIP, v1.NodeExternalIP} {
		for _, a := range current {
			ip, err := netip.ParseAddr(a.Address)
			if a.Type != t || err != nil || len(ips) == 2 {
				continue
			}
			if text := ip.Unmap().String(); len(ips) == 0 || isIPv6(text) != isIPv6(ips[0]) {
				ips = append(ips, text)
			}
		}
	}
	return ips
}

// isIPv6 returns the family of an address.
func isIPv6(ip string) bool { return strings.Contains(ip, ":") }
