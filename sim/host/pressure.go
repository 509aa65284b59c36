package host

import (
	"fmt"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// What the machine uses: its pods, and besides them what the plan says.

// Usage is an amount of each resource.
type Usage struct {
	MemoryBytes, Processes int64
	DiskBytes, Inodes      int64 // of the file system of the root
}

// DiskUsage returns what the machine uses of its disk besides what package disk knows.
func (h *Host) DiskUsage() (bytes, inodes int64) {
	return h.besidePods.DiskBytes, h.besidePods.Inodes
}

// SetUsage sets what the machine uses besides its pods.
func (h *Host) SetUsage(u Usage) {
	h.besidePods = u
	h.LoadChanged()
}

// LoadChanged is called after a change of what pods or the machine use. The kernel ends processes
// if there is not enough memory, and reports what MeasureNode has asked for, once.
func (h *Host) LoadChanged() {
	h.endProcesses()
	m := h.Measure()
	exceeds := func(above *int64, used int64) bool {
		if *above == 0 || used <= *above {
			return false
		}
		*above = 0
		return true
	}
	machine := exceeds(&h.alerts.AlertAbove, m.WorkingSetBytes)
	if exceeds(&h.alerts.AlertPodsAbove, m.PodsWorkingSetBytes) || machine {
		h.notify(&world.MemoryAlert{})
	}
}

// Measure returns what MeasureNode observes now.
func (h *Host) Measure() world.NodeMeasured {
	machine := h.opts.Machine()
	measured := world.NodeMeasured{MemoryBytes: machine.MemoryBytes,
		WorkingSetBytes: h.besidePods.MemoryBytes,
		Processes:       processesBesidePods + h.besidePods.Processes,
		ProcessesMax:    machine.Machine.PIDsMax}
	if h.opts.PodsUsage != nil {
		memory, processes := h.opts.PodsUsage()
		measured.PodsWorkingSetBytes, measured.PodsMeasured = memory, true
		measured.WorkingSetBytes += memory
		measured.Processes += processes
	}
	return measured
}

// processesBesidePods are those of a machine on which the plan starts none.
const processesBesidePods = 200

// endProcesses ends processes of pods while the machine uses more memory than it has, as the
// kernel's OOM killer does.
func (h *Host) endProcesses() {
	for h.opts.KillForMemory != nil {
		m := h.Measure()
		if m.WorkingSetBytes <= m.MemoryBytes {
			return
		}
		name := h.opts.KillForMemory(m.MemoryBytes)
		if name == "" {
			return
		}
		h.reportOOM(name)
	}
}

// firstVictimPID is the process ID of the first process that is ended. No two have the same.
const firstVictimPID = 4001

// reportOOM reports a process that was ended because the machine was out of memory.
func (h *Host) reportOOM(name string) {
	oom := &world.SystemOOM{Process: name, PID: firstVictimPID + h.systemOOMs}
	h.systemOOMs++
	h.opts.Truth.Add(truth.Fact{Time: h.opts.Agenda.Now(), Kind: truth.SystemOOM,
		Message: fmt.Sprintf("victim process: %s, pid: %d", oom.Process, oom.PID)})
	h.notify(oom)
}

func (h *Host) measureNode(call *wire.Call, m *world.MeasureNode) {
	h.alerts = *m
	measured := h.Measure()
	if m.Pods == "" {
		measured.PodsWorkingSetBytes, measured.PodsMeasured = 0, false
	}
	call.Reply(&measured)
}
