package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// amountTexts returns quantities as texts.
func amountTexts(list v1.ResourceList) map[string]string {
	found := map[string]string{}
	for name, q := range list {
		found[string(name)] = q.String()
	}
	return found
}

func TestAllocatable(t *testing.T) {
	boot := &world.Boot{CPUs: 8, MemoryBytes: 16 << 30, Machine: world.Machine{
		RootDirBytes: 100 << 30, HugePages: []world.HugePages{{SizeBytes: 2 << 20, Count: 512},
			{SizeBytes: 1 << 30}}}}
	for _, c := range []struct {
		name   string
		change func(*kubeletconfig.KubeletConfiguration)
		want   map[string]string
	}{
		{"defaults", func(*kubeletconfig.KubeletConfiguration) {}, map[string]string{"cpu": "8",
			"memory": "15260Mi", "pods": "110", "ephemeral-storage": "96636764000",
			"hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"}},
		{"reserved", func(c *kubeletconfig.KubeletConfiguration) {
			c.SystemReserved = map[string]string{"cpu": "500m", "memory": "1Gi", "pid": "1000"}
			c.KubeReserved = map[string]string{"cpu": "250m", "ephemeral-storage": "10Gi"}
			c.EvictionHard = map[string]string{"memory.available": "0%", "nodefs.available": "10Gi"}
		}, map[string]string{"cpu": "7250m", "memory": "14Gi", "pods": "110",
			"ephemeral-storage": "80Gi", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"}},
		{"CPUs by number, and more memory than there is", func(c *kubeletconfig.KubeletConfiguration) {
			c.ReservedSystemCPUs, c.PodsPerCore = "0-1,5", 10
			c.SystemReserved = map[string]string{"cpu": "500m", "memory": "1Ti"}
		}, map[string]string{"cpu": "5", "memory": "0", "pods": "80",
			"ephemeral-storage": "96636764000", "hugepages-2Mi": "1Gi", "hugepages-1Gi": "0"}},
	} {
		s := SettingsFromConfig(defaultConfig(c.change), "n1", Options{})
		capacity, allocatable := s.resources(boot, &v1.NodeStatus{}, true)
		if d := cmp.Diff(c.want, amountTexts(allocatable)); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
		if memory := capacity[v1.ResourceMemory]; memory.String() != "16Gi" {
			t.Errorf("%s: capacity %v", c.name, amountTexts(capacity))
		}
	}
}

// The cgroup of all pods enforces what is not reserved; thresholds of evictions and huge pages
// leave its limits as they are. Without "pods" in enforceNodeAllocatable it has those of the
// machine.
func TestEnforced(t *testing.T) {
	boot := &world.Boot{CPUs: 8, MemoryBytes: 16 << 30, Machine: world.Machine{PIDsMax: 32768,
		HugePages: []world.HugePages{{SizeBytes: 2 << 20, Count: 512}}}}
	reserve := func(c *kubeletconfig.KubeletConfiguration) {
		c.SystemReserved = map[string]string{"cpu": "500m", "memory": "1Gi", "pid": "1000"}
		c.KubeReserved = map[string]string{"cpu": "250m", "memory": "1Gi", "pid": "68"}
	}
	for _, enforced := range []struct {
		entries []string
		want    map[string]string
	}{
		{nil, map[string]string{"cpu": "7250m", "memory": "14Gi", "pid": "31700",
			"hugepages-2Mi": "1Gi", "pods": "110"}},
		{[]string{"none"}, map[string]string{"cpu": "8", "memory": "16Gi", "pid": "32768",
			"hugepages-2Mi": "1Gi", "pods": "110"}},
	} {
		config := defaultConfig(reserve)
		if enforced.entries != nil {
			config.EnforceNodeAllocatable = enforced.entries
		}
		n := Node{Settings: SettingsFromConfig(config, "n1", Options{})}
		unreserved, limits := n.Unreserved(boot)
		if d := cmp.Diff(enforced.want, amountTexts(limits)); d != "" {
			t.Errorf("%v: %s", enforced.entries, d)
		}
		if memory := unreserved[v1.ResourceMemory]; memory.String() != "14Gi" {
			t.Errorf("%v: not reserved are %v", enforced.entries, amountTexts(unreserved))
		}
	}
}

// More than the machine has cannot be reserved.
func TestCheckReserved(t *testing.T) {
	boot := &world.Boot{CPUs: 8, MemoryBytes: 1 << 30}
	for memory, want := range map[string]string{
		"900Mi": "<nil>",
		"1000Mi": "kubeReserved, systemReserved and evictionHard: of memory 1100Mi is reserved, " +
			"and there is 1Gi",
	} {
		s := SettingsFromConfig(defaultConfig(func(c *kubeletconfig.KubeletConfiguration) {
			c.SystemReserved = map[string]string{"memory": memory}
		}), "n1", Options{})
		if got := fmt.Sprint(s.CheckReserved(boot)); got != want {
			t.Errorf("%s: %q, want %q", memory, got, want)
		}
	}
}

func TestAddresses(t *testing.T) {
	found := []string{"192.0.2.1", "2001:db8::1"}
	theirs := []v1.NodeAddress{{Type: v1.NodeExternalIP, Address: "203.0.113.1"}}
	for _, c := range []struct {
		name    string
		options Options
		found   []string
		are     []v1.NodeAddress
		want    string
	}{
		{"found", Options{}, found, theirs, "192.0.2.1 n1"},
		{"found, of one family", Options{}, found[1:], nil, "2001:db8::1 n1"},
		{"none found", Options{}, nil, theirs, "203.0.113.1"},
		{"given", Options{IPs: []string{"192.0.2.5"}}, found, nil, "192.0.2.5 n1"},
		{"both given", Options{IPs: []string{"2001:db8::5", "192.0.2.5"}}, nil, nil,
			"2001:db8::5 192.0.2.5 n1"},
		{"the other family", Options{IPs: []string{"::"}}, found, nil, "2001:db8::1 n1"},
		{"cloud", Options{ExternalCloud: true}, found, nil, "n1"},
		{"cloud with a family", Options{ExternalCloud: true, IPs: []string{"::"}}, found, nil,
			"2001:db8::1 n1"},
		{"cloud provider has set addresses",
			Options{ExternalCloud: true, IPs: []string{"192.0.2.5"}}, found,
			theirs, "203.0.113.1"},
		{"cloud with an address", Options{ExternalCloud: true, IPs: []string{"192.0.2.5"}}, found, nil,
			"192.0.2.5 n1"},
	} {
		s := SettingsFromConfig(defaultConfig(nil), "n1", c.options)
		var got []string
		for _, a := range s.addresses(&world.Boot{Addresses: c.found}, c.are) {
			got = append(got, a.Address)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %v, want %s", c.name, got, c.want)
		}
	}
}

// The kubelet's order: the name as an address, what the name resolves to, the default route.
func TestAddressOfName(t *testing.T) {
	for _, c := range []struct {
		name, node string
		ips        []string
		resolved   []string
		want       string
	}{
		{"the name is an address", "10.0.0.7", nil, []string{"192.0.2.9"}, "10.0.0.7"},
		{"resolved", "n1", nil, []string{"2001:db8::9", "192.0.2.9"}, "192.0.2.9"},
		{"resolved, of the other family", "n1", nil, []string{"2001:db8::9"}, "2001:db8::9"},
		{"resolved, the family is given", "n1", []string{"::"}, []string{"192.0.2.9", "2001:db8::9"},
			"2001:db8::9"},
		{"not resolved", "n1", nil, nil, "192.0.2.1"},
		{"given", "n1", []string{"192.0.2.5"}, []string{"192.0.2.9"}, "192.0.2.5"},
	} {
		s := SettingsFromConfig(defaultConfig(nil), c.node, Options{IPs: c.ips})
		boot := &world.Boot{Addresses: []string{"192.0.2.1", "2001:db8::1"}, NameAddresses: c.resolved}
		got := s.addresses(boot, nil)
		want := []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: c.want},
			{Type: v1.NodeHostName, Address: c.node}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", c.name, d)
		}
	}
	for _, c := range []struct {
		options Options
		node    string
		want    string
	}{
		{Options{}, "n1", "n1"}, {Options{IPs: []string{"0.0.0.0"}}, "n1", "n1"},
		{Options{IPs: []string{"192.0.2.5"}}, "n1", ""}, {Options{}, "10.0.0.7", ""},
		{Options{ExternalCloud: true}, "n1", ""},
	} {
		if got := c.options.NameToResolve(c.node); got != c.want {
			t.Errorf("%+v: resolves %q, want %q", c.options, got, c.want)
		}
	}
}

