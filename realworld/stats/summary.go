package stats

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Summary is what /stats/summary shows. It fails only if the pods are not known: a summary without
// them would say that there are none. The caller must not change it.
func (s *Source) Summary(ctx context.Context, onlyCPUAndMemory bool) (*statsapi.Summary, error) {
	if !onlyCPUAndMemory {
		s.storage.begin() // at the same time: either may have to wait for the runtime
	}
	u, err := s.usage.get(ctx)
	if err == nil {
		err = u.podsErr
	}
	if err != nil {
		return nil, err
	}
	summary := &statsapi.Summary{Node: u.node, Pods: make([]statsapi.PodStats, 0, len(u.pods))}
	if onlyCPUAndMemory {
		summary.Node = processing(u.node)
		for _, pod := range u.pods {
			summary.Pods = append(summary.Pods, processingOf(pod))
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
	trees := s.disks.of(ctx, u.of)
	for i, pod := range u.pods {
		summary.Pods = append(summary.Pods, stored(pod, u.of[i], trees[u.of[i].UID], storage))
	}
	return summary, ctx.Err()
}

// processing leaves the processors and the memory of a node.
func processing(n statsapi.NodeStats) statsapi.NodeStats {
	few := statsapi.NodeStats{NodeName: n.NodeName, StartTime: n.StartTime, CPU: n.CPU,
		Memory: n.Memory, Swap: n.Swap}
	for _, c := range n.SystemContainers {
		c.IO = nil
		few.SystemContainers = append(few.SystemContainers, c)
	}
	return few
}

// processingOf leaves the processors and the memory of a pod.
func processingOf(p statsapi.PodStats) statsapi.PodStats {
	few := statsapi.PodStats{PodRef: p.PodRef, StartTime: p.StartTime, CPU: p.CPU,
		Memory: p.Memory, Swap: p.Swap,
		Containers: make([]statsapi.ContainerStats, 0, len(p.Containers))}
	for _, c := range p.Containers {
		c.IO, c.Rootfs = nil, nil
		few.Containers = append(few.Containers, c)
	}
	return few
}

// stored adds what a pod has on disks.
func stored(p statsapi.PodStats, pod *v1.Pod, trees podTrees, fs *storage) statsapi.PodStats {
	containers := make([]statsapi.ContainerStats, 0, len(p.Containers))
	local := &ephemeral{}
	for _, c := range p.Containers {
		if c.Rootfs != nil {
			c.Rootfs = on(*c.Rootfs, fs.containers)
			local.add(*c.Rootfs)
		}
		if logs, known := trees.logs[c.Name]; known {
			c.Logs = on(logs, fs.node)
		}
		containers = append(containers, c)
	}
	for _, logs := range trees.logs { //ordered: a sum
		local.add(logs)
	}
	p.Containers, p.VolumeStats = containers, trees.volumes
	for _, volume := range trees.volumes {
		if ephemeralVolume(pod, volume.Name) {
			local.add(volume.FsStats)
		}
	}
	if local.any {
		p.EphemeralStorage = on(local.stats(), fs.node)
	}
	return p
}

// ephemeral adds up the local storage that goes with a pod.
type ephemeral struct {
	bytes, inodes uint64
	at            statsapi.FsStats // the newest of them
	any           bool
}

func (e *ephemeral) add(stats statsapi.FsStats) {
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

func (e *ephemeral) stats() statsapi.FsStats {
	return statsapi.FsStats{Time: e.at.Time, UsedBytes: &e.bytes, InodesUsed: &e.inodes}
}

// ephemeralVolume says whether a volume takes of the ephemeral storage of its pod: what is on the
// node's disk and goes with the pod.
func ephemeralVolume(pod *v1.Pod, name string) bool {
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
		unavailable(w, err)
		return
	}
	body, err := json.MarshalIndent(summary, "", " ")
	if err != nil { // a number that JSON has none for
		http.Error(w, fmt.Sprintf("writing the summary: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(body, '\n')) // the client may have gone
}

// unavailable tells a client to come again.
func unavailable(w http.ResponseWriter, err error) {
	w.Header().Set("Retry-After", "1")
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}
