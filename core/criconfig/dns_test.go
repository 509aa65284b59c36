package criconfig

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestDNS(t *testing.T) {
	ndots := "2"
	own := &v1.PodDNSConfig{Nameservers: []string{"9.9.9.9"}, Searches: []string{"own"},
		Options: []v1.PodDNSConfigOption{{Name: "ndots", Value: &ndots}, {Name: "edns0"}}}
	text := "# c\nnameserver 1.1.1.1\nsearch lost\nsearch home. . lan\noptions timeout:3 edns0\n" +
		"options timeout:1 timeout:2\n"
	cluster := "10.96.0.10 | default.svc.c.l svc.c.l c.l home lan | ndots:5"
	host := "1.1.1.1 | home lan | timeout:2 edns0"
	for _, c := range []struct {
		policy   v1.DNSPolicy
		network  bool
		servers  []string
		own      *v1.PodDNSConfig
		want     string
		warnings string
	}{
		{v1.DNSClusterFirst, false, []string{"10.96.0.10"}, nil, cluster, ""},
		{v1.DNSClusterFirst, true, []string{"10.96.0.10"}, nil, host, ""},
		{v1.DNSClusterFirstWithHostNet, true, []string{"10.96.0.10"}, nil, cluster, ""},
		{v1.DNSClusterFirst, false, nil, nil, host, "MissingClusterDNS "},
		{v1.DNSDefault, false, []string{"10.96.0.10"}, nil, host, ""},
		{v1.DNSNone, false, []string{"10.96.0.10"}, own, "9.9.9.9 | own | ndots:2 edns0", ""},
		{v1.DNSClusterFirst, false, []string{"a", "b", "c"}, own,
			"a b c | default.svc.c.l svc.c.l c.l home lan own | ndots:2 edns0", "DNSConfigForming "},
		{v1.DNSClusterFirst, true, nil, &v1.PodDNSConfig{Nameservers: []string{"a", "b", "c"}},
			"1.1.1.1 a b | home lan | timeout:2 edns0", "DNSConfigForming "},
	} {
		p := newPod()
		p.Spec.Spec.DNSPolicy, p.Spec.Spec.HostNetwork = c.policy, c.network
		p.Spec.Spec.DNSConfig = c.own
		p.Node.DNS = DNS{Servers: c.servers, Domain: "c.l"}
		p.Node.Resolv.Path, p.Node.Resolv.Text = "/etc/resolv.conf", text
		config, warnings := p.DNSConfig(), p.DNSWarnings()
		got := strings.Join(config.Servers, " ") + " | " + strings.Join(config.Searches, " ") +
			" | " + strings.Join(config.Options, " ")
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.policy, got, c.want)
		}
		reasons := ""
		for _, w := range warnings {
			reasons += w.Reason + " "
		}
		if reasons != c.warnings {
			t.Errorf("%s: warnings %q, want %q", c.policy, reasons, c.warnings)
		}
	}
}

// Without a resolv.conf of the node, pods that would have its configuration resolve no names.
func TestDNSWithoutResolvConf(t *testing.T) {
	for _, c := range []struct {
		ips  []string
		want string
	}{
		{nil, "127.0.0.1"},
		{[]string{"10.0.0.1"}, "127.0.0.1"},
		{[]string{"fd00::1", "10.0.0.1"}, "::1 127.0.0.1"},
	} {
		p := newPod()
		p.Spec.Spec.DNSPolicy, p.Node.IPs = v1.DNSDefault, c.ips
		config, warnings := p.DNSConfig(), p.DNSWarnings()
		if got := strings.Join(config.Servers, " "); got != c.want || len(warnings) > 0 ||
			strings.Join(config.Searches, " ") != "." {
			t.Errorf("%v: %v, %v; want %s", c.ips, config, warnings, c.want)
		}
	}
}

func TestSearchPathsAreLimited(t *testing.T) {
	for _, c := range []struct {
		name            string
		domains, length int
		add             string // one more, first
		want            int
		warned          bool
	}{
		{"all fit", 32, 10, "", 32, false},
		{"too many", 33, 10, "", 32, true},
		{"too long together", 40, 100, "", 20, true}, // 20 of 100 and 19 spaces
		{"each is too long", 8, 255, "", 0, true},
		{"one is too long", 3, 10, strings.Repeat("x", 254), 3, true},
		{"one has the greatest length", 3, 10, strings.Repeat("x", 253), 4, false},
	} {
		config := &runtimeapi.DNSConfig{}
		if c.add != "" {
			config.Searches = append(config.Searches, c.add)
		}
		for range c.domains {
			config.Searches = append(config.Searches, strings.Repeat("y", c.length))
		}
		warnings := limitResolvConf(config)
		if len(config.Searches) != c.want || len(warnings) > 0 != c.warned {
			t.Errorf("%s: %d search paths, warnings %v", c.name, len(config.Searches), warnings)
		}
	}
}

// The node's own file is checked with space for the domains of the cluster.
func TestCheckResolvConf(t *testing.T) {
	search := func(n, length int) string {
		return "search" + strings.Repeat(" "+strings.Repeat("x", length), n) + "\n"
	}
	for _, c := range []struct{ text, domain, lastError, want string }{
		{search(32, 10), "", "", ""},
		{search(30, 10), "c.l", "",
			"Resolv.conf file '/r' contains search line consisting of more than 29 domains!"},
		{search(29, 10), "c.l", "", ""},
		{search(1, 254), "", "", `Resolv.conf file "/r" contains a search path which length is ` +
			"more than allowed 253 chars!"},
		{search(9, 250), "", "", "Resolv.conf file '/r' contains search line which length is " +
			"more than allowed 2048 chars!"},
		{"", "", "does not exist", "does not exist"},
		{"nameserver 1.1.1.1\n nameserver \n", "", "",
			`Resolv.conf file "/r" has a nameserver line without an address, which is left out`},
		{"# nameserver\nnameserver 1.1.1.1", "", "", ""},
	} {
		node := &Node{DNS: DNS{Domain: c.domain}}
		node.Resolv.Path, node.Resolv.Text, node.Resolv.LastError = "/r", c.text, c.lastError
		if got := node.CheckResolvConf(); got != c.want {
			t.Errorf("%.40q: %q, want %q", c.text, got, c.want)
		}
	}
	if got := (&Node{}).CheckResolvConf(); got != "" {
		t.Errorf("without a file: %q", got)
	}
}
