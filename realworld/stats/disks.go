package stats

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

const (
	// quickTimeout and slowTimeout bound the measurement of one pod, see diskUsage.
	quickTimeout = 2 * time.Second
	slowTimeout  = time.Minute
	// hangTime is how long a round waits for a pod after its timeout: its disk may hang.
	hangTime = time.Second
	// measureWaitMax bounds how long a request waits for a running round of measurements.
	measureWaitMax = 500 * time.Millisecond
	closeTimeout   = time.Second // for a tree on a hanging file system
)

// diskUsage measures the volumes and logs of pods. A request starts a round through the pods in the
// background if the last round is too old. A round measures one pod after the other and one tree at
// a time, which keeps a disk busy already, and publishes each pod as soon as it is measured.
//
// Pods that were not measured within quickTimeout have rounds of their own, with slowTimeout for
// each: pods with slow trees delay only each other. A pod on a disk that hangs is left behind, and
// is not measured again before its measurement has ended. So it occupies one goroutine.
type diskUsage struct {
	source *Source
	work   sync.WaitGroup // the rounds, and the measurements of pods

	mu     sync.Mutex
	pods   map[types.UID]*podDisks
	rounds [roundKinds]diskRound
}

// roundKind is a kind of round.
type roundKind int

// The kinds.
const (
	quickRound roundKind = iota
	slowRound
	roundKinds
)

// diskRound is a round through pods of one kind.
type diskRound struct {
	startedAt time.Time     // of the last round
	done      chan struct{} // closed when the current round ends; nil if none is running
}

// podDisks are the measurements of one pod.
type podDisks struct {
	latest podTrees
	isSlow bool // it was not measured within quickTimeout
	isBusy bool // it is being measured
	// trees are the measurements by path. Only the goroutine that measures the pod uses them.
	trees map[string]*treeUsage
}

// treeUsage is the newest measurement of a tree, and when the last one was tried.
type treeUsage struct {
	stats   statsapi.FsStats
	isKnown bool
	tried   int // the measurement of the pod in which it was tried last
}

// podTrees are the measured volumes and logs of one pod. They are immutable.
type podTrees struct {
	volumes []statsapi.VolumeStats
	logs    map[string]statsapi.FsStats // by container, without data of the file system
	hosts   *statsapi.FsStats           // of /etc/hosts, which containers can write
}

// usageOf returns the latest measurements of pods. While a round of quick pods is running it waits
// for the end of the round, for measureWaitMax at most.
func (d *diskUsage) usageOf(ctx context.Context, pods []*v1.Pod) map[types.UID]podTrees {
	if round := d.startRounds(pods); round != nil {
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
	latest := make(map[types.UID]podTrees, len(d.pods))
	for uid, pod := range d.pods { //ordered: each has its own key
		latest[uid] = pod.latest
	}
	return latest
}

// startRounds starts the rounds that are due, and returns the end of the round of quick pods; nil
// if none is running.
func (d *diskUsage) startRounds(pods []*v1.Pod) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	age, now := d.source.opts.VolumeAge, d.source.opts.Now()
	if age <= 0 || d.source.ctx.Err() != nil {
		return d.rounds[quickRound].done
	}
	d.keep(pods)
	for kind := range roundKinds {
		round := &d.rounds[kind]
		fresh := !round.startedAt.IsZero() && now.Sub(round.startedAt) < age
		if round.done == nil && !fresh {
			round.startedAt, round.done = now, make(chan struct{})
			d.work.Go(func() { d.measure(pods, kind) })
		}
	}
	return d.rounds[quickRound].done
}

// keep forgets the measurements of pods that no longer exist, unless one is going on. The caller
// holds the lock.
func (d *diskUsage) keep(pods []*v1.Pod) {
	kept := make(map[types.UID]*podDisks, len(pods))
	for _, pod := range pods {
		if kept[pod.UID] = d.pods[pod.UID]; kept[pod.UID] == nil {
			kept[pod.UID] = &podDisks{trees: map[string]*treeUsage{}}
		}
	}
	for uid, pod := range d.pods { //ordered: each has its own key
		if pod.isBusy {
			kept[uid] = pod
		}
	}
	d.pods = kept
}

