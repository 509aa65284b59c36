package stats

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"seedlet.dev/realworld/stats/cgroup"
)

// pod is what a pod uses; false if nothing of it is there, or not any more.
func (l *look) pod(pod *v1.Pod) (statsapi.PodStats, bool) {
	p := statsapi.PodStats{PodRef: statsapi.PodReference{Name: pod.Name, Namespace: pod.Namespace,
		UID: string(pod.UID)}, Containers: []statsapi.ContainerStats{}}
	if pod.Status.StartTime != nil {
		p.StartTime = *pod.Status.StartTime
	}
	sandbox := l.runtime.sandboxes[string(pod.UID)]
	at := l.podCgroups[cgroup.PodKey(string(pod.UID))]
	below := map[string]string{}
	if at != "" {
		below = l.cgroups.Containers(at)
	}
	for _, c := range running(pod) {
		if stats, any := l.container(c, below[c.id]); any {
			p.Containers = append(p.Containers, stats)
		}
	}
	if sandbox == nil && at == "" && len(p.Containers) == 0 {
		return p, false
	}
	key := "pod/" + string(pod.UID)
	linux := sandbox.GetLinux()
	u := l.told(key, linux.GetCpu(), linux.GetMemory(), nil, linux.GetIo())
	if u.cpu == nil || u.memory == nil || l.memory.SwapTotal > 0 {
		u.or(l.read(rateOnce(u, key), at))
	}
	u.or(sum(p.Containers))
	p.CPU, p.Memory, p.Swap, p.IO = u.cpu, u.memory, l.noSwap(u.swap), u.io
	p.Network = l.networkOf(pod, linux.GetNetwork(), below)
	p.ProcessStats = l.processes(linux.GetProcess(), below)
	return p, true
}

// containerRun is a container that runs, as the status of its pod has it.
type containerRun struct {
	name, id, image string
	since           metav1.Time
}

// running are the containers of a pod that run.
func running(pod *v1.Pod) []containerRun {
	var all []containerRun
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if c.State.Running != nil {
			all = append(all, containerRun{name: c.Name, id: bareID(c.ContainerID), image: c.Image,
				since: c.State.Running.StartedAt})
		}
	}
	return all
}

// bareID is an id without the runtime's name: "containerd://ID".
func bareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}

// container is what one run of a container uses; false if nothing is known of it.
func (l *look) container(c containerRun, at string) (statsapi.ContainerStats, bool) {
	key := "container/" + c.id
	told := l.runtime.containers[c.id]
	u := l.told(key, told.GetCpu(), told.GetMemory(), told.GetSwap(), told.GetIo())
	if u.cpu == nil || u.memory == nil || u.swap == nil && l.memory.SwapTotal > 0 {
		u.or(l.read(rateOnce(u, key), at))
	}
	stats := statsapi.ContainerStats{Name: c.name, StartTime: c.since, CPU: u.cpu,
		Memory: u.memory, Swap: l.noSwap(u.swap), IO: u.io}
	if layer := told.GetWritableLayer(); layer != nil {
		stats.Rootfs = &statsapi.FsStats{Time: l.time(layer.Timestamp),
			UsedBytes: value(layer.UsedBytes), InodesUsed: value(layer.InodesUsed)}
	}
	return stats, u.cpu != nil || u.memory != nil
}

// rateOnce is the key for the rate of what is read as well: none, if there is a rate already.
func rateOnce(known used, key string) string {
	if known.cpu != nil {
		return ""
	}
	return key
}

// noSwap is what is used of swap on a machine that has none.
func (l *look) noSwap(known *statsapi.SwapStats) *statsapi.SwapStats {
	if known != nil || l.memory.Total == 0 || l.memory.SwapTotal > 0 {
		return known
	}
	return &statsapi.SwapStats{Time: metav1.NewTime(l.at), SwapUsageBytes: new(uint64)}
}

// sum is what containers use together, if that is known of all: the least that can be said of a
// pod without a cgroup.
func sum(all []statsapi.ContainerStats) used {
	if len(all) == 0 {
		return used{}
	}
	cpu := &statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64)}
	memory := &statsapi.MemoryStats{WorkingSetBytes: new(uint64)}
	for _, c := range all {
		if c.CPU == nil || c.Memory == nil {
			return used{}
		}
		cpu.Time, memory.Time = c.CPU.Time, c.Memory.Time
		*cpu.UsageCoreNanoSeconds += *c.CPU.UsageCoreNanoSeconds
		*memory.WorkingSetBytes += *c.Memory.WorkingSetBytes
	}
	return used{cpu: cpu, memory: memory}
}

// networkOf is what the network interfaces of a pod have carried: as the runtime tells, or as a
// process of it sees. A pod in the host's network has none of its own.
func (l *look) networkOf(pod *v1.Pod, told *runtimeapi.NetworkUsage,
	below map[string]string) *statsapi.NetworkStats {
	if pod.Spec.HostNetwork {
		return nil
	}
	if told.GetDefaultInterface() != nil {
		n := &statsapi.NetworkStats{Time: l.time(told.Timestamp),
			InterfaceStats: interfaceOf(told.DefaultInterface)}
		for _, i := range told.Interfaces {
			n.Interfaces = append(n.Interfaces, interfaceOf(i))
		}
		return n
	}
	for _, at := range below { //ordered: all processes of a pod see the same
		if pids := l.cgroups.Processes(at); len(pids) > 0 {
			return network(l.source.opts.Roots.Proc, pids[0], l.at)
		}
	}
	return nil
}

func interfaceOf(i *runtimeapi.NetworkInterfaceUsage) statsapi.InterfaceStats {
	return statsapi.InterfaceStats{Name: i.GetName(),
		RxBytes: value(i.GetRxBytes()), RxErrors: value(i.GetRxErrors()),
		TxBytes: value(i.GetTxBytes()), TxErrors: value(i.GetTxErrors())}
}

// processes are how many a pod has.
func (l *look) processes(told *runtimeapi.ProcessUsage,
	below map[string]string) *statsapi.ProcessStats {
	if count := value(told.GetProcessCount()); count != nil {
		return &statsapi.ProcessStats{ProcessCount: count}
	}
	if len(below) == 0 {
		return nil
	}
	count := uint64(0)
	for _, at := range below { //ordered: a sum
		count += uint64(len(l.cgroups.Processes(at)))
	}
	return &statsapi.ProcessStats{ProcessCount: &count}
}
