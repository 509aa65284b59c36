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

	"seedlet.dev/world"
)

// machineOf finds out what the machine is, as cAdvisor does for the kubelet. Each of these may be
// missing, in a container or on small boards; then it is empty.
func machineOf(root, rootDir string) world.Machine {
	return world.Machine{
		MachineID: firstLine(root, "etc/machine-id", "var/lib/dbus/machine-id"),
		SystemUUID: firstLine(root, "sys/class/dmi/id/product_uuid",
			"proc/device-tree/system-id", "proc/device-tree/vm,uuid", "etc/machine-id"),
		KernelVersion:   firstLine(root, "proc/sys/kernel/osrelease"),
		OSImage:         osImage(root),
		OperatingSystem: runtime.GOOS,
		Architecture:    runtime.GOARCH,
		SwapBytes:       swapBytes(root),
		RootDirBytes:    capacityBytes(rootDir),
		AppArmor:        firstLine(root, "sys/module/apparmor/parameters/enabled") == "Y",
		HugePages:       hugePages(filepath.Join(root, "sys/kernel/mm/hugepages")),
	}
}

// firstLine is what the first of some files that can be read holds, without what surrounds it;
// device trees end it with a zero.
func firstLine(root string, names ...string) string {
	for _, name := range names {
		if data, err := os.ReadFile(filepath.Join(root, name)); err == nil {
			return strings.TrimSpace(string(bytes.TrimRight(data, "\x00")))
		}
	}
	return ""
}

// osImage is the name of the distribution for people to read.
func osImage(root string) string {
	data, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if err != nil {
		data, err = os.ReadFile(filepath.Join(root, "usr/lib/os-release"))
	}
	if err != nil {
		return ""
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		if name, is := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); is {
			return strings.Trim(name, `"'`)
		}
	}
	return "Linux"
}

func swapBytes(root string) int64 {
	bytes, err := meminfo(filepath.Join(root, "proc/meminfo"), "SwapTotal:")
	if err != nil {
		return 0 // the kernel knows of no swap
	}
	return bytes
}

// capacityBytes is the size of the file system that a directory is on, or will be.
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

// hugePages reads how many pages there are of each size: hugepages-2048kB/nr_hugepages.
func hugePages(dir string) []world.HugePages {
	sizes, err := os.ReadDir(dir)
	if err != nil {
		return nil // the kernel may have none
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
