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
		SwapLimits: true, SwapBytes: 8 << 30, PIDsMax: 32768, PageBytes: 4096,
		HugePages: []world.HugePages{{SizeBytes: 2 << 20, Count: 128}, {SizeBytes: 1 << 30}},
	}
}

// SELinuxFileLabel is the label of the files of containers on a simulated machine with SELinux.
const SELinuxFileLabel = "system_u:object_r:container_file_t:s0"

// SystemCgroups are the cgroups that other programs make on every simulated machine before the
// agent starts: of the system's daemons, and of the runtime.
var SystemCgroups = []string{"podruntime.slice", "system.slice"}

// ResolvConf is the resolv.conf of every simulated machine.
const ResolvConf = `# of the machine
nameserver 192.168.7.2
nameserver 192.168.7.3
search lab.test old.test
options timeout:2 ndots:2
`

// Files returns the files that every simulated machine has: their texts, by path.
func Files() map[string]string {
	return map[string]string{
		"/etc/resolv.conf": ResolvConf,
		"/etc/hosts":       "127.0.0.1\tlocalhost\n",
		// The directory of the images exists.
		"/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/metadata.db": "",
	}
}
