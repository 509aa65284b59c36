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
	treeMax = time.Minute // for one tree; what takes longer stays unknown
	// firstWait is how long one who asks waits for trees that were measured too long ago, or never.
	firstWait = 500 * time.Millisecond
	closeWait = time.Second // for a tree on a file system that hangs
)

// disks knows how much is in the volumes and logs of pods. A round through all of them is made in
// the background when someone asks and the last one is too old; there is one round at a time, and
// it looks at one tree at a time, as that keeps a disk busy.
type disks struct {
	source *Source

	mu    sync.Mutex
	known map[types.UID]podTrees
	began time.Time     // of the last round
	round chan struct{} // closed when the one under way ends; nil: none is
}

// podTrees are the volumes and logs of one pod, as they were.
type podTrees struct {
	volumes []statsapi.VolumeStats
	logs    map[string]statsapi.FsStats // by container; of the tree only
}

// of is what is known of pods, after a short wait for what is not known yet.
func (d *disks) of(ctx context.Context, pods []*v1.Pod) map[types.UID]podTrees {
	d.mu.Lock()
	age, now := d.source.opts.VolumeAge, d.source.opts.Now()
	fresh := !d.began.IsZero() && now.Sub(d.began) < age
	if d.round == nil && !fresh && age > 0 && d.source.ctx.Err() == nil {
		d.began, d.round = now, make(chan struct{})
		go d.measure(pods, d.round)
	}
	round := d.round
	d.mu.Unlock()
	if round != nil {
		wait := time.NewTimer(firstWait)
		defer wait.Stop()
		select {
		case <-round:
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known
}

// measure makes one round. What is known changes when it ends, at once: so it is never changed
// while someone reads it, and pods that have gone are forgotten.
func (d *disks) measure(pods []*v1.Pod, round chan struct{}) {
	found := map[types.UID]podTrees{}
	for _, pod := range pods {
		if d.source.ctx.Err() != nil {
			break
		}
		found[pod.UID] = podTrees{volumes: d.source.volumes(pod), logs: d.source.logs(pod)}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.round = found, nil
	close(round)
}

// close waits for a round that is under way, whose context is done, unless its disk hangs.
func (d *disks) close() {
	d.mu.Lock()
	round := d.round
	d.mu.Unlock()
	if round == nil {
		return
	}
	select {
	case <-round:
	case <-time.After(closeWait):
	}
}

// ownVolumes are the kinds of volumes that the agent fills itself: their directories have the
// names of the volumes in the pod.
var ownVolumes = []string{"empty-dir", "configmap", "secret", "projected", "downward-api"}

// volumes measures the volumes of a pod.
func (s *Source) volumes(pod *v1.Pod) []statsapi.VolumeStats {
	if !oneName(string(pod.UID)) {
		return nil
	}
	var all []statsapi.VolumeStats
	above := filepath.Join(s.opts.RootDir, "pods", string(pod.UID), "volumes")
	for _, kind := range ownVolumes {
		dir := filepath.Join(above, "kubernetes.io~"+kind)
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // it has none of them
		}
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			stats, ok := s.tree(filepath.Join(dir, e.Name()))
			if !ok {
				continue
			}
			// Without it what is used is known all the same.
			_, _ = addFileSystem(&stats, filepath.Join(dir, e.Name()))
			all = append(all, statsapi.VolumeStats{Name: e.Name(), FsStats: stats})
		}
	}
	return all
}

// logs measures the logs of a pod's containers, which are in a directory for each.
func (s *Source) logs(pod *v1.Pod) map[string]statsapi.FsStats {
	found := map[string]statsapi.FsStats{}
	name := strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_")
	if !oneName(name) {
		return found
	}
	dir := filepath.Join(s.opts.LogsDir, name)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return found // nothing has been logged yet
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		if stats, ok := s.tree(filepath.Join(dir, e.Name())); ok {
			found[e.Name()] = stats
		}
	}
	return found
}

// oneName says whether something is one name in a directory, and leads nowhere else.
func oneName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// tree measures one tree, and says as of when that is so.
func (s *Source) tree(path string) (statsapi.FsStats, bool) {
	ctx, cancel := context.WithTimeout(s.ctx, treeMax)
	defer cancel()
	at := metav1.NewTime(s.opts.Now())
	measured, err := disk.Measure(ctx, path)
	if err != nil {
		return statsapi.FsStats{}, false // it has gone, or is too large to be measured
	}
	bytes, inodes := uint64(measured.Bytes), uint64(measured.Inodes)
	return statsapi.FsStats{Time: at, UsedBytes: &bytes, InodesUsed: &inodes}, true
}