// measure runs one round.
func (d *diskUsage) measure(pods []*v1.Pod, kind roundKind) {
	for _, pod := range pods {
		if d.source.ctx.Err() == nil {
			d.measurePod(pod, kind)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.rounds[kind].done)
	d.rounds[kind].done = nil
}

// measurePod measures a pod if it belongs to a kind of round and is not being measured. It waits
// for the end no longer than the kind allows.
func (d *diskUsage) measurePod(pod *v1.Pod, kind roundKind) {
	timeout := quickTimeout
	if kind == slowRound {
		timeout = slowTimeout
	}
	d.mu.Lock()
	state := d.pods[pod.UID]
	isDue := state != nil && !state.isBusy && state.isSlow == (kind == slowRound)
	if isDue {
		state.isBusy = true
	}
	d.mu.Unlock()
	if !isDue {
		return
	}
	measured := make(chan struct{})
	d.work.Go(func() {
		defer close(measured)
		ctx, cancel := context.WithTimeout(d.source.ctx, timeout)
		defer cancel()
		started := time.Now()
		found := d.source.podTrees(ctx, pod, state.trees)
		d.mu.Lock()
		defer d.mu.Unlock()
		state.latest, state.isBusy = found, false
		state.isSlow = ctx.Err() != nil || time.Since(started) > quickTimeout
	})
	late := time.NewTimer(timeout + hangTime)
	defer late.Stop()
	select {
	case <-measured:
	case <-late.C:
		d.mu.Lock()
		defer d.mu.Unlock()
		state.isSlow = true
	}
}

// close waits for the current measurements, whose context is done, for closeTimeout at most: a disk
// may hang.
func (d *diskUsage) close() {
	d.mu.Lock() // no round starts after this
	d.mu.Unlock()
	ended := make(chan struct{})
	go func() {
		d.work.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(closeTimeout):
	}
}

// managedVolumeKinds are the kinds of volumes that the agent creates in the pod's directory, where
// the directory of a volume has the volume's name in the pod.
var managedVolumeKinds = []string{"empty-dir", "configmap", "secret", "projected", "downward-api"}

// podTree is a tree of a pod that is measured.
type podTree struct {
	path     string
	isVolume bool                              // it is reported with data of its file system
	add      func(*podTrees, statsapi.FsStats) // adds the measurement to those of the pod
}

// podTrees measures the volumes and logs of a pod until a context is done. Those that were tried
// least recently are first: if the time is not enough for all of them, the next measurement goes on
// with the others. A tree that was not measured now keeps its last measurement, with its time.
func (s *Source) podTrees(ctx context.Context, pod *v1.Pod, known map[string]*treeUsage) podTrees {
	trees := append(s.volumeTrees(pod), s.logTrees(pod)...)
	current := map[string]*treeUsage{}
	last := 0
	for _, tree := range trees {
		current[tree.path] = cmp.Or(known[tree.path], &treeUsage{})
		last = max(last, current[tree.path].tried)
	}
	byTurn := slices.Clone(trees)
	slices.SortStableFunc(byTurn, func(a, b podTree) int {
		return current[a.path].tried - current[b.path].tried
	})
	for _, tree := range byTurn {
		if ctx.Err() != nil {
			break
		}
		usage := current[tree.path]
		usage.tried = last + 1
		stats, err := s.treeStats(ctx, tree.path)
		switch {
		case err == nil:
			if tree.isVolume { // the usage is valid without data of the file system
				_, _ = s.addFileSystem(&stats, tree.path)
			}
			usage.stats, usage.isKnown = stats, true
		case ctx.Err() == nil: // the tree no longer exists, or is too large to measure
			usage.isKnown = false
		}
	}
	clear(known)
	maps.Copy(known, current)
	found := podTrees{logs: map[string]statsapi.FsStats{}}
	for _, tree := range trees {
		if usage := current[tree.path]; usage.isKnown {
			tree.add(&found, usage.stats)
		}
	}
	return found
}

// volumeTrees returns the volumes of a pod, and its /etc/hosts.
func (s *Source) volumeTrees(pod *v1.Pod) []podTree {
	if !isPlainName(string(pod.UID)) {
		return nil
	}
	dir := filepath.Join(s.opts.RootDir, "pods", string(pod.UID))
	all := []podTree{{path: filepath.Join(dir, "etc-hosts"),
		add: func(to *podTrees, stats statsapi.FsStats) { to.hosts = &stats }}}
	for _, kind := range managedVolumeKinds {
		above := filepath.Join(dir, "volumes", "kubernetes.io~"+kind)
		for _, name := range directoriesIn(above) {
			all = append(all, podTree{path: filepath.Join(above, name), isVolume: true,
				add: func(to *podTrees, stats statsapi.FsStats) {
					to.volumes = append(to.volumes, statsapi.VolumeStats{Name: name, FsStats: stats})
				}})
		}
	}
	return all
}

// logTrees returns the logs of a pod's containers, one directory for each.
func (s *Source) logTrees(pod *v1.Pod) []podTree {
	name := strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_")
	if !isPlainName(name) {
		return nil
	}
	dir := filepath.Join(s.opts.LogsDir, name)
	var all []podTree
	for _, container := range directoriesIn(dir) {
		all = append(all, podTree{path: filepath.Join(dir, container),
			add: func(to *podTrees, stats statsapi.FsStats) { to.logs[container] = stats }})
	}
	return all
}

// directoriesIn returns the names of the directories in a directory; none if it does not exist.
func directoriesIn(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// isPlainName reports whether a name is a single path element other than "." and "..".
func isPlainName(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// treeStats measures one tree, with the time of the measurement.
func (s *Source) treeStats(ctx context.Context, path string) (statsapi.FsStats, error) {
	at := metav1.NewTime(s.opts.Now())
	measured, err := s.measureTree(ctx, path)
	if err != nil {
		return statsapi.FsStats{}, err
	}
	bytes, inodes := uint64(measured.Bytes), uint64(measured.Inodes)
	return statsapi.FsStats{Time: at, UsedBytes: &bytes, InodesUsed: &inodes}, nil
}
