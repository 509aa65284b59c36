package host

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/google/cadvisor/lib/model"

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
	if measured.Processes == 0 {
		measured.ProcessesMax = 0
	}
	machine, ok := memoryOf(reader, "/")
	if ok {
		measured.MemoryBytes, measured.WorkingSetBytes = int64(memory.Total), int64(machine.WorkingSet)
	}
	problems := p.alert(alertMachine, "/", m.AlertAbove, machine)
	if m.Pods != "" {
		path, err := cgroupDirectory("MeasureNode", m.Pods, m.Systemd)
		if err != nil {
			return nil, err
		}
		pods, ok := memoryOf(reader, "/"+path)
		measured.PodsWorkingSetBytes, measured.PodsMeasured = int64(pods.WorkingSet), ok
		problems = errors.Join(problems, p.alert(alertPods, path, m.AlertPodsAbove, pods))
	}
	if problems != nil {
		measured.AlertProblem = problems.Error()
	}
	return measured, nil
}

// alert has the kernel report when the working set of a cgroup exceeds an amount; zero: not any
// more. The kernel knows usage alone, so what can be reclaimed of it now is added.
func (p *Port) alert(which int, path string, above int64, now model.MemoryStats) error {
	if above <= 0 {
		return p.alerts.set(which, "", 0)
	}
	dir := p.opts.CgroupRoot
	if !hasFile(dir, "cgroup.controllers") {
		dir = filepath.Join(dir, "memory")
	}
	return p.alerts.set(which, filepath.Join(dir, path), above+int64(now.Usage-now.WorkingSet))
}

// memoryOf returns the memory of a cgroup, and false if it cannot be read.
func memoryOf(reader *cgroup.Reader, path string) (model.MemoryStats, bool) {
	usage, err := reader.Usage(path)
	if err != nil || usage.Memory == nil {
		return model.MemoryStats{}, false
	}
	return *usage.Memory, true
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
