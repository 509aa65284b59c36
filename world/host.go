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
