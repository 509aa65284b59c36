package world

// The host port: the machine as the agent finds it.

// Boot is the first event of every life of the agent.
type Boot struct {
	Seed     uint64 `json:"seed"`     // the only source of randomness of this life
	BootID   string `json:"bootID"`   // changes when the machine boots, not when the agent does
	Hostname string `json:"hostname"` // as the machine calls itself
	// Machine limits, used for container resources.
	CPUs        int   `json:"cpus"`
	MemoryBytes int64 `json:"memoryBytes"`
}

// Shutdown tells the agent that it is about to be ended. Nothing that runs is stopped by it.
type Shutdown struct {
	Reason string `json:"reason"`
}

// SetCgroup makes a cgroup and sets its limits; one that exists is changed. Parents are made.
// Answered by Done. Paths are names from the root of the hierarchy, as the cgroupfs driver writes
// them: "kubepods/burstable/podUID". With systemd they become slices, by the usual rule.
type SetCgroup struct {
	Path        string `json:"path"`
	Systemd     bool   `json:"systemd,omitempty"` // the driver
	CPUShares   uint64 `json:"cpuShares,omitempty"`
	CPUQuota    int64  `json:"cpuQuota,omitempty"`    // microseconds per CPUPeriod, zero: unlimited
	CPUPeriod   uint64 `json:"cpuPeriod,omitempty"`   // microseconds
	MemoryBytes int64  `json:"memoryBytes,omitempty"` // limit, zero: unlimited
	PidsMax     int64  `json:"pidsMax,omitempty"`     // zero: unlimited
}

// RemoveCgroup removes a cgroup and those below it, killing what is still in them. One that does
// not exist is success. Answered by Done.
type RemoveCgroup struct {
	Path    string `json:"path"`
	Systemd bool   `json:"systemd,omitempty"`
}

// ListCgroups lists the cgroups directly below one. Answered by CgroupsListed; one that does not
// exist has none.
type ListCgroups struct {
	Path    string `json:"path"`
	Systemd bool   `json:"systemd,omitempty"`
}

// CgroupsListed answers ListCgroups: last elements of paths, sorted, in cgroupfs form.
type CgroupsListed struct {
	Names []string `json:"names"`
}
