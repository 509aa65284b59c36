package host

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"seedlet.dev/realworld/stats/cgroup"
	"seedlet.dev/world"
)

// measureNode reads how much of the machine is in use, by a few files: meminfo, the counters of two
// cgroups, loadavg. Numbers that cannot be read are zero.
func (p *Port) measureNode(m *world.MeasureNode) (*world.NodeMeasured, error) {
	proc := filepath.Join(p.opts.Root, "proc")
	memory, err := cgroup.ReadMemInfo(proc)
	if err != nil {
		return nil, fmt.Errorf("measuring the node: %w", err)
	}
	reader, err := cgroup.New(cgroup.Roots{Cgroup: p.opts.CgroupRoot, Proc: proc,
		Sys: filepath.Join(p.opts.Root, "sys")})
	if err != nil {
		return nil, fmt.Errorf("measuring the node: %w", err)
	}
	measured := &world.NodeMeasured{Processes: processes(p.opts.Root),
		ProcessesMax: pidsMax(p.opts.Root)}
	if used, ok := workingSet(reader, "/"); ok {
		measured.MemoryBytes, measured.WorkingSetBytes = int64(memory.Total), used
	}
	if measured.Processes == 0 {
		measured.ProcessesMax = 0
	}
	if m.Pods != "" {
		path, err := cgroupDirectory("MeasureNode", m.Pods, m.Systemd)
		if err != nil {
			return nil, err
		}
		measured.PodsWorkingSetBytes, measured.PodsMeasured = workingSet(reader, "/"+path)
	}
	return measured, nil
}

// workingSet returns the working set of a cgroup, and false if it cannot be read.
func workingSet(reader *cgroup.Reader, path string) (int64, bool) {
	usage, err := reader.Usage(path)
	if err != nil || usage.Memory == nil {
		return 0, false
	}
	return int64(usage.Memory.WorkingSet), true
}

// processes returns how many processes and threads the machine has; zero if that is unknown. The
// line of loadavg is "0.20 0.18 0.12 1/80 11206".
func processes(root string) int64 {
	fields := strings.Fields(firstLine(root, "proc/loadavg"))
	if len(fields) < 4 {
		return 0
	}
	_, all, _ := strings.Cut(fields[3], "/")
	n, err := strconv.ParseInt(all, 10, 64)
	if err != nil {
		return 0
	}
	return n
}
