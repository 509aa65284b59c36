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

// The beta names of labels that are stable now. Some selectors still use them.
const (
	labelOSBeta   = "beta.kubernetes.io/os"
	labelArchBeta = "beta.kubernetes.io/arch"
)

// allowedLabels are the labels in the namespaces of Kubernetes that a node may set for itself,
// besides those in allowedLabelDomains. In a Node object that exists already they are reconciled
// when the agent registers.
var allowedLabels = []string{
	labelArchBeta, labelOSBeta,
	v1.LabelFailureDomainBetaRegion, v1.LabelFailureDomainBetaZone, v1.LabelInstanceType,
	v1.LabelArchStable, v1.LabelHostname, v1.LabelOSStable,
	v1.LabelInstanceTypeStable, v1.LabelTopologyRegion, v1.LabelTopologyZone,
}

var allowedLabelDomains = []string{"kubelet.kubernetes.io", "node.kubernetes.io"}

// ParseLabels parses --node-labels: key=value,key=value. Labels in the namespaces of Kubernetes
// that a node may not set are an error; the API server would reject them too.
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
		case !canSetLabel(key):
			return nil, fmt.Errorf("%q is not a node's to set: in the namespaces kubernetes.io and "+
				"k8s.io only those of %s, and %s", key, strings.Join(allowedLabelDomains, ", "),
				strings.Join(allowedLabels, ", "))
		}
		labels[key] = value
	}
	return labels, nil
}

func canSetLabel(key string) bool {
	namespace, _, hasNamespace := strings.Cut(key, "/")
	inDomain := func(domain string) bool {
		return hasNamespace && (namespace == domain || strings.HasSuffix(namespace, "."+domain))
	}
	if !inDomain("kubernetes.io") && !inDomain("k8s.io") {
		return true
	}
	return slices.Contains(allowedLabels, key) || slices.ContainsFunc(allowedLabelDomains, inDomain)
}

// ParseIPs parses --node-ip: nothing, one address, or one of each family. 0.0.0.0 and :: select
// only the family of the detected address.
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
	case isUnspecified(ips[0]) || isUnspecified(ips[1]):
		return nil, fmt.Errorf("%q: of two addresses neither may be 0.0.0.0 or ::", text)
	}
	return ips, nil
}

func isUnspecified(ip string) bool { return ip == "0.0.0.0" || ip == "::" }

// labels returns the labels of a new Node object.
func (s *Settings) labels(os, arch string) map[string]string {
	labels := map[string]string{v1.LabelHostname: s.Name,
		v1.LabelOSStable: os, labelOSBeta: os, v1.LabelArchStable: arch, labelArchBeta: arch}
	maps.Copy(labels, s.Labels)
	return labels
}
