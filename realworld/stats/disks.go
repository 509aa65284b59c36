package stats

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"seedlet.dev/realworld/disk"
)

const (
	treeTimeout = time.Minute // of one tree; the usage of a slower one stays unknown
	// measureWaitMax bounds how long a request waits for a running round of measurements.
	measureWaitMax = 500 * time.Millisecond
	closeTimeout   = time.Second // for a tree on a hanging file system
)

// diskUsage measures the volumes and logs of pods. A request starts a round through all of them in
// the background if the last round is too old. There is one round at a time, and a round measures
// one tree at a time, which keeps a disk busy already.
type diskUsage struct {
	source *Source

	mu        sync.Mutex
	latest    map[types.UID]podTrees
	startedAt time.Time     // of the last round
	round     chan struct{} // closed when the current round ends; nil if none is running
}

// podTrees are the measured volumes and logs of one pod.
type podTrees struct {
	volumes []statsapi.VolumeStats
	logs    map[string]statsapi.FsStats // by container, without data of the file system
}

// usageOf returns the latest measurements of pods. While a round is running it waits for the end of
// the round, for measureWaitMax at most.
func (d *diskUsage) usageOf(ctx context.Context, pods []*v1.Pod) map[types.UID]podTrees {
	d.mu.Lock()
	age, now := d.source.opts.VolumeAge, d.source.opts.Now()
	fresh := !d.startedAt.IsZero() && now.Sub(d.startedAt) < age
	if d.round == nil && !fresh && age > 0 && d.source.ctx.Err() == nil {
		d.startedAt, d.round = now, make(chan struct{})
		go d.measure(pods, d.round)
	}
	round := d.round
	d.mu.Unlock()
	if round != nil {
		wait := time.NewTimer(measureWaitMax)
		defer wait.Stop()
		select {
		case <-round:
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.latest
}

// measure runs one round. Its end replaces the map of measurements as a whole, so readers never see
// it change, and pods that no longer exist drop out.
func (d *diskUsage) measure(pods []*v1.Pod, round chan struct{}) {
	found := map[types.UID]podTrees{}
	for _, pod := range pods {
		if d.source.ctx.Err() != nil {
			break
		}
		found[pod.UID] = podTrees{volumes: d.source.volumeStats(pod), logs: d.source.logStats(pod)}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.latest, d.round = found, nil
	close(round)
}

// close waits for the current round, whose context is done, for closeTimeout at most: its disk may
// hang.
func (d *diskUsage) close() {
	d.mu.Lock()
	round := d.round
	d.mu.Unlock()
	if round == nil {
		return
	}
	select {
	case <-round:
	case <-time.After(closeTimeout):
	}
}

// managedVolumeKinds are the kinds of volumes that the agent creates in the pod's directory, where
// the directory of a volume has the volume's name in the pod.
var managedVolumeKinds = []string{"empty-dir", "configmap", "secret", "projected", "downward-api"}

// volumeStats measures the volumes of a pod.
func (s *Source) volumeStats(pod *v1.Pod) []statsapi.VolumeStats {
	if !isPlainName(string(pod.UID)) {
		return nil
	}
	var all []statsapi.VolumeStats
	above := filepath.Join(s.opts.RootDir, "pods", string(pod.UID), "volumes")
	for _, kind := range managedVolumeKinds {
		dir := filepath.Join(above, "kubernetes.io~"+kind)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // the pod has no volume of this kind
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			stats, ok := s.treeStats(filepath.Join(dir, e.Name()))
			if !ok {
				continue
			}
			// The usage is valid without data of the file system.
			_, _ = s.addFileSystem(&stats, filepath.Join(dir, e.Name()))
			all = append(all, statsapi.VolumeStats{Name: e.Name(), FsStats: stats})
		}
	}
	return all
}

// logStats measures the logs of a pod's containers, one directory for each.
func (s *Source) logStats(pod *v1.Pod) map[string]statsapi.FsStats {
	found := map[string]statsapi.FsStats{}
	name := strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_")
	if !isPlainName(name) {
		return found
	}
	dir := filepath.Join(s.opts.LogsDir, name)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return found // no container has written a log yet
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if stats, ok := s.treeStats(filepath.Join(dir, e.Name())); ok {
			found[e.Name()] = stats
		}
	}
	return found
}

// isPlainName reports whether a name is a single path element other than "." and "..".
func isPlainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// treeStats measures one tree, with the time of the measurement.
func (s *Source) treeStats(path string) (statsapi.FsStats, bool) {
	ctx, cancel := context.WithTimeout(s.ctx, treeTimeout)
	defer cancel()
	at := metav1.NewTime(s.opts.Now())
	measured, err := disk.Measure(ctx, path)
	if err != nil {
		return statsapi.FsStats{}, false // the tree no longer exists, or is too large to measure
	}
	bytes, inodes := uint64(measured.Bytes), uint64(measured.Inodes)
	return statsapi.FsStats{Time: at, UsedBytes: &bytes, InodesUsed: &inodes}, true
}
