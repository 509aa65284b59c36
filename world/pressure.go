package world

// MeasureNode observes how much of the machine is in use. It completes with NodeMeasured.
type MeasureNode struct {
	// Pods is the cgroup of all pods, as the Path of SetCgroup; empty: it is not measured.
	Pods    string `json:"pods,omitempty"`
	Systemd bool   `json:"systemd,omitempty"` // as in SetCgroup
	// AlertAbove and AlertPodsAbove are the working sets of the machine and of that cgroup above which
	// MemoryAlert is reported; zero: it is not. They replace those of earlier requests.
	AlertAbove     int64 `json:"alertAbove,omitempty"`
	AlertPodsAbove int64 `json:"alertPodsAbove,omitempty"`
}

// MemoryAlert reports that a working set may have exceeded what the last MeasureNode has named, one
// time for each. It may be late, lost or false: the kernel knows of usage, and which part of it can
// be reclaimed was measured before. Cgroup v2 has no such thresholds.
type MemoryAlert struct{}

// NodeMeasured is the completion of MeasureNode. A working set is memory that the kernel cannot
// reclaim at once: what is used without the inactive pages of files. A fact that cannot be
// determined is zero.
type NodeMeasured struct {
	MemoryBytes     int64 `json:"memoryBytes,omitempty"` // the capacity
	WorkingSetBytes int64 `json:"workingSetBytes,omitempty"`
	// PodsMeasured is set if PodsWorkingSetBytes, that of the cgroup of all pods, is known: without
	// pods it is zero.
	PodsMeasured        bool  `json:"podsMeasured,omitempty"`
	PodsWorkingSetBytes int64 `json:"podsWorkingSetBytes,omitempty"`
	Processes           int64 `json:"processes,omitempty"` // with their threads
	ProcessesMax        int64 `json:"processesMax,omitempty"`
	// AlertProblem is why MemoryAlert will not be reported, although it was asked for.
	AlertProblem string `json:"alertProblem,omitempty"`
}
