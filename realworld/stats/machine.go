package stats

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/model"

	"seedlet.dev/realworld/stats/cgroup"
)

// measureMachine returns the data of the machine; nil if it cannot be read.
func (s *Source) measureMachine(context.Context) *model.MachineInfo {
	roots := s.opts.Roots
	cpus, err := os.ReadFile(filepath.Join(roots.Proc, "cpuinfo"))
	if err != nil {
		return nil
	}
	memory, err := cgroup.ReadMemInfo(roots.Proc)
	if err != nil {
		return nil
	}
	info := &model.MachineInfo{
		NumCores:         strings.Count("\n"+string(cpus), "\nprocessor\t"),
		NumPhysicalCores: machine.GetPhysicalCores(cpus),
		NumSockets:       machine.GetSockets(cpus),
		NumBooks:         machine.GetBooks(cpus),
		NumDrawers:       machine.GetDrawers(cpus),
		MemoryCapacity:   memory.Total,
		SwapCapacity:     memory.SwapTotal,
		MachineID:        readLine("/etc/machine-id"),
		SystemUUID:       readLine(filepath.Join(roots.Sys, "class/dmi/id/product_uuid")),
		BootID:           readLine(filepath.Join(roots.Proc, "sys/kernel/random/boot_id")),
	}
	if info.SystemUUID == "" {
		info.SystemUUID = info.MachineID
	}
	return info
}

// readLine returns the content of a file of one line; empty if it cannot be read.
func readLine(path string) string {
	data, _ := os.ReadFile(path)
	return strings.TrimSpace(string(data))
}

// addFileSystems adds the node's file system to the metrics of the root cgroup, with the total I/O
// of its device. That I/O is not shown a second time as the cgroup's.
func (s *Source) addFileSystems(ctx context.Context, root *model.ContainerStats) {
	storage, err := s.storage.get(ctx)
	if err != nil || storage.node == nil {
		return
	}
	n := storage.node
	fs := model.FsStats{Device: deviceOf(s.opts.Roots.Proc, s.opts.RootDir),
		Limit: *n.CapacityBytes, Usage: *n.UsedBytes, Available: *n.AvailableBytes,
		HasInodes: true, Inodes: *n.Inodes, InodesFree: *n.InodesFree}
	addDeviceIO(&fs, s.opts.Roots.Proc)
	root.Filesystem = []model.FsStats{fs}
	var others []model.PerDiskStats
	for _, disk := range root.DiskIo.IoServiced {
		if disk.Device != fs.Device {
			others = append(others, disk)
		}
	}
	root.DiskIo.IoServiced = others
}

// addDeviceIO adds the counters of a device in PROC/diskstats, whose times are in milliseconds.
func addDeviceIO(fs *model.FsStats, proc string) {
	const milliseconds = 1_000_000 // in nanoseconds
	data, err := os.ReadFile(filepath.Join(proc, "diskstats"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 14 || "/dev/"+fields[2] != fs.Device {
			continue
		}
		var n [11]uint64
		for i := range n {
			n[i], _ = strconv.ParseUint(fields[3+i], 10, 64)
		}
		fs.ReadsCompleted, fs.ReadsMerged, fs.SectorsRead = n[0], n[1], n[2]
		fs.WritesCompleted, fs.WritesMerged, fs.SectorsWritten = n[4], n[5], n[6]
		fs.ReadTime, fs.WriteTime = n[3]*milliseconds, n[7]*milliseconds
		fs.IoInProgress, fs.IoTime, fs.WeightedIoTime = n[8], n[9]*milliseconds, n[10]*milliseconds
	}
}

// deviceOf returns the source of the mount that holds a directory; empty if it cannot be
// determined.
func deviceOf(proc, dir string) string {
	data, err := os.ReadFile(filepath.Join(proc, "self/mounts"))
	if err != nil {
		return ""
	}
	device, longest := "", -1
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line) // "/dev/sda1 / ext4 rw 0 0"
		if len(fields) < 3 {
			continue
		}
		at := strings.TrimSuffix(fields[1], "/") + "/"
		if strings.HasPrefix(dir+"/", at) && len(at) >= longest {
			device, longest = fields[0], len(at)
		}
	}
	return device
}
