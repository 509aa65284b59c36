package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Summary returns the content of /stats/summary. It fails only if the pods are unknown: a summary
// without them would claim that there are none. The caller must not modify the result.
func (s *Source) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	if !onlyCPUAndMemory {
		s.storage.start() // concurrently: both may wait for the runtime
	}
	u, err := s.usage.get(ctx)
	if err == nil {
		err = u.podsErr
	}
	if err != nil {
		return nil, err
	}
	summary := &statsapi.Summary{Node: u.nodeStats,
		Pods: make([]statsapi.PodStats, 0, len(u.podStats))}
	if onlyCPUAndMemory {
		summary.Node = cpuAndMemoryOfNode(u.nodeStats)
		for _, pod := range u.podStats {
			summary.Pods = append(summary.Pods, cpuAndMemoryOfPod(pod))
		}
		return summary, nil
	}
	storage, err := s.storage.get(ctx)
	if err != nil {
		return nil, err
	}
	summary.Node.Fs = storage.node
	if storage.images != nil {
		summary.Node.Runtime = &statsapi.RuntimeStats{ImageFs: storage.images,
			ContainerFs: storage.containers}
	}
	trees, backed := s.disks.usageOf(ctx, u.pods), s.backedVolumes(ctx)
	for i, pod := range u.podStats {
		spec := u.pods[i]
		pod = addDiskUsage(pod, spec, trees[spec.UID], storage)
		pod.VolumeStats = append(pod.VolumeStats[:len(pod.VolumeStats):len(pod.VolumeStats)],
			backed[spec.UID]...)
		summary.Pods = append(summary.Pods, pod)
	}
	return summary, ctx.Err()
}

// cpuAndMemoryOfNode returns the stats of a node reduced to CPU and memory.
func cpuAndMemoryOfNode(n statsapi.NodeStats) statsapi.NodeStats {
	few := statsapi.NodeStats{NodeName: n.NodeName, StartTime: n.StartTime, CPU: n.CPU,
		Memory: n.Memory, Swap: n.Swap}
	for _, c := range n.SystemContainers {
		c.IO = nil
		few.SystemContainers = append(few.SystemContainers, c)
	}
	return few
}

// cpuAndMemoryOfPod returns the stats of a pod reduced to CPU and memory.
func cpuAndMemoryOfPod(p statsapi.PodStats) statsapi.PodStats {
	few := statsapi.PodStats{PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU,
		Memory: p.Memory, Swap: p.Swap,
		Containers: make([]statsapi.ContainerStats, 0, len(p.Containers))}
	for _, c := range p.Containers {
		c.IO, c.Rootfs = nil, nil
		few.Containers = append(few.Containers, c)
	}
	return few
}

// addDiskUsage adds the disk usage of a pod.
func addDiskUsage(p statsapi.PodStats, pod *v1.Pod, trees podTrees,
	fs *storageSample) statsapi.PodStats {
	containers := make([]statsapi.ContainerStats, 0, len(p.Containers))
	local := &ephemeralStorage{}
	for _, c := range p.Containers {
		if c.Rootfs != nil {
			c.Rootfs = addStatfs(*c.Rootfs, fs.containers)
			local.add(*c.Rootfs)
		}
		if logs, known := trees.logs[c.Name]; known {
			c.Logs = addStatfs(logs, fs.node)
		}
		containers = append(containers, c)
	}
	for _, logs := range trees.logs { //ordered: a sum
		local.add(logs)
	}
	if trees.hosts != nil {
		local.add(*trees.hosts)
	}
	p.Containers, p.VolumeStats = containers, trees.volumes
	for _, volume := range trees.volumes {
		if isEphemeralVolume(pod, volume.Name) {
			local.add(volume.FsStats)
		}
	}
	if local.any {
		p.EphemeralStorage = addStatfs(local.stats(), fs.node)
	}
	return p
}

// ephemeralStorage sums up the local ephemeral storage of a pod.
type ephemeralStorage struct {
	bytes, inodes uint64
	at            statsapi.FsStats // the newest measurement
	any           bool
}

func (e *ephemeralStorage) add(stats statsapi.FsStats) {
	if stats.UsedBytes == nil {
		return
	}
	e.bytes += *stats.UsedBytes
	if stats.InodesUsed != nil {
		e.inodes += *stats.InodesUsed
	}
	if !e.any || e.at.Time.Before(&stats.Time) {
		e.at = stats
	}
	e.any = true
}

func (e *ephemeralStorage) stats() statsapi.FsStats {
	return statsapi.FsStats{Time: e.at.Time, UsedBytes: &e.bytes, InodesUsed: &e.inodes}
}

// isEphemeralVolume reports whether a volume counts as ephemeral storage of its pod: it is on the
// node's disk and is removed with the pod.
func isEphemeralVolume(pod *v1.Pod, name string) bool {
	for _, v := range pod.Spec.Volumes {
		if v.Name == name {
			return v.ConfigMap != nil ||
				v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumDefault
		}
	}
	return false
}

func (s *Source) serveSummary(w http.ResponseWriter, r *http.Request) {
	only := r.URL.Query()["only_cpu_and_memory"]
	summary, err := s.Summary(r.Context(), len(only) == 1 && only[0] == "true")
	if err != nil {
		respondUnavailable(w, err)
		return
	}
	body, err := json.MarshalIndent(summary, "", " ")
	if err != nil { // a number that JSON cannot express
		http.Error(w, fmt.Sprintf("writing the summary: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may have disconnected
}

// respondUnavailable responds with a 503 and Retry-After.
func respondUnavailable(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}