// Pods have the addresses of the Node object, which a cloud provider may have set.
func TestHostIPs(t *testing.T) {
	boot := &world.Boot{Addresses: []string{"192.0.2.1", "2001:db8::1"}}
	address := func(t v1.NodeAddressType, ip string) v1.NodeAddress {
		return v1.NodeAddress{Type: t, Address: ip}
	}
	const internal, external = v1.NodeInternalIP, v1.NodeExternalIP
	for _, c := range []struct {
		name    string
		options Options
		are     []v1.NodeAddress // nil: there is no object
		want    string
	}{
		{"no object: one family", Options{}, nil, "192.0.2.1"},
		{"no object, the other family", Options{IPs: []string{"::"}}, nil, "2001:db8::1"},
		{"no object, both", Options{IPs: []string{"2001:db8::5", "192.0.2.5"}}, nil,
			"2001:db8::5 192.0.2.5"},
		{"no object, external cloud", Options{ExternalCloud: true}, nil, ""},
		{"single stack", Options{}, []v1.NodeAddress{address(internal, "192.0.2.7"),
			address(internal, "192.0.2.8")}, "192.0.2.7"},
		{"internal before external", Options{ExternalCloud: true}, []v1.NodeAddress{
			address(external, "203.0.113.1"), address(internal, "2001:db8::7"),
			address(external, "203.0.113.2")}, "2001:db8::7 203.0.113.1"},
		{"the cloud has set none yet", Options{ExternalCloud: true},
			[]v1.NodeAddress{address(v1.NodeHostName, "n1")}, ""},
		{"another form", Options{}, []v1.NodeAddress{address(internal, "x"),
			address(internal, "2001:DB8:0::7")}, "2001:db8::7"},
	} {
		n := &Node{Settings: SettingsFromConfig(defaultConfig(nil), "n1", c.options)}
		if c.are != nil {
			n.Object = &v1.Node{Status: v1.NodeStatus{Addresses: c.are}}
		}
		if got := strings.Join(n.HostIPs(boot), " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The scheduler places pods on the node for what it declares: only what the agent has, and only
// while its gate is on.
func TestDeclaredFeatures(t *testing.T) {
	all := []string{"ExtendWebSocketsToKubelet", "InPlacePodLevelResourcesVerticalScaling",
		"InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
	for _, c := range []struct {
		off  string
		want []string
	}{
		{"", all},
		{all[0], all[1:]},
		{all[1], []string{all[0], all[2], all[3]}},
		{all[2], []string{all[0], all[1], all[3]}},
		{all[3], all[:3]},
		{"NodeDeclaredFeatures", nil},
	} {
		r := newHarness(t, func(k *kubeletconfig.KubeletConfiguration) {
			if c.off != "" {
				k.FeatureGates = map[string]bool{c.off: false}
			}
		}, Options{})
		r.expect(0, "GetObject", "CreateObject")
		if d := cmp.Diff(c.want, r.stored.Status.DeclaredFeatures); d != "" {
			t.Errorf("without %q: %s", c.off, d)
		}
		r.expect(10 * time.Second) // no further status: there is no difference
	}
}

func TestExternalCloud(t *testing.T) {
	r := newHarness(t, nil, Options{ExternalCloud: true, IPs: []string{"192.0.2.5", "2001:db8::5"}})
	r.expect(0, "GetObject", "CreateObject")
	want := []v1.Taint{{Key: uninitializedTaint, Value: "true", Effect: v1.TaintEffectNoSchedule}}
	if d := cmp.Diff(want, r.stored.Spec.Taints); d != "" {
		t.Error(d)
	}
	if got := r.stored.Annotations[providedIPAnnotation]; got != "192.0.2.5,2001:db8::5" {
		t.Errorf("annotation %q", got)
	}
}

func TestParseLabels(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "",
		"a=b, c = d ,e":                         "",
		"example.com/x=y":                       "",
		"kubernetes.io/arch=x":                  "",
		"node.kubernetes.io/x=":                 "",
		"a.kubelet.kubernetes.io/x=1":           "",
		"node-role.kubernetes.io/worker=":       "not a node's to set",
		"kubernetes.io/x=1":                     "not a node's to set",
		"x.k8s.io/y=1":                          "not a node's to set",
		"a b=c":                                 "no label",
		"a=b c":                                 "no label",
		"=x":                                    "no label",
		"topology.kubernetes.io/zone=z,-bad-=1": "no label",
	} {
		labels, err := ParseLabels(text)
		if want == "" && err != nil || want != "" &&
			(err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, %v; want %q", text, labels, err, want)
		}
	}
	labels, _ := ParseLabels("a=b, c = d ,e")
	if d := cmp.Diff(map[string]string{"a": "b", "c": "d", "e": ""}, labels); d != "" {
		t.Error(d)
	}
}

func TestParseIPs(t *testing.T) {
	for text, want := range map[string]string{
		"": "", "192.0.2.1": "192.0.2.1", "192.0.2.1, 2001:db8::1": "192.0.2.1 2001:db8::1",
		"::": "::", "::ffff:192.0.2.1": "192.0.2.1", "127.0.0.1": "!", "fe80::1": "!", "224.0.0.1": "!",
		"x": "!", "192.0.2.1,192.0.2.2": "!", "0.0.0.0,::": "!",
	} {
		ips, err := ParseIPs(text)
		if got := strings.Join(ips, " "); (err != nil) != (want == "!") || err == nil && got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestNormalizeVersion(t *testing.T) {
	for version, want := range map[string]string{
		"v2.1.0": "2.1.0", "1.7.24~ds1": "1.7.24", "2.0.0-rc.1+x": "2.0.0-rc.1+x", "1.6": "1.6",
		"unknown": "Unknown", "": "Unknown",
	} {
		if got := normalizeVersion(version); got != want {
			t.Errorf("%q: %q, want %q", version, got, want)
		}
	}
}

func TestImages(t *testing.T) {
	r := newHarness(t, nil, Options{})
	r.node.Images.NextAt = t0
	if d := cmp.Diff([]string{"ListImagesimages", "GetObject"}, r.plan(0)); d != "" {
		t.Fatal(d)
	}
	i := &r.node.Images
	completion := world.Event{Time: t0, Body: &runtimeapi.ListImagesResponse{
		Images: []*runtimeapi.Image{
			{Id: "b", Size: 5, RepoTags: []string{"b:1"}, RepoDigests: []string{"b@sha256:1"}},
			{Id: "c", Size: 7, RepoTags: []string{"1", "2", "3", "4", "5", "6"}},
			{Id: "a", Size: 5},
		}}}
	i.handleCompletion(completion, 2)
	want := []v1.ContainerImage{{Names: []string{"1", "2", "3", "4", "5"}, SizeBytes: 7},
		{SizeBytes: 5}}
	if d := cmp.Diff(want, i.List); d != "" {
		t.Error(d)
	}
	i.handleCompletion(world.Event{Time: t0, Err: world.Errorf(world.KindTimeout, "", "")}, 2)
	if len(i.List) != 2 || !i.Listed || !i.NextAt.Equal(t0.Add(30*time.Second)) {
		t.Errorf("after a failure: %+v", i)
	}
	i.handleCompletion(completion, -1)
	if len(i.List) != 3 || i.List[1].Names != nil || i.List[2].Names[0] != "b@sha256:1" {
		t.Errorf("%+v", i.List)
	}
}
