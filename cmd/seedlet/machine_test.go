package main

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/cpuset"

	"seedlet.dev/core/config"
	"seedlet.dev/world"
)

// cgroupMountsV1 returns a directory with hierarchies of cgroup v1, and cgroups in some of them.
func cgroupMountsV1(t *testing.T) string {
	mounts := t.TempDir()
	for _, dir := range []string{"cpu,cpuacct", "cpuset", "memory", "memory/kube.slice/kube-a.slice",
		"memory/system", "cpu,cpuacct/kube.slice/kube-a.slice"} {
		if err := os.MkdirAll(filepath.Join(mounts, dir), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mounts, dir, "cgroup.procs"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return mounts
}

// machineCheck is a check of a machine with a changed configuration.
type machineCheck struct {
	name    string
	change  func(*kubeletconfig.KubeletConfiguration)
	machine world.Machine
	want    string
}

func checkMachines(t *testing.T, mounts string, checks []machineCheck) {
	t.Helper()
	for _, test := range checks {
		c := &kubeletconfig.KubeletConfiguration{}
		config.SetDefaults(c)
		if test.change != nil {
			test.change(c)
		}
		if got := fmt.Sprint(checkMachine(c, &test.machine, mounts)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// An agent that must not run on the machine does not start there, and says why.
func TestCheckMachine(t *testing.T) {
	mounts := cgroupMountsV1(t)
	yes, no := true, false
	limitedSwap := func(c *kubeletconfig.KubeletConfiguration) {
		c.MemorySwap.SwapBehavior = "LimitedSwap"
	}
	checkMachines(t, mounts, []machineCheck{
		{"v1", nil, world.Machine{CgroupV1: true}, "<nil>"},
		{"v1, forbidden", func(c *kubeletconfig.KubeletConfiguration) { c.FailCgroupV1 = &yes },
			world.Machine{CgroupV1: true}, "failCgroupV1 is true, and the machine has cgroup v1"},
		{"v1, as a group", func(c *kubeletconfig.KubeletConfiguration) {
			c.SingleProcessOOMKill = &no
		}, world.Machine{CgroupV1: true}, "singleProcessOOMKill is false, and the machine has " +
			"cgroup v1, which cannot end all processes of a container together"},
		{"swap", nil, world.Machine{SwapBytes: 1}, "failSwapOn is true, and the machine has swap: " +
			"switch it off, or set failSwapOn to false"},
		{"swap, allowed", func(c *kubeletconfig.KubeletConfiguration) { c.FailSwapOn = &no },
			world.Machine{SwapBytes: 1}, "<nil>"},
		{"swap of containers", limitedSwap, world.Machine{}, "<nil>"},
		{"swap of containers, v1", limitedSwap, world.Machine{CgroupV1: true},
			"memorySwap.swapBehavior is LimitedSwap, and the machine has cgroup v1, where no " +
				"container may have swap"},
		{"root", func(c *kubeletconfig.KubeletConfiguration) { c.CgroupRoot = "/system/" },
			world.Machine{}, "<nil>"},
		{"root, a slice", func(c *kubeletconfig.KubeletConfiguration) { c.CgroupRoot = "/kube/a" },
			world.Machine{}, "<nil>"},
		{"root of all", func(c *kubeletconfig.KubeletConfiguration) { c.CgroupRoot = "/" },
			world.Machine{}, "<nil>"},
		{"root, missing", func(c *kubeletconfig.KubeletConfiguration) { c.CgroupRoot = "/gone" },
			world.Machine{}, `cgroupRoot: cgroup "/gone" does not exist below ` + mounts},
		{"root, without cgroups", func(c *kubeletconfig.KubeletConfiguration) {
			c.CgroupRoot, c.CgroupsPerQOS = "/gone", &no
		}, world.Machine{}, "<nil>"},
	})
	if err := os.RemoveAll(filepath.Join(mounts, "cpuset")); err != nil {
		t.Fatal(err)
	}
	c := &kubeletconfig.KubeletConfiguration{}
	config.SetDefaults(c)
	got := fmt.Sprint(checkMachine(c, &world.Machine{CgroupV1: true}, mounts))
	if got != mounts+": cgroup controllers are missing: cpuset" {
		t.Errorf("without cpuset: %q", got)
	}
}

// What has no effect on the machine is a warning.
func TestMachineWarnings(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{}
	config.SetDefaults(c)
	v1, swaps := &world.Machine{CgroupV1: true}, &world.Machine{SwapBytes: 1}
	if got := append(machineWarnings(c, v1), machineWarnings(c, &world.Machine{})...); got != nil {
		t.Errorf("by default: %q", got)
	}
	if got := machineWarnings(c, swaps); len(got) != 1 {
		t.Errorf("with swap: %q", got)
	}
	c.MemorySwap.SwapBehavior, c.FeatureGates = "NoSwap", map[string]bool{"MemoryQoS": true}
	if got := machineWarnings(c, v1); len(got) != 1 {
		t.Errorf("with MemoryQoS in cgroup v1: %q", got)
	}
	for kernel, warned := range map[string]bool{"6.1.0-18-amd64": false, "5.9.0": false,
		"5.8.18-generic": true, "4.19.0": true, "": true} {
		m := &world.Machine{KernelVersion: kernel, SwapBytes: 1}
		if got := machineWarnings(c, m); (len(got) == 1) != warned {
			t.Errorf("with MemoryQoS and NoSwap in v2, kernel %q: %q", kernel, got)
		}
	}
}

// Settings of TLS that are unsafe or have no effect are warnings.
func TestTLSWarnings(t *testing.T) {
	const safe, unsafe = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_128_CBC_SHA"
	for _, c := range []struct {
		minimum string
		suites  []string
		want    int
	}{
		{"", nil, 0}, {"VersionTLS13", nil, 0}, {"VersionTLS12", []string{safe}, 0},
		{"VersionTLS12", []string{safe, unsafe}, 1}, {"VersionTLS13", []string{safe}, 1},
	} {
		config := &kubeletconfig.KubeletConfiguration{TLSMinVersion: c.minimum, TLSCipherSuites: c.suites}
		if got := tlsWarnings(config); len(got) != c.want {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// CPUs that are reserved are online.
func TestCheckReservedCPUs(t *testing.T) {
	for _, test := range []struct{ reserved, online, want string }{
		{"", "0-3", "<nil>"},
		{"0-1,3", "0-3", "<nil>"},
		{"0-7", "", "<nil>"},
		{"1-5", "0-3", "reservedSystemCPUs: the CPUs 4-5 of 1-5 are not online: those are 0-3"},
	} {
		online, err := cpuset.Parse(test.online)
		if err != nil {
			t.Fatal(err)
		}
		c := &kubeletconfig.KubeletConfiguration{ReservedSystemCPUs: test.reserved}
		if got := fmt.Sprint(checkReservedCPUs(c, online)); got != test.want {
			t.Errorf("%q of %q: %s, want %s", test.reserved, test.online, got, test.want)
		}
	}
}

// A cgroup that is to be limited to what is reserved for it exists, with what its limits need.
func TestCheckReservedCgroups(t *testing.T) {
	mounts := cgroupMountsV1(t)
	checkMachines(t, mounts, []machineCheck{
		{"reserved", func(c *kubeletconfig.KubeletConfiguration) {
			c.EnforceNodeAllocatable = []string{"pods", "system-reserved", "kube-reserved-compressible"}
			c.SystemReservedCgroup, c.KubeReservedCgroup = "/system", "/kube-a.slice"
			c.SystemReserved = map[string]string{"memory": "1Gi"}
			c.KubeReserved = map[string]string{"cpu": "1", "memory": "1Gi", "pid": "10"}
		}, world.Machine{}, "<nil>"},
		{"reserved, in some hierarchies", func(c *kubeletconfig.KubeletConfiguration) {
			c.EnforceNodeAllocatable = []string{"system-reserved"}
			c.SystemReservedCgroup = "/system"
			c.SystemReserved = map[string]string{"cpu": "1", "memory": "1Gi", "pid": "10"}
		}, world.Machine{}, `systemReservedCgroup: cgroup "/system" below ` + mounts +
			" does not have the controllers cpu, pids"},
		{"reserved, missing", func(c *kubeletconfig.KubeletConfiguration) {
			c.EnforceNodeAllocatable = []string{"kube-reserved"}
			c.KubeReservedCgroup = "/gone"
		}, world.Machine{}, `kubeReservedCgroup: cgroup "/gone" does not exist below ` + mounts},
		{"not enforced", func(c *kubeletconfig.KubeletConfiguration) { c.KubeReservedCgroup = "/gone" },
			world.Machine{}, "<nil>"},
	})
}
