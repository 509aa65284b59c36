package host_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/realworld/host"
	"seedlet.dev/world"
)

func TestMachineFromFiles(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/sys/kernel/random/boot_id":    "a-b-c\n",
		"proc/sys/kernel/osrelease":         "6.1.0-1-amd64\n",
		"proc/meminfo":                      "MemTotal: 2048 kB\nSwapTotal: 1024 kB\n",
		"etc/machine-id":                    "0123456789abcdef\n",
		"sys/class/dmi/id/product_uuid":     "4c4c4544\n",
		"etc/os-release":                    "ID=x\nPRETTY_NAME=\"X Linux 12\"\n",
		"proc/self/attr/current":            "system_u:system_r:unconfined_service_t:s0\x00",
		"sys/fs/selinux/enforce":            "0",
		"sys/fs/cgroup/memory/cgroup.procs": "1\n",
		"sys/devices/system/cpu/cpu10/thermal_throttle/core_throttle_count": "0\n",
		"sys/devices/system/cpu/cpu9/thermal_throttle/core_throttle_count":  "0\n",
		"sys/devices/system/cpu/cpu1/online":                                "1\n",
		"sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages":             "3\n",
		"sys/fs/cgroup/memory/memory.memsw.limit_in_bytes":                  "1\n",
		"proc/sys/kernel/pid_max":                                           "4194304\n",
		"proc/sys/kernel/threads-max":                                       "31000\n",
		"sys/kernel/mm/hugepages/hugepages-64kB/nr_hugepages":               "0\n",
		"sys/kernel/mm/hugepages/hugepages-1024kB/nr_hugepages":             "many\n",
		"sys/kernel/mm/hugepages/something-else/nr_hugepages":               "1\n",
		"sys/kernel/mm/hugepages/hugepages-512kB/free_hugepages":            "1\n",
	} {
		write(t, filepath.Join(root, name), text)
	}
	boot, err := host.Boot(root, filepath.Join(root, "not", "there", "yet"), host.IDFiles{})
	if err != nil {
		t.Fatal(err)
	}
	if boot.Machine.RootDirBytes <= 0 {
		t.Errorf("capacity of %d bytes", boot.Machine.RootDirBytes)
	}
	boot.Machine.RootDirBytes = 0
	want := world.Machine{MachineID: "0123456789abcdef", SystemUUID: "4c4c4544",
		KernelVersion: "6.1.0-1-amd64", OSImage: "X Linux 12", OperatingSystem: runtime.GOOS,
		Architecture: runtime.GOARCH, SwapBytes: 1 << 20, SELinux: true, CgroupV1: true,
		SwapLimits: true, PIDsMax: 31000, PageBytes: int64(os.Getpagesize()),
		ThermalThrottleCPUs: []int{9, 10},
		HugePages:           []world.HugePages{{SizeBytes: 64 << 10}, {SizeBytes: 2 << 20, Count: 3}}}
	if d := cmp.Diff(want, boot.Machine); d != "" {
		t.Error(d)
	}
}

// In v2 the agent's own cgroup shows whether swap can be limited.
func TestSwapLimitsOfVersion2(t *testing.T) {
	for _, own := range []string{"/agent.slice", "/other.slice"} {
		root := t.TempDir()
		for name, text := range map[string]string{
			"proc/sys/kernel/random/boot_id": "a\n", "proc/meminfo": "MemTotal: 2048 kB\n",
			"proc/self/cgroup": "0::" + own + "\n", "sys/fs/cgroup/cgroup.controllers": "memory\n",
			"sys/fs/cgroup/agent.slice/memory.swap.max": "max\n",
		} {
			write(t, filepath.Join(root, name), text)
		}
		boot, err := host.Boot(root, root, host.IDFiles{})
		if err != nil || boot.Machine.SwapLimits != (own == "/agent.slice") {
			t.Errorf("%s: %+v, %v", own, boot.Machine, err)
		}
	}
}

// SELinux is disabled without its file system, and if the kernel's label is that of processes.
func TestMachineWithoutSELinux(t *testing.T) {
	for _, files := range []map[string]string{
		{},
		{"proc/self/attr/current": "docker-default (enforce)\n"},
		{"proc/self/attr/current": "kernel\x00", "sys/fs/selinux/enforce": "0"},
	} {
		root := t.TempDir()
		write(t, filepath.Join(root, "proc/sys/kernel/random/boot_id"), "a\n")
		write(t, filepath.Join(root, "proc/meminfo"), "MemTotal: 2048 kB\n")
		for name, text := range files {
			write(t, filepath.Join(root, name), text)
		}
		boot, err := host.Boot(root, root, host.IDFiles{})
		if err != nil || boot.Machine.SELinux {
			t.Errorf("%v: %+v, %v", files, boot, err)
		}
	}
}

// The facts agree with the machine's own tools.
func TestMachineOfThisMachine(t *testing.T) {
	boot, err := host.Boot("/", t.TempDir(), host.IDFiles{})
	if err != nil {
		t.Fatal(err)
	}
	m := boot.Machine
	uname, err := exec.Command("uname", "-r").Output()
	if err != nil || m.KernelVersion != strings.TrimSpace(string(uname)) {
		t.Errorf("kernel %q, uname says %q (%v)", m.KernelVersion, uname, err)
	}
	release, err := os.ReadFile("/etc/os-release")
	if err != nil || m.OSImage == "" || !strings.Contains(string(release), m.OSImage) {
		t.Errorf("image %q is not in os-release (%v)", m.OSImage, err)
	}
	if m.RootDirBytes < 1<<20 || m.SwapBytes < 0 || m.OperatingSystem != "linux" {
		t.Errorf("unlikely machine: %+v", m)
	}
}
