package node

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// The labels that were called so before they were stable. Some still select by them.
const (
	osBeta   = "beta.kubernetes.io/os"
	archBeta = "beta.kubernetes.io/arch"
)

// ownLabels are those in the namespaces of Kubernetes that a node may set for itself, besides
// those below ownNamespaces. When the agent comes to an object that exists they are put right.
var ownLabels = []string{
	archBeta, osBeta,
	v1.LabelFailureDomainBetaRegion, v1.LabelFailureDomainBetaZone, v1.LabelInstanceType,
	v1.LabelArchStable, v1.LabelHostname, v1.LabelOSStable,
	v1.LabelInstanceTypeStable, v1.LabelTopologyRegion, v1.LabelTopologyZone,
}

var ownNamespaces = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}

// ParseLabels reads --node-labels: key=value,key=value. Labels in the namespaces of Kubernetes
// that are not a node's to set are refused; the API server would refuse them too.
func ParseLabels(text string) (map[string]string, error) {
	labels := map[string]string{}
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch problems := append(validation.IsQualifiedName(key),
			validation.IsValidLabelValue(value)...); {
		case len(problems) > 0:
			return nil, fmt.Errorf("%q is no label: %s", part, strings.Join(problems, "; "))
		case !mayLabel(key):
			return nil, fmt.Errorf("%q is not a node's to set: in the namespaces kubernetes.io and "+
				"k8s.io only those of %s, and %s", key, strings.Join(ownNamespaces, ", "),
				strings.Join(ownLabels, ", "))
		}
		labels[key] = value
	}
	return labels, nil
}

func mayLabel(key string) bool {
	namespace, _, has := strings.Cut(key, "/")
	under := func(domain string) bool {
		return has && (namespace == domain || strings.HasSuffix(namespace, "."+domain))
	}
	if !under("kubernetes.io") && !under("k8s.io") {
		return true
	}
	return slices.Contains(ownLabels, key) || slices.ContainsFunc(ownNamespaces, under)
}

// ParseIPs reads --node-ip: nothing, one address, or one of each family. 0.0.0.0 and :: only say
// which family the address that is found out shall be of.
func ParseIPs(text string) ([]string, error) {
	var ips []string
	var families []bool
	for _, part := range strings.Split(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		ip, err := netip.ParseAddr(part)
		if err != nil {
			return nil, fmt.Errorf("%q is no IP address", part)
		}
		ip = ip.Unmap()
		if ip.IsLoopback() || ip.IsMulticast() || ip.IsLinkLocalUnicast() || ip.Zone() != "" {
			return nil, fmt.Errorf("%s cannot be the address of a node", ip)
		}
		ips, families = append(ips, ip.String()), append(families, ip.Is4())
	}
	switch {
	case len(ips) < 2:
		return ips, nil
	case len(ips) > 2 || families[0] == families[1]:
		return nil, fmt.Errorf("%q must be one address, or one of each family", text)
	case unspecified(ips[0]) || unspecified(ips[1]):
		return nil, fmt.Errorf("%q: of two addresses neither may be 0.0.0.0 or ::", text)
	}
	return ips, nil
}

func unspecified(ip string) bool { return ip == "0.0.0.0" || ip == "::" }

// labels are the labels of a new Node.
func (s *Settings) labels(os, arch string) map[string]string {
	labels := map[string]string{v1.LabelHostname: s.Name,
		v1.LabelOSStable: os, osBeta: os, v1.LabelArchStable: arch, archBeta: arch}
	maps.Copy(labels, s.Labels)
	return labels
}
