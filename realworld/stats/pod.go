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

// podStats returns the usage of a pod; false if neither the runtime nor a cgroup has it.
func (l *sampler) podStats(pod *v1.Pod) (statsapi.PodStats, bool) {
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
	for _, c := range runningContainers(pod) {
		if stats, any := l.containerStats(c, below[c.id]); any {
			p.Containers = append(p.Containers, stats)
		}
	}
	if sandbox == nil && at == "" && len(p.Containers) == 0 {
		return p, false
	}
	key := "pod/" + string(pod.UID)
	linux := sandbox.GetLinux()
	u := l.runtimeUsage(key, linux.GetCpu(), linux.GetMemory(), nil, linux.GetIo())
	if u.cpu == nil || u.memory == nil || l.memory.SwapTotal > 0 {
		u.fillFrom(l.cgroupUsage(rateKey(u, key), at))
	}
	u.fillFrom(sumOfContainers(p.Containers))
	p.CPU, p.Memory, p.Swap, p.IO = u.cpu, u.memory, l.zeroSwap(u.swap), u.io
	p.Network = l.podNetwork(pod, linux.GetNetwork(), below)
	p.ProcessStats = l.podProcesses(linux.GetProcess(), below)
	return p, true
}

// containerRun is a running container as the status of its pod has it.
type containerRun struct {
	name, id, image string
	since           metav1.Time
}

// runningContainers returns the running containers of a pod.
func runningContainers(pod *v1.Pod) []containerRun {
	var all []containerRun
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses,
		pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if c.State.Running != nil {
			all = append(all, containerRun{name: c.Name, id: stripRuntime(c.ContainerID), image: c.Image,
				since: c.State.Running.StartedAt})
		}
	}
	return all
}

// stripRuntime returns an id without the runtime's name: ID of "containerd://ID".
func stripRuntime(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}

// containerStats returns the usage of a running container; false if it is unknown.
func (l *sampler) containerStats(c containerRun, at string) (statsapi.ContainerStats, bool) {
	key := "container/" + c.id
	reported := l.runtime.containers[c.id]
	u := l.runtimeUsage(key, reported.GetCpu(), reported.GetMemory(), reported.GetSwap(),
		reported.GetIo())
	if u.cpu == nil || u.memory == nil || u.swap == nil && l.memory.SwapTotal > 0 {
		u.fillFrom(l.cgroupUsage(rateKey(u, key), at))
	}
	stats := statsapi.ContainerStats{Name: c.name, StartTime: c.since, CPU: u.cpu,
		Memory: u.memory, Swap: l.zeroSwap(u.swap), IO: u.io}
	if layer := reported.GetWritableLayer(); layer != nil {
		stats.Rootfs = &statsapi.FsStats{Time: l.sampleTime(layer.Timestamp),
			UsedBytes: value(layer.UsedBytes), InodesUsed: value(layer.InodesUsed)}
	}
	return stats, u.cpu != nil || u.memory != nil
}

// rateKey returns the key of the CPU rate of a cgroup; empty if the runtime's usage has a rate
// already.
func rateKey(known resourceUsage, key string) string {
	if known.cpu != nil {
		return ""
	}
	return key
}

// zeroSwap returns the swap usage of a container on a machine without swap.
func (l *sampler) zeroSwap(known *statsapi.SwapStats) *statsapi.SwapStats {
	if known != nil || l.memory.Total == 0 || l.memory.SwapTotal > 0 {
		return known
	}
	return &statsapi.SwapStats{Time: metav1.NewTime(l.at), SwapUsageBytes: new(uint64)}
}

// sumOfContainers returns the usage of all containers together if each is known. It is a lower
// bound of the usage of a pod without a cgroup.
func sumOfContainers(all []statsapi.ContainerStats) resourceUsage {
	if len(all) == 0 {
		return resourceUsage{}
	}
	cpu := &statsapi.CPUStats{UsageCoreNanoSeconds: new(uint64)}
	memory := &statsapi.MemoryStats{WorkingSetBytes: new(uint64)}
	for _, c := range all {
		if c.CPU == nil || c.Memory == nil {
			return resourceUsage{}
		}
		cpu.Time, memory.Time = c.CPU.Time, c.Memory.Time
		*cpu.UsageCoreNanoSeconds += *c.CPU.UsageCoreNanoSeconds
		*memory.WorkingSetBytes += *c.Memory.WorkingSetBytes
	}
	return resourceUsage{cpu: cpu, memory: memory}
}

// podNetwork returns the counters of a pod's network interfaces, from the runtime or from the
// network namespace of a process of the pod. A pod in the host's network has none.
func (l *sampler) podNetwork(pod *v1.Pod, reported *runtimeapi.NetworkUsage,
	below map[string]string) *statsapi.NetworkStats {
	if pod.Spec.HostNetwork {
		return nil
	}
	if reported.GetDefaultInterface() != nil {
		n := &statsapi.NetworkStats{Time: l.sampleTime(reported.Timestamp),
			InterfaceStats: interfaceOf(reported.DefaultInterface)}
		for _, i := range reported.Interfaces[:min(len(reported.Interfaces), podInterfacesMax)] {
			n.Interfaces = append(n.Interfaces, interfaceOf(i))
		}
		return n
	}
	for _, at := range below { //ordered: all processes of a pod see the same
		if pids := l.cgroups.Processes(at); len(pids) > 0 {
			return networkOfProcess(l.source.opts.Roots.Proc, pids[0], l.at)
		}
	}
	return nil
}

func interfaceOf(i *runtimeapi.NetworkInterfaceUsage) statsapi.InterfaceStats {
	return statsapi.InterfaceStats{Name: i.GetName(),
		RxBytes: value(i.GetRxBytes()), RxErrors: value(i.GetRxErrors()),
		TxBytes: value(i.GetTxBytes()), TxErrors: value(i.GetTxErrors())}
}

// podProcesses returns the number of processes of a pod.
func (l *sampler) podProcesses(reported *runtimeapi.ProcessUsage,
	below map[string]string) *statsapi.ProcessStats {
	if count := value(reported.GetProcessCount()); count != nil {
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
