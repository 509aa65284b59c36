package criconfig

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// DNS is the cluster's DNS, by the node's configuration.
type DNS struct {
	Servers []string `json:"servers,omitempty"`
	Domain  string   `json:"domain,omitempty"`
}

// The C library's bounds on a resolv.conf, to which the kubelet cuts. Some versions of the library
// abort a program that meets a longer search domain (kubelet/network/dns/dns.go).
const (
	nameserversMax     = 3
	searchPathsMax     = 32
	searchLengthMax    = 2048
	clusterSearchPaths = 3
)

// DNSWarning is the reason and message of one of the kubelet's events about the resolver
// configuration of a pod.
type DNSWarning struct{ Reason, Message string }

const reasonMissingClusterDNS = "MissingClusterDNS"

// DNSConfig returns the resolver configuration of the pod's sandbox.
func (p *Pod) DNSConfig() *runtimeapi.DNSConfig {
	config, _ := p.resolver()
	if own := p.Spec.Spec.DNSConfig; own != nil {
		config.Options = mergeOptions(config.Options, own.Options)
	}
	return config
}

// DNSWarnings returns warnings about what is left out of the resolver configuration.
func (p *Pod) DNSWarnings() []DNSWarning {
	_, warnings := p.resolver()
	return warnings
}

// resolver returns the resolver configuration without the pod's own options, and warnings about
// what is left out of it.
func (p *Pod) resolver() (*runtimeapi.DNSConfig, []DNSWarning) {
	spec, node, config := &p.Spec.Spec, p.Node, &runtimeapi.DNSConfig{}
	host := parseResolvConf(node.Resolv.Text)
	var warnings []DNSWarning
	switch {
	case spec.DNSPolicy == v1.DNSNone:
	case p.wantsClusterDNS() && len(node.DNS.Servers) > 0:
		config.Servers = slices.Clone(node.DNS.Servers)
		config.Searches = union(p.clusterSearches(node.DNS.Domain), host.Searches)
		config.Options = []string{"ndots:5"}
	case node.Resolv.Path == "": // no file is configured: pods resolve no names
		config.Servers, config.Searches = loopbacks(node.IPs), []string{"."}
	default:
		config = host
	}
	if missing := p.MissingClusterDNS(); missing != "" {
		warnings = append(warnings, DNSWarning{reasonMissingClusterDNS,
			fmt.Sprintf("pod: %q. %s", PodDesc(p.Spec), missing)})
	}
	if own := spec.DNSConfig; own != nil {
		config.Servers = union(config.Servers, own.Nameservers)
		config.Searches = union(config.Searches, own.Searches)
	}
	return config, append(warnings, limitResolvConf(config)...)
}

// wantsClusterDNS reports whether names are to be resolved by the cluster's DNS.
func (p *Pod) wantsClusterDNS() bool {
	spec := &p.Spec.Spec
	return spec.DNSPolicy == v1.DNSClusterFirstWithHostNet ||
		spec.DNSPolicy == v1.DNSClusterFirst && !spec.HostNetwork
}

// MissingClusterDNS returns the message of the kubelet's MissingClusterDNS event about the node;
// empty if the pod does not need the cluster's DNS, or the node knows its address.
func (p *Pod) MissingClusterDNS() string {
	if !p.wantsClusterDNS() || len(p.Node.DNS.Servers) > 0 {
		return ""
	}
	return fmt.Sprintf("kubelet does not have ClusterDNS IP configured and cannot create Pod using "+
		"%q policy. Falling back to %q policy.", v1.DNSClusterFirst, v1.DNSDefault)
}

// loopbacks returns the loopback address of each family that the node has an address of.
func loopbacks(ips []string) []string {
	var all []string
	for _, ip := range ips {
		if strings.Contains(ip, ":") {
			all = append(all, "::1")
		} else {
			all = append(all, "127.0.0.1")
		}
	}
	if len(all) == 0 {
		all = []string{"127.0.0.1"}
	}
	return all
}

// clusterSearches returns the domains in which names are resolved first: the pod's namespace, then
// all services.
func (p *Pod) clusterSearches(domain string) []string {
	if domain == "" {
		return nil
	}
	return []string{p.Spec.Namespace + ".svc." + domain, "svc." + domain, domain}
}

