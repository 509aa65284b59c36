package runtime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// What processes use, and the end of one by the kernel when the machine has no memory left.

// Load is what a process uses from an age on. An amount of zero stays as it was.
type Load struct {
	At          time.Duration // since the start of the process
	MemoryBytes int64
	Processes   int64 // with their threads
}

// scheduleLoads schedules the loads of a process.
func (r *Runtime) scheduleLoads(c *container) {
	c.load = Load{}
	for _, l := range c.script.Loads {
		r.after(l.At, func() {
			if c.State != running {
				return
			}
			if l.MemoryBytes > 0 {
				c.load.MemoryBytes = l.MemoryBytes
			}
			if l.Processes > 0 {
				c.load.Processes = l.Processes
			}
			// The kernel ends a process at the limit of its cgroup: the machine is not out of memory.
			if limit := c.limits().MemoryBytes; limit > 0 && c.memoryUsage() > limit {
				r.exit(c, exitCodeKill, truth.CauseOOM)
				return
			}
			r.noteLoad()
		})
	}
}

func (r *Runtime) noteLoad() {
	if r.opts.LoadChanged != nil {
		r.opts.LoadChanged()
	}
}

func (c *container) processes() int64 { return max(1, c.load.Processes) }

// Usage returns what the processes of all containers use: memory and processes.
func (r *Runtime) Usage() (memoryBytes, processes int64) {
	for _, c := range r.containerOrder {
		if c.State == running {
			memoryBytes, processes = memoryBytes+c.memoryUsage(), processes+c.processes()
		}
	}
	return memoryBytes, processes
}

// ContainerMemory returns how much memory a container uses; zero if it does not run.
func (r *Runtime) ContainerMemory(id string) int64 {
	if c := r.containers[id]; c != nil && c.State == running {
		return c.memoryUsage()
	}
	return 0
}

// KillForMemory ends the process that the kernel's OOM killer would end: the one with the highest
// badness, which is its share of the capacity in thousandths and its oom_score_adj. It returns the
// name of the process; empty if there was none.
func (r *Runtime) KillForMemory(capacity int64) string {
	var worst *container
	badness := func(c *container) int64 {
		return c.memoryUsage()*1000/capacity + c.config.GetLinux().GetResources().GetOomScoreAdj()
	}
	for _, c := range r.containerOrder {
		if c.State == running && (worst == nil || badness(c) > badness(worst)) {
			worst = c
		}
	}
	if worst == nil {
		return ""
	}
	r.exit(worst, exitCodeKill, truth.CauseOOM)
	return worst.config.GetMetadata().GetName()
}

// sandboxStats answers ListPodSandboxStats. If its statistics are stale, they are those of before
// the last answer.
func (r *Runtime) sandboxStats() *runtimeapi.ListPodSandboxStatsResponse {
	if r.statsStale && r.statsBefore[0] != nil {
		return r.statsBefore[0]
	}
	now := r.listSandboxStats()
	r.statsBefore[0], r.statsBefore[1] = r.statsBefore[1], now
	return now
}

// listSandboxStats returns what the pods of ready sandboxes use, as containerd does.
func (r *Runtime) listSandboxStats() *runtimeapi.ListPodSandboxStatsResponse {
	response := &runtimeapi.ListPodSandboxStatsResponse{}
	at := r.now().Add(r.skew).UnixNano()
	isMissing := r.statsMissing
	for _, s := range r.sandboxOrder {
		if s.State != ready {
			continue
		}
		if isMissing {
			isMissing = false
			continue
		}
		memory, processes := int64(0), int64(0)
		linux := &runtimeapi.LinuxPodSandboxStats{}
		for _, c := range r.containerOrder {
			if c.SandboxID != s.ID || c.State != running {
				continue
			}
			memory, processes = memory+c.memoryUsage(), processes+c.processes()
			linux.Containers = append(linux.Containers, &runtimeapi.ContainerStats{
				Attributes:    &runtimeapi.ContainerAttributes{Id: c.ID, Metadata: c.config.Metadata},
				Memory:        memoryStats(at, c.memoryUsage()),
				WritableLayer: c.layerUsage(at, r.layerDirectory())})
		}
		linux.Memory = memoryStats(at, memory)
		linux.Process = &runtimeapi.ProcessUsage{Timestamp: at,
			ProcessCount: &runtimeapi.UInt64Value{Value: uint64(processes)}}
		response.Stats = append(response.Stats, &runtimeapi.PodSandboxStats{Linux: linux,
			Attributes: &runtimeapi.PodSandboxAttributes{Id: s.ID, Metadata: s.config.Metadata}})
	}
	return response
}

func memoryStats(at, bytes int64) *runtimeapi.MemoryUsage {
	return &runtimeapi.MemoryUsage{Timestamp: at,
		WorkingSetBytes: &runtimeapi.UInt64Value{Value: uint64(bytes)}}
}
