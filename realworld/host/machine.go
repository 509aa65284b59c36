package host

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// readMachine returns the facts about the machine that cAdvisor collects for the kubelet. A fact
// that is missing, as in a container or on small boards, is empty.
func readMachine(root, rootDir string, ids IDFiles) world.Machine {
	id, _ := firstFile(root, cmp.Or(ids.Machine, DefaultIDFiles.Machine))
	return world.Machine{
		MachineID: id,
		SystemUUID: firstLine(root, "sys/class/dmi/id/product_uuid",
			"proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id"),
		KernelVersion:   firstLine(root, "proc/sys/kernel/osrelease"),
		OSImage:         osImage(root),
		OperatingSystem: runtime.GOOS,
		Architecture:    runtime.GOARCH,
		SwapBytes:       swapBytes(root),
		RootDirBytes:    capacityBytes(rootDir),
		AppArmor:        firstLine(root, "sys/module/apparmor/parameters/enabled") == "Y",
		SELinux:         hasSELinux(root),
		CgroupV1:        hasCgroupV1(filepath.Join(root, "sys/fs/cgroup")),
		SwapLimits:      hasSwapLimits(root),
		SwapsTmpfs:      swapBytes(root) > 0 && !canTmpfsStayInMemory(),
		PIDsMax:         pidsMax(root),
		PageBytes:       int64(os.Getpagesize()),
		HugePages:       hugePages(filepath.Join(root, "sys/kernel/mm/hugepages")),

		SELinuxFileLabel:    seLinuxFileLabel(root),
		ThermalThrottleCPUs: throttledCPUs(root),
	}
}

// hasCgroupV1 reports whether hierarchies of cgroup v1 are mounted at a directory.
func hasCgroupV1(root string) bool {
	found, err := findHierarchies(root)
	return err == nil && !found[0].unified
}

// hasSwapLimits reports whether cgroups can limit swap. In v2 the root has no file for that, so the
// agent's own cgroup is looked at (checkSwapControllerAvailability in
// pkg/kubelet/kuberuntime/kuberuntime_container_linux.go).
func hasSwapLimits(root string) bool {
	mounts := filepath.Join(root, "sys/fs/cgroup")
	if hasCgroupV1(mounts) {
		return hasFile(filepath.Join(mounts, "memory"), "memory.memsw.limit_in_bytes")
	}
	_, own, _ := strings.Cut(firstLine(root, "proc/self/cgroup"), "0::")
	return hasFile(filepath.Join(mounts, own), "memory.swap.max")
}

// canTmpfsStayInMemory reports whether the kernel has the option noswap of tmpfs, since Linux 6.4.
// Nothing is mounted to find out.
func canTmpfsStayInMemory() bool {
	fs, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fs) }() // nothing was written
	return unix.FsconfigSetFlag(fs, "noswap") == nil
}

// pidsMax returns how many processes and threads the machine can have; zero if that is unknown. The
// kernel has a bound for the numbers and one for the count.
func pidsMax(root string) int64 {
	least := int64(0)
	for _, name := range []string{"pid_max", "threads-max"} {
		n, err := strconv.ParseInt(firstLine(root, "proc/sys/kernel/"+name), 10, 64)
		if err == nil && n > 0 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}

// throttledCPUs returns the numbers of the CPUs that have counters of their temperature.
func throttledCPUs(root string) []int {
	const dir, name = "sys/devices/system/cpu/cpu", "/thermal_throttle"
	var cpus []int
	found, _ := filepath.Glob(filepath.Join(root, dir+"[0-9]*"+name)) // fails for a bad pattern only
	for _, path := range found {
		number := strings.TrimSuffix(strings.TrimPrefix(path, filepath.Join(root, dir)), name)
		if cpu, err := strconv.Atoi(number); err == nil {
			cpus = append(cpus, cpu)
		}
	}
	slices.Sort(cpus)
	return cpus
}

// firstLine returns the trimmed content of the first file that can be read. Device trees terminate
// it with a zero byte.
func firstLine(root string, names ...string) string {
	for _, name := range names {
		if data, err := os.ReadFile(filepath.Join(root, name)); err == nil {
			return strings.TrimSpace(string(bytes.TrimRight(data, "\x00")))
		}
	}
	return ""
}

// osImage returns the human-readable name of the distribution.
func osImage(root string) string {
	data, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if err != nil {
		data, err = os.ReadFile(filepath.Join(root, "usr/lib/os-release"))
	}
	if err != nil {
		return ""
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Linux"
}

func swapBytes(root string) int64 {
	bytes, err := readMeminfo(filepath.Join(root, "proc/meminfo"), "SwapTotal:")
	if err != nil {
		return 0 // a kernel without swap
	}
	return bytes
}

// capacityBytes returns the size of the file system of a directory, which need not exist yet.
func capacityBytes(dir string) int64 {
	for {
		var stat syscall.Statfs_t
		switch err := syscall.Statfs(dir, &stat); {
		case err == nil:
			return int64(stat.Blocks) * int64(cmp.Or(stat.Frsize, stat.Bsize))
		case err != syscall.ENOENT || dir == "/" || dir == ".":
			return 0
		}
		dir = filepath.Dir(dir)
	}
}

// hugePages returns the number of huge pages of each size: hugepages-2048kB/nr_hugepages.
func hugePages(dir string) []world.HugePages {
	sizes, err := os.ReadDir(dir)
	if err != nil {
		return nil // a kernel without huge pages
	}
	var all []world.HugePages
	for _, size := range sizes {
		pages, err := hugePagesOf(dir, size)
		if err == nil {
			all = append(all, pages)
		}
	}
	slices.SortFunc(all, func(x, y world.HugePages) int {
		return cmp.Compare(x.SizeBytes, y.SizeBytes)
	})
	return all
}

func hugePagesOf(dir string, size fs.DirEntry) (world.HugePages, error) {
	var kib int64
	if _, err := fmt.Sscanf(size.Name(), "hugepages-%dkB", &kib); err != nil {
		return world.HugePages{}, err
	}
	data, err := os.ReadFile(filepath.Join(dir, size.Name(), "nr_hugepages"))
	if err != nil {
		return world.HugePages{}, err
	}
	count, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	return world.HugePages{SizeBytes: kib << 10, Count: count}, err
}