// parseResolvConf parses a resolv.conf. Of several search lines the last one counts. The root
// domain "." is left out of it: systemd-resolved writes "search .", and some resolvers fail with
// such a domain among others. Options lines add up, as in the C library.
func parseResolvConf(text string) *runtimeapi.DNSConfig {
	config, options := &runtimeapi.DNSConfig{}, resolverOptions{}
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
					config.Searches = append(config.Searches, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			for _, option := range fields[1:] {
				options.set(option)
			}
		}
	}
	config.Options = options.list
	return config
}

// hasNameserverWithoutAddress reports whether a resolv.conf has a line that parseResolvConf leaves
// out, and for which the kubelet gives no pod a sandbox.
func hasNameserverWithoutAddress(text string) bool {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) == 1 && fields[0] == "nameserver" {
			return true
		}
	}
	return false
}

// union returns both lists, each text once.
func union(a, b []string) []string {
	var all []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}

// mergeOptions adds the pod's own options. An option of the same name is replaced. The API server
// does not bound their number.
func mergeOptions(options []string, own []v1.PodDNSConfigOption) []string {
	merged := resolverOptions{}
	for _, option := range options {
		merged.set(option)
	}
	for _, o := range own {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		merged.set(text)
	}
	return merged.list
}

// resolverOptions are options of the resolver, such as "ndots:5", each name once.
type resolverOptions struct {
	list  []string
	index map[string]int // into list, by name
}

// set adds an option. An option of the same name is replaced in its place.
func (r *resolverOptions) set(option string) {
	name, _, _ := strings.Cut(option, ":")
	if i, found := r.index[name]; found {
		r.list[i] = option
		return
	}
	if r.index == nil {
		r.index = map[string]int{}
	}
	r.index[name] = len(r.list)
	r.list = append(r.list, option)
}

// limitResolvConf cuts a configuration to the C library's bounds, and returns warnings about the
// servers and domains that are left out.
func limitResolvConf(config *runtimeapi.DNSConfig) []DNSWarning {
	var warnings []DNSWarning
	if len(config.Servers) > nameserversMax {
		config.Servers = config.Servers[:nameserversMax]
		warnings = append(warnings, DNSWarning{"DNSConfigForming", "Nameserver limits were " +
			"exceeded, some nameservers have been omitted, the applied nameserver line is: " +
			strings.Join(config.Servers, " ")})
	}
	searches := limitSearches(config.Searches)
	if len(searches) < len(config.Searches) {
		config.Searches = searches
		warnings = append(warnings, DNSWarning{"DNSConfigForming", "Search Line limits were " +
			"exceeded, some search paths have been omitted, the applied search line is: " +
			strings.Join(searches, " ")})
	}
	return warnings
}

// limitSearches returns the search domains that fit.
func limitSearches(domains []string) []string {
	var fit []string
	length := 0 // of the line
	for _, domain := range domains[:min(len(domains), searchPathsMax)] {
		if len(domain) > validation.DNS1123SubdomainMaxLength {
			continue
		}
		if length += len(domain) + 1; length-1 > searchLengthMax {
			break
		}
		fit = append(fit, domain)
	}
	return fit
}

// CheckResolvConf returns a message about a resolv.conf of the node that cannot be read, has a line
// that is left out, is beyond the C library's bounds, or beyond those once the domains of the
// cluster are added; empty if it is none of these. The messages about bounds are the kubelet's.
func (n *Node) CheckResolvConf() string {
	if n.Resolv.Path == "" {
		return ""
	}
	if n.Resolv.LastError != "" {
		return n.Resolv.LastError
	}
	if hasNameserverWithoutAddress(n.Resolv.Text) {
		return fmt.Sprintf("Resolv.conf file %q has a nameserver line without an address, which is "+
			"left out", n.Resolv.Path)
	}
	searches, pathsMax := parseResolvConf(n.Resolv.Text).Searches, searchPathsMax
	if n.DNS.Domain != "" {
		pathsMax -= clusterSearchPaths
	}
	isTooLong := func(domain string) bool {
		return len(domain) > validation.DNS1123SubdomainMaxLength
	}
	switch {
	case len(searches) > pathsMax:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line consisting of more than "+
			"%d domains!", n.Resolv.Path, pathsMax)
	case slices.ContainsFunc(searches, isTooLong):
		return fmt.Sprintf("Resolv.conf file %q contains a search path which length is more than "+
			"allowed %d chars!", n.Resolv.Path, validation.DNS1123SubdomainMaxLength)
	case len(strings.Join(searches, " ")) > searchLengthMax:
		return fmt.Sprintf("Resolv.conf file '%s' contains search line which length is more than "+
			"allowed %d chars!", n.Resolv.Path, searchLengthMax)
	}
	return ""
}
