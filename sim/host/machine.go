package host

import "seedlet.dev/world"

// Machine returns the facts about every simulated machine.
func Machine() world.Machine {
	return world.Machine{
		MachineID:     "5eed1e75eed1e75eed1e75eed1e75eed",
		SystemUUID:    "5eed1e75-eed1-4e75-8eed-1e75eed1e75e",
		KernelVersion: "6.12.0", OSImage: "Simulated GNU/Linux",
		OperatingSystem: "linux", Architecture: "amd64",
		RootDirBytes: 100 << 30, AppArmor: true,
		HugePages: []world.HugePages{{SizeBytes: 2 << 20, Count: 128}, {SizeBytes: 1 << 30}},
	}
}
