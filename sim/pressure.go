package sim

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/host"
	"seedlet.dev/sim/oracle"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// pressureSignals are the signals of the configuration that the simulated node has. The memory of
// all pods is observed besides.
var pressureSignals = []string{"memory.available", "pid.available", "nodefs.available",
	"nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"}

// oraclePressure returns the settings of node-pressure eviction.
func oraclePressure(n *plan.Node, c *kubeletconfig.KubeletConfiguration) oracle.Pressure {
	p := oracle.Pressure{Transition: c.EvictionPressureTransitionPeriod.Duration,
		GraceMax: time.Duration(c.EvictionMaxPodGracePeriod) * time.Second}
	if slices.Contains(c.EnforceNodeAllocatable, "pods") {
		p.PodsMemoryMax = oracleTiers(n, c).MemoryBytes
	}
	capacities := map[string]int64{"memory.available": n.MemoryBytes(),
		"pid.available": host.Machine().PIDsMax}
	for i, of := range []string{"nodefs", "imagefs"} {
		all := filesystems(n)
		fs := all[min(i, len(all)-1)]
		capacities[of+".available"], capacities[of+".inodesFree"] = fs.CapacityBytes, fs.Inodes
	}
	add := func(signal, text string, grace time.Duration) {
		t := oracle.PressureThreshold{Signal: signal, Grace: grace,
			Amount:     amountOf(text, capacities[signal]),
			MinReclaim: amountOf(c.EvictionMinimumReclaim[signal], capacities[signal])}
		if t.Amount == 0 || !slices.Contains(pressureSignals, signal) {
			return
		}
		p.Thresholds = append(p.Thresholds, t)
		if signal == "memory.available" && grace == 0 && p.PodsMemoryMax > 0 {
			t.Signal, t.Amount = "allocatableMemory.available", amountOf(text, p.PodsMemoryMax)
			t.MinReclaim = amountOf(c.EvictionMinimumReclaim[signal], p.PodsMemoryMax)
			p.Thresholds = append(p.Thresholds, t)
		}
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionHard)) {
		add(signal, c.EvictionHard[signal], 0)
	}
	for _, signal := range slices.Sorted(maps.Keys(c.EvictionSoft)) {
		grace, err := time.ParseDuration(c.EvictionSoftGracePeriod[signal])
		if err == nil {
			add(signal, c.EvictionSoft[signal], grace)
		}
	}
	return p
}

// amountOf returns an amount of the configuration, a quantity or a percentage of a capacity.
func amountOf(text string, capacity int64) int64 {
	if percent, isPercent := strings.CutSuffix(text, "%"); isPercent {
		p, err := strconv.ParseFloat(percent, 32)
		if err != nil || p >= 100 {
			return 0
		}
		return int64(float64(capacity) * float64(float32(p)/100))
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0
	}
	return q.Value()
}

// filesystems returns the file systems of a machine: the root, and that of the images, unless they
// are on the root.
func filesystems(n *plan.Node) []disk.Filesystem {
	root := disk.RootFilesystem
	if n.DiskMiB > 0 {
		root.CapacityBytes = int64(n.DiskMiB) << 20
	}
	if n.ThousandInodes > 0 {
		root.Inodes = int64(n.ThousandInodes) * 1000
	}
	if n.ImageBytes == 0 {
		return []disk.Filesystem{root}
	}
	return []disk.Filesystem{root, {Path: runtime.ImageDirectory, CapacityBytes: n.ImageBytes,
		Inodes: disk.RootFilesystem.Inodes}}
}

// layersPath returns the directory of the writable layers; empty if they are beside the images.
func layersPath(n *plan.Node) string {
	if n.LayersOnRoot {
		return runtime.LayerDirectory
	}
	return ""
}

// usedFilesystems returns the file systems with what is used beside the files of the disk.
func (r *run) usedFilesystems(n *plan.Node) []disk.Filesystem {
	all := filesystems(n)
	all[0].Extra = func() (bytes, inodes int64) {
		bytes, inodes = r.host.DiskUsage()
		usage := r.runtime.LayerUsage
		switch {
		case len(all) == 1:
			usage = r.runtime.ImageUsage
		case !n.LayersOnRoot:
			return bytes, inodes
		}
		runtimeBytes, runtimeInodes := usage()
		return bytes + runtimeBytes, inodes + runtimeInodes
	}
	if len(all) > 1 {
		all[1].Extra = func() (bytes, inodes int64) { return r.runtime.ImageUsage() }
	}
	return all
}

// filesystem returns the state of the file system that signals are about.
func (r *run) filesystem(source string) world.FilesystemMeasured {
	if source == "imagefs" {
		return r.disk.Filesystem(runtime.ImageDirectory)
	}
	return r.disk.Filesystem(plan.RootDir)
}

// room returns how many bytes the file system of a directory has left for the runtime.
func (r *run) room(dir string) int64 {
	bytes, inodes := r.disk.Room(dir)
	if inodes == 0 {
		return 0
	}
	return bytes
}

// noteFull is called when a file system has no space left for a write: the agent's calls that write
// may have failed.
func (r *run) noteFull() { r.excuses.DiskFull(r.agenda.Now()) }

// machineFiles returns the files that are on the machine from the start.
func machineFiles(n *plan.Node) map[string]string {
	files := host.Files()
	files[runtime.ImageDirectory+"/metadata.db"] = ""
	if n.LayersOnRoot {
		files[runtime.LayerDirectory+"/layers.json"] = ""
	}
	return files
}
