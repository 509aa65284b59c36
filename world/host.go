package world

// The host port: the machine as the agent finds it. As with files, what is done to a cgroup has
// ended when it is answered; the jobs that are systemd's it puts in order itself.

// Boot is the first event of every life of the agent.
type Boot struct {
	Seed     uint64 `json:"seed"`     // the only source of randomness of this life
	BootID   string `json:"bootID"`   // changes when the machine boots, not when the agent does
	Hostname string `json:"hostname"` // as the machine calls itself
	// Machine limits, used for container resources.
	CPUs        int   `json:"cpus"`
	MemoryBytes int64 `json:"memoryBytes"`
	// Addresses are the machine's own IPs by which others reach it: at most one of each family,
	// the one to be known by first.
	Addresses []string `json:"addresses,omitempty"`
	Machine   Machine  `json:"machine"`
}

// Machine is what the Node object tells of a machine. What cannot be found out is empty.
type Machine struct {
	MachineID       string `json:"machineID,omitempty"`  // of the installation, not of the hardware
	SystemUUID      string `json:"systemUUID,omitempty"` // of the hardware
	KernelVersion   string `json:"kernelVersion,omitempty"`
	OSImage         string `json:"osImage,omitempty"`      // as "Debian GNU/Linux 12 (bookworm)"
	OperatingSystem string `json:"operatingSystem"`        // as "linux"
	Architecture    string `json:"architecture"`           // as "amd64"
	SwapBytes       int64  `json:"swapBytes,omitempty"`    // there is so much of it, used or not
	RootDirBytes    int64  `json:"rootDirBytes,omitempty"` // of the file system of the root directory
	AppArmor        bool   `json:"appArmor,omitempty"`     // the kernel enforces its profiles
	// HugePages are the sizes that the kernel offers, smallest first, with or without any pages.
	HugePages []HugePages `json:"hugePages,omitempty"`
}

// HugePages is how many huge pages of one size are set apart.
type HugePages struct {
	SizeBytes int64 `json:"sizeBytes"`
	Count     int64 `json:"count"`
}

// Shutdown tells the agent that it is about to be ended. Nothing that runs is stopped by it.
type Shutdown struct {
	Reason string `json:"reason"`
}

// SetCgroup makes a cgroup and sets its limits; one that exists is changed. Parents are made.
// Answered by Done. Paths are names from the root of the hierarchy, as the cgroupfs driver writes
// them: "kubepods/burstable/podUID". With systemd they become slices, by the usual rule.
type SetCgroup struct {
	Path      string `json:"path"`
	Systemd   bool   `json:"systemd,omitempty"` // the driver
	CPUShares uint64 `json:"cpuShares,omitempty"`
	// CPUQuota is microseconds in each CPUPeriod; zero is unlimited.
	CPUQuota    int64  `json:"cpuQuota,omitempty"`
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
