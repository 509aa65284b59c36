package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/cadvisor/lib/model"
)

const (
	devicesMax   = 4096 // of which the names are cached
	processesMax = 4096 // of one cgroup, of which open files are counted
)

// device identifies a block device.
type device struct{ major, minor uint64 }

// Detail adds what only /metrics/cadvisor serves: I/O per device, and the processes directly in
// this cgroup with their open files.
func (r *Reader) Detail(path string, s *model.ContainerStats) {
	if s.DiskIo == nil {
		s.DiskIo = &model.DiskIoStats{}
	}
	if d, err := openDir(r, r.dirOf(blkio, path)); err == nil {
		if r.unified {
			d.unifiedIO(s.DiskIo)
		} else {
			s.DiskIo.IoServiceBytes = d.legacyIO("blkio.throttle.io_service_bytes")
			s.DiskIo.IoServiced = d.legacyIO("blkio.throttle.io_serviced")
		}
		d.close()
	}
	if s.Processes == nil {
		s.Processes = &model.ProcessStats{}
	}
	all := r.Processes(path)
	s.Processes.ProcessCount = uint64(len(all))
	for _, pid := range all[:min(len(all), processesMax)] {
		files, sockets := r.openFiles(pid)
		s.Processes.FdCount += files
		s.Processes.SocketCount += sockets
	}
}

// unifiedIO reads lines such as "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=0 dios=0".
func (d *dir) unifiedIO(io *model.DiskIoStats) {
	for line := range bytes.Lines(d.read("io.stat")) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		volume, ok := d.parseDevice(fields[0])
		if !ok {
			continue
		}
		count := volume
		volume.Stats, count.Stats = map[string]uint64{}, map[string]uint64{}
		for _, field := range fields[1:] {
			key, text, _ := strings.Cut(field, "=")
			n, _ := parseNumber([]byte(text))
			switch key {
			case "rbytes":
				volume.Stats["Read"] = n
			case "wbytes":
				volume.Stats["Write"] = n
			case "dbytes":
				volume.Stats["Discard"] = n
			case "rios":
				count.Stats["Read"] = n
			case "wios":
				count.Stats["Write"] = n
			case "dios":
				count.Stats["Discard"] = n
			}
		}
		io.IoServiceBytes = append(io.IoServiceBytes, volume)
		io.IoServiced = append(io.IoServiced, count)
	}
}

// legacyIO reads lines such as "8:0 Read 1", of the recursive file if it exists.
func (d *dir) legacyIO(name string) []model.PerDiskStats {
	text := d.read(name + "_recursive")
	if text == nil {
		text = d.read(name)
	}
	var all []model.PerDiskStats
	for line := range bytes.Lines(bytes.Clone(text)) {
		fields := strings.Fields(string(line))
		if len(fields) != 3 {
			continue // the total of all devices
		}
		disk, ok := d.parseDevice(fields[0])
		n, err := strconv.ParseUint(fields[2], 10, 64)
		if !ok || err != nil {
			continue
		}
		if last := len(all) - 1; last >= 0 && all[last].Device == disk.Device {
			all[last].Stats[fields[1]] = n
			continue
		}
		disk.Stats = map[string]uint64{fields[1]: n}
		all = append(all, disk)
	}
	return all
}

// parseDevice parses numbers such as "8:0".
func (d *dir) parseDevice(numbers string) (model.PerDiskStats, bool) {
	var of device
	if n, err := fmt.Sscanf(numbers, "%d:%d", &of.major, &of.minor); n != 2 || err != nil {
		return model.PerDiskStats{}, false
	}
	return model.PerDiskStats{Device: d.r.deviceName(of), Major: of.major, Minor: of.minor}, true
}

// deviceName returns a name such as "/dev/sda", or the numbers of a device without a name.
func (r *Reader) deviceName(of device) string {
	if name, known := r.devices[of]; known {
		return name
	}
	numbers := fmt.Sprintf("%d:%d", of.major, of.minor)
	name := numbers
	if target, err := os.Readlink(filepath.Join(r.roots.Sys, "dev/block", numbers)); err == nil {
		name = "/dev/" + filepath.Base(target)
	}
	if len(r.devices) == devicesMax {
		clear(r.devices)
	}
	r.devices[of] = name
	return name
}

// Processes returns the ids of the processes directly in a cgroup.
func (r *Reader) Processes(path string) []int {
	for _, controller := range controllers {
		d, err := openDir(r, r.dirOf(controller, path))
		if err != nil {
			continue
		}
		var all []int
		for line := range bytes.Lines(d.read("cgroup.procs")) {
			if pid, err := strconv.Atoi(strings.TrimSpace(string(line))); err == nil && pid > 0 {
				all = append(all, pid)
			}
		}
		d.close()
		return all
	}
	return nil
}

// openFiles counts the open files of a process, and the sockets among them.
func (r *Reader) openFiles(pid int) (files, sockets uint64) {
	dir, err := os.Open(filepath.Join(r.roots.Proc, strconv.Itoa(pid), "fd"))
	if err != nil {
		return 0, 0 // the process has ended, or may not be inspected
	}
	defer func() { _ = dir.Close() }()
	names, _ := dir.Readdirnames(-1) // names read before an error count
	for _, name := range names {
		target, err := os.Readlink(filepath.Join(dir.Name(), name))
		if err == nil && strings.HasPrefix(target, "socket:") {
			sockets++
		}
	}
	return uint64(len(names)), sockets
}
