package pod

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DNS is what the node's configuration says about the resolver of its pods.
type DNS struct {
	Servers []string `json:"servers,omitempty"` // of the cluster
	Domain  string   `json:"domain,omitempty"`  // of the cluster
}

// The C library's bounds on a resolv.conf, as the kubelet cuts to them.
const (
	nameserversMax  = 3
	searchPathsMax  = 32
	searchLengthMax = 2048
)

// omission is what a resolver's configuration does without, in the kubelet's words.
type omission struct{ reason, message string }

// dnsConfig is the resolver configuration of the pod's sandbox, and what had to be left out of
// it; nothing if nothing had to.
func (p *Pod) dnsConfig(node *Node) (*runtimeapi.DNSConfig, omission) {
	spec, config := &p.Spec.Spec, &runtimeapi.DNSConfig{}
	host := parseResolv(node.Resolv.Text)
	left := omission{}
	cluster := spec.DNSPolicy == v1.DNSClusterFirstWithHostNet ||
		spec.DNSPolicy == v1.DNSClusterFirst && !spec.HostNetwork
	switch {
	case spec.DNSPolicy == v1.DNSNone:
	case cluster && len(node.DNS.Servers) > 0:
		config.Servers = slices.Clone(node.DNS.Servers)
		config.Searches = unique(p.clusterSearches(node.DNS.Domain), host.Searches)
		config.Options = []string{"ndots:5"}
	case node.Resolv.Path == "": // no file was configured: names are not to be resolved
		config.Servers, config.Searches = []string{"127.0.0.1"}, []string{"."}
	default:
		config = host
	}
	if cluster && len(node.DNS.Servers) == 0 {
		left = omission{"MissingClusterDNS", fmt.Sprintf("pod: %q. kubelet does not have ClusterDNS IP configured and cannot "+
			"create Pod using %q policy. Falling back to %q policy.", p.logged(), spec.DNSPolicy,
			v1.DNSDefault)}
	}
	if own := spec.DNSConfig; own != nil {
		config.Servers = unique(config.Servers, own.Nameservers)
		config.Searches = unique(config.Searches, own.Searches)
		config.Options = mergeOptions(config.Options, own.Options)
	}
	if cut := cutResolv(config); cut != "" {
		left = omission{"DNSConfigForming", cut}
	}
	return config, left
}

// clusterSearches are where names are looked up first: the pod's namespace, then all services.
func (p *Pod) clusterSearches(domain string) []string {
	if domain == "" {
		return nil
	}
	return []string{p.Namespace + ".svc." + domain, "svc." + domain, domain}
}

// parseResolv reads what a resolver reads of its file. Of several search and options lines the
// last one counts.
func parseResolv(text string) *runtimeapi.DNSConfig {
	config := &runtimeapi.DNSConfig{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) > 1 {
				config.Servers = append(config.Servers, fields[1])
			}
		case "search":
			config.Searches = nil
			for _, domain := range fields[1:] {
				if domain != "." {
					domain = strings.TrimSuffix(domain, ".")
				}
				config.Searches = append(config.Searches, domain)
			}
		case "options":
			config.Options = fields[1:]
		}
	}
	return config
}

// unique is both lists without what has been there before.
func unique(a, b []string) []string {
	var all []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// mergeOptions adds the pod's own options. One of the same name takes the place of another.
func mergeOptions(options []string, own []v1.PodDNSConfigOption) []string {
	options = slices.Clone(options)
	for _, o := range own {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		named := func(other string) bool {
			name, _, _ := strings.Cut(other, ":")
			return name == o.Name
		}
		if i := slices.IndexFunc(options, named); i >= 0 {
			options[i] = text
		} else {
			options = append(options, text)
		}
	}
	return options
}

// cutResolv keeps a configuration within bounds, and says what was left out.
func cutResolv(config *runtimeapi.DNSConfig) string {
	cut := ""
	if len(config.Servers) > nameserversMax {
		config.Servers = config.Servers[:nameserversMax]
		cut = "Nameserver limits were exceeded, some nameservers have been omitted, the applied " +
			"nameserver line is: " + strings.Join(config.Servers, " ")
	}
	searches := config.Searches
	if len(searches) > searchPathsMax {
		searches = searches[:searchPathsMax]
	}
	for len(strings.Join(searches, " ")) > searchLengthMax {
		searches = searches[:len(searches)-1]
	}
	if len(searches) < len(config.Searches) {
		config.Searches = searches
		cut = "Search Line limits were exceeded, some search paths have been omitted, the applied " +
			"search line is: " + strings.Join(searches, " ")
	}
	return cut
}
