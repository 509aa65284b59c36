package eviction

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const mib = 1 << 20

// harness is a node of 1000 MiB with pods.
type harness struct {
	t          *testing.T
	m          Manager
	table      op.Table
	effects    op.Effects
	now        time.Time
	candidates []Candidate
	evicted    []string            // UID, grace period and message
	annotated  []map[string]string // of evicted
	hastened   []string            // UID and grace period
	aged       []Signal            // whose observations led to a decision

	collections int  // requests to remove containers
	collected   bool // they are done
	kept        int  // requests to keep those that are left
	isRemoving  bool // a removal is in flight
	reclaims    int  // requests to remove images
	reclaimed   bool // they are done

	node          world.NodeMeasured // the answer of observeDisks
	podsMemoryMax int64
	unlisted      bool // not all pods are known
	lacksRecords  bool
	limitsFreedBy time.Time
	failsTrees    bool  // measurements of trees fail
	failures      int   // of requests
	events        int   // of the Node
	statsStamp    int64 // of the runtime's statistics
}

func newHarness(t *testing.T, c *kubeletconfig.KubeletConfiguration) *harness {
	c.EvictionPressureTransitionPeriod = metav1.Duration{Duration: time.Minute}
	h := &harness{t: t, now: start, m: New(c, "/var/lib/kubelet", false)}
	h.m.ListedAt = start.Add(-time.Hour)
	return h
}

// restart makes the agent one that does not know all pods yet.
func (h *harness) restart() { h.unlisted, h.m.ListedAt = true, time.Time{} }

func (h *harness) addPod(uid string, priority int32, requestMiB int64) {
	request := v1.ResourceList{}
	if requestMiB > 0 {
		request[v1.ResourceMemory] = *resource.NewQuantity(requestMiB*mib, resource.BinarySI)
	}
	h.candidates = append(h.candidates, Candidate{UID: uid, Grace: time.Hour, Pod: &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: uid, UID: types.UID(uid)},
		Spec: v1.PodSpec{Priority: &priority, Containers: []v1.Container{
			{Name: "app", Resources: v1.ResourceRequirements{Requests: request}}}}}})
}

func (h *harness) env() *Env {
	return &Env{Effects: &h.effects, PodsMemoryMax: h.podsMemoryMax,
		Candidates: func(bool) []Candidate { return h.candidates },
		Listed:     !h.unlisted, LacksRecords: func() bool { return h.lacksRecords },
		LimitsFreedBy: func() time.Time { return h.limitsFreedBy },
		Evict: func(c Candidate, e Eviction) {
			h.evicted = append(h.evicted, fmt.Sprintf("%s %v %s", c.UID, e.Grace, e.Message))
			h.annotated = append(h.annotated, e.Annotations)
		}, RecordAge: func(s Signal, _ time.Duration) { h.aged = append(h.aged, s) },
		Hasten: func(uid string, grace time.Duration) {
			h.hastened = append(h.hastened, fmt.Sprint(uid, " ", grace))
		},
		RemoveContainers:     func() { h.collections++ },
		AreContainersRemoved: func() bool { return h.collected },
		KeepContainers:       func() { h.kept++ },
		IsRemoving:           func() bool { return h.isRemoving },
		RemoveImages:         func() { h.reclaims++ },
		AreImagesRemoved:     func(time.Time) bool { return h.reclaimed }}
}

// observeDisks answers the observations that are due, until nothing is issued: those of the file
// systems of the root and of the images, on one device or two, with so many MiB and inodes of 1000
// available, and that of the node with memory and processes, if these are set.
func (h *harness) observeDisks(wait time.Duration, devices, available int) {
	h.t.Helper()
	h.now = h.now.Add(wait)
	for issued := h.plan(); len(issued) > 0; issued = h.plan() {
		for _, eff := range issued {
			var answer any
			switch body := eff.Body.(type) {
			case *world.MeasureFilesystem:
				device := uint64(1)
				if body.Path == "/images" {
					device = uint64(devices)
				}
				answer = &world.FilesystemMeasured{Device: device, CapacityBytes: 1000 * mib, Inodes: 1000,
					AvailableBytes: int64(available) * mib, InodesFree: int64(available)}
			case *world.MeasureNode:
				answer = &h.node
			case *runtimeapi.ImageFsInfoRequest:
				answer = &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
					FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: "/images"}}}}
			case *world.MeasureTrees:
				if h.failsTrees {
					h.fail(eff.Op)
					continue
				}
				answer = &world.TreesMeasured{Trees: make([]world.TreeMeasured, len(body.Paths))}
			default:
				answer = statsOf(nil)
			}
			h.complete(eff.Op, answer)
		}
	}
}

// Containers and then images are removed before a pod is evicted for the file system that they are
// on, each time, and not for ever.
func TestImagesAreRemovedFirst(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"imagefs.available": "15%"}})
	h.addPod("a", 0, 0)
	h.observeDisks(0, 2, 100)
	h.observeDisks(5*time.Second, 2, 100)
	h.expect("containers are being removed")
	if h.events != 1 {
		t.Errorf("%d events that a threshold is met, want one when the removal begins", h.events)
	}
	if h.collections != 1 || h.reclaims != 0 {
		t.Errorf("%d requests to remove containers and %d to remove images, want 1 and 0", h.collections,
			h.reclaims)
	}
	h.collected = true
	h.observeDisks(0, 2, 100)
	h.observeDisks(5*time.Second, 2, 100)
	if h.expect("images are being removed"); h.reclaims != 1 {
		t.Errorf("%d requests to remove images, want 1", h.reclaims)
	}
	if h.kept != 0 {
		t.Error("containers are kept, although the removal goes on")
	}
	h.reclaimed = true
	h.observeDisks(0, 2, 200)
	h.observeDisks(time.Minute, 2, 200)
	h.expect("they were enough")
	h.collected, h.reclaimed = false, false
	h.observeDisks(time.Minute, 2, 100)
	h.observeDisks(containersIdleMax, 2, 100)
	h.observeDisks(imagesIdleMax-time.Second, 2, 100)
	if h.expect("images are being removed again"); h.reclaims != 2 {
		t.Errorf("%d requests to remove images, want 2", h.reclaims)
	}
	h.observeDisks(time.Second, 2, 100)
	if len(h.evicted) != 1 || h.reclaims != 2 {
		t.Errorf("evicted %q, want one pod after the removal has taken too long", h.evicted)
	}
	if h.kept != 2 {
		t.Errorf("%d requests to keep the containers that are left, want one for each removal", h.kept)
	}
}

// Images on a file system of their own are not removed for that of the root.
func TestImagesElsewhereAreNotRemoved(t *testing.T) {
	for devices, want := range map[int]int{1: 1, 2: 0} { //ordered: each by itself
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionHard: map[string]string{
			"nodefs.available": "15%", "imagefs.inodesFree": "5%"}})
		h.addPod("a", 0, 0)
		h.observeDisks(0, devices, 500)
		h.observeDisks(period, devices, 100)
		if h.collections != want || len(h.evicted) != 1-want {
			t.Errorf("%d devices: %d requests to remove containers, evicted %q", devices, h.collections,
				h.evicted)
		}
	}
}

// plan returns the requests that a plan issues.
func (h *harness) plan() []world.Effect {
	h.effects.Reset(&h.table, h.now)
	h.m.Plan(h.env())
	h.countEvents()
	var issued []world.Effect
	for _, eff := range h.effects.List() {
		if eff.Op != 0 {
			issued = append(issued, eff)
		}
	}
	return issued
}

// observe has the node observed with so much memory available, and its pods with their usage.
func (h *harness) observe(availableMiB int64, usageMiB map[string]int64) {
	h.t.Helper()
	h.now = h.now.Add(period)
	h.observeNow(availableMiB, usageMiB)
}

// observeNow is observe without the time until the next observation.
func (h *harness) observeNow(availableMiB int64, usageMiB map[string]int64) {
	h.t.Helper()
	for range 3 {
		for _, eff := range h.plan() {
			var answer any = &world.NodeMeasured{MemoryBytes: 1000 * mib,
				WorkingSetBytes: (1000 - availableMiB) * mib}
			if _, isPods := eff.Body.(*runtimeapi.ListPodSandboxStatsRequest); isPods {
				answer = h.stamped(statsOf(usageMiB))
			}
			h.complete(eff.Op, answer)
		}
	}
}

func (h *harness) complete(id world.OpID, answer any) {
	h.effects.Reset(&h.table, h.now)
	h.table.Complete(id)
	h.m.HandleCompletion(id, world.Event{Time: h.now, Op: id, Body: answer}, h.env())
	h.countEvents()
}

func (h *harness) countEvents() {
	for _, eff := range h.effects.List() {
		if e, isEvent := eff.Body.(*world.RecordEvent); isEvent && e.Reason == "EvictionThresholdMet" {
			h.events++
		}
	}
}

func (h *harness) stamped(
	listed *runtimeapi.ListPodSandboxStatsResponse) *runtimeapi.ListPodSandboxStatsResponse {
	for _, s := range listed.Stats {
		s.Linux.Memory.Timestamp = h.statsStamp
	}
	return listed
}

func statsOf(usageMiB map[string]int64) *runtimeapi.ListPodSandboxStatsResponse {
	listed := &runtimeapi.ListPodSandboxStatsResponse{}
	for uid, n := range usageMiB { //ordered: by UID in the end
		used := &runtimeapi.MemoryUsage{WorkingSetBytes: &runtimeapi.UInt64Value{Value: uint64(n * mib)}}
		listed.Stats = append(listed.Stats, &runtimeapi.PodSandboxStats{
			Attributes: &runtimeapi.PodSandboxAttributes{
				Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}},
			Linux: &runtimeapi.LinuxPodSandboxStats{Memory: used,
				Containers: []*runtimeapi.ContainerStats{{Memory: used,
					Attributes: &runtimeapi.ContainerAttributes{
						Metadata: &runtimeapi.ContainerMetadata{Name: "app"}}}}}})
	}
	return listed
}

func (h *harness) expect(what string, want ...string) {
	h.t.Helper()
	if fmt.Sprint(h.evicted) != fmt.Sprint(want) {
		h.t.Errorf("%s: evicted %q, want %q", what, h.evicted, want)
	}
}

// Shares of 0 % and 100 % are no thresholds: upstream's way to switch one off.
func TestThresholdsThatAreOff(t *testing.T) {
	for share, want := range map[string]int{"0%": 0, "100%": 0, "99%": 1, "1%": 1} {
		m := New(&kubeletconfig.KubeletConfiguration{
			EvictionHard: map[string]string{"nodefs.available": share}}, "/var/lib/kubelet", false)
		if len(m.Thresholds) != want {
			t.Errorf("%s: thresholds %+v, want %d", share, m.Thresholds, want)
		}
	}
}

// The memory that pods may have together has the threshold of memory, unless a flag says otherwise.
func TestAllocatableThreshold(t *testing.T) {
	for ignored, want := range map[bool]int{false: 2, true: 1} {
		m := New(&kubeletconfig.KubeletConfiguration{EnforceNodeAllocatable: []string{"pods"},
			EvictionHard: map[string]string{"memory.available": "1Mi"}}, "/var/lib/kubelet", ignored)
		if len(m.Thresholds) != want {
			t.Errorf("ignored: %t; thresholds %+v, want %d", ignored, m.Thresholds, want)
		}
	}
}

// A hard threshold evicts the pod that exceeds its request most, among those of the least priority.
func TestHardThreshold(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "25%"}})
	h.addPod("within", 0, 600)
	h.addPod("important", 5, 0)
	h.addPod("less", 0, 100)
	h.addPod("most", 0, 0)
	usage := map[string]int64{"within": 400, "important": 200, "less": 210, "most": 120}
	h.observe(250, usage)
	h.expect("at the threshold")
	h.observe(249, usage)
	first := "most 1s The node was low on resource: memory. Threshold quantity: 250Mi, available: " +
		"249Mi. Container app was using 120Mi, request is 0, has larger consumption of memory. "
	h.expect("below it", first)
	want := map[string]string{"starved_resource": "memory", "offending_containers": "app",
		"offending_containers_usage": "120Mi"}
	if len(h.annotated) != 1 || !maps.Equal(h.annotated[0], want) {
		t.Errorf("annotations %v, want %v", h.annotated, want)
	}
	if len(h.m.Pressure) != 1 || h.m.Pressure[0] != v1.NodeMemoryPressure {
		t.Errorf("conditions %v", h.m.Pressure)
	}
	h.observe(50, usage)
	h.expect("while the victim ends", first)
	h.candidates = h.candidates[:3]
	if h.m.PodEnded("other", h.now) || !h.m.PodEnded("most", h.now) {
		t.Error("the end of the victim is not noticed")
	}
	h.observe(500, usage)
	h.expect("with enough memory", first)
	h.now = h.now.Add(time.Minute)
	if h.observe(500, usage); len(h.m.Pressure) != 0 {
		t.Errorf("after the transition period: %v", h.m.Pressure)
	}
}

// A soft threshold waits for its grace period, and holds until the minimum reclaim is available: an
// amount, or a share of what there is.
func TestSoftThreshold(t *testing.T) {
	for _, least := range []string{"100Mi", "10%"} {
		testSoftThreshold(t, least)
	}
}

func testSoftThreshold(t *testing.T, least string) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionMaxPodGracePeriod: 7,
		EvictionSoft:            map[string]string{"memory.available": "200Mi"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "25s"},
		EvictionMinimumReclaim:  map[string]string{"memory.available": least}})
	h.addPod("a", 0, 0)
	h.addPod("b", 0, 0)
	usage := map[string]int64{"a": 100, "b": 50}
	for _, available := range []int64{150, 150, 201, 150, 150, 150} {
		h.observe(available, usage)
	}
	h.expect("before the grace period")
	h.observe(150, usage)
	if len(h.evicted) != 1 || h.evicted[0][:4] != "a 7s" {
		t.Fatalf("after the grace period: %q", h.evicted)
	}
	h.candidates = h.candidates[1:]
	h.m.PodEnded("a", h.now)
	if h.observe(250, usage); len(h.evicted) != 2 {
		t.Errorf("before the minimum reclaim: %q", h.evicted)
	}
	h.m.PodEnded("b", h.now)
	h.addPod("c", 0, 0)
	if h.observe(301, usage); len(h.evicted) != 2 {
		t.Errorf("after it: %q", h.evicted)
	}
}

// Every signal may have a soft threshold.
func TestSoftThresholdOfEachSignal(t *testing.T) {
	for _, signal := range []Signal{NodefsAvailable, NodefsInodesFree, ImagefsAvailable,
		ImagefsInodesFree, MemoryAvailable, PIDAvailable} {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionMaxPodGracePeriod: 7,
			EvictionSoft:            map[string]string{string(signal): "15%"},
			EvictionSoftGracePeriod: map[string]string{string(signal): "25s"}})
		h.addPod("a", 0, 0)
		h.node = world.NodeMeasured{MemoryBytes: 1000 * mib, WorkingSetBytes: 900 * mib,
			ProcessesMax: 1000, Processes: 900}
		h.collected, h.reclaimed = true, true
		for range 3 {
			h.observeDisks(0, 1, 100)
			h.expect(string(signal) + " before the grace period")
			h.now = h.now.Add(period)
		}
		h.observeDisks(0, 1, 100)
		h.now = h.now.Add(time.Second) // after the removal of images
		if h.observeDisks(0, 1, 100); len(h.evicted) != 1 || !strings.HasPrefix(h.evicted[0], "a 7s") {
			t.Errorf("%s: evicted %q after the grace period", signal, h.evicted)
		}
	}
}

// An agent that was started evicts no pod until it knows which of them an earlier agent has
// evicted, and has then observed the node again. It does not wait for a disk that hangs.
func TestRecordsAreAwaited(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "25%"}})
	h.addPod("a", 0, 0)
	usage := map[string]int64{"a": 100}
	h.restart()
	h.lacksRecords = true
	for range 3 {
		h.observe(50, usage)
	}
	h.unlisted = false
	h.plan()
	h.now = h.now.Add(recordsMax - time.Second)
	if h.observeNow(50, usage); len(h.evicted) != 0 {
		t.Errorf("before the records are known: evicted %q", h.evicted)
	}
	h.now = h.now.Add(time.Second)
	if h.observeNow(500, usage); len(h.evicted) != 0 {
		t.Errorf("for an observation that is old: evicted %q", h.evicted)
	}
	if h.observe(50, usage); len(h.evicted) != 1 {
		t.Errorf("while a disk hangs: evicted %q", h.evicted)
	}
}

// While a pod ends that an earlier agent has evicted, no other one is, also if the agent learns of
// it while it observes the pods.
func TestVictimOfEarlierAgent(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "25%"}})
	h.addPod("a", 0, 0)
	usage := map[string]int64{"a": 100}
	h.now = h.now.Add(period)
	h.complete(h.plan()[0].Op,
		&world.NodeMeasured{MemoryBytes: 1000 * mib, WorkingSetBytes: 950 * mib})
	issued := h.plan()
	h.m.AdoptVictim("b", h.now.Add(time.Hour), h.now) // to be deleted within an hour
	h.complete(issued[0].Op, statsOf(usage))
	if h.observe(50, usage); len(h.evicted) != 0 {
		t.Errorf("while the earlier victim ends: evicted %q", h.evicted)
	}
	h.now = h.now.Add(immediateGrace + CleanupMax - period)
	if h.observe(50, usage); len(h.evicted) != 1 {
		t.Errorf("after its time: evicted %q", h.evicted)
	}
	h.m.PodEnded("a", h.now)
	if h.m.AdoptVictim("c", h.now.Add(-CleanupMax), h.now); h.m.Victim != nil {
		t.Errorf("a victim that should have ended long ago is waited for")
	}
}

// Statistics that are not newer than those of before lead to no victim.
func TestStaleStatistics(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "100Mi"}})
	h.addPod("a", 0, 0)
	h.addPod("b", 0, 0)
	usage := map[string]int64{"a": 100, "b": 50}
	h.statsStamp = 10
	h.observe(50, usage)
	if h.m.Victim == nil || h.m.Victim.UID != "a" {
		t.Fatalf("evicted %q, want a", h.evicted)
	}
	h.candidates = h.candidates[1:]
	for _, stamp := range []int64{10, 5} {
		h.m.PodEnded("a", h.now)
		h.statsStamp = stamp
		if h.observe(50, usage); len(h.evicted) != 1 {
			t.Errorf("by statistics of %d after those of 10: evicted %q", stamp, h.evicted)
		}
	}
	h.statsStamp = 6 // the runtime's clock was set back
	if h.observe(50, usage); len(h.evicted) != 2 {
		t.Errorf("by new statistics: evicted %q", h.evicted)
	}
}

// A time that lies in the future says nothing, and those of other pods are compared.
func TestStatisticsOfTheFuture(t *testing.T) {
	for _, c := range []struct {
		stamps []int64
		want   int64
	}{
		{nil, 0},
		{[]int64{0, 0}, 0},
		{[]int64{5, 7}, 7},
		{[]int64{5, start.Add(stampAheadMax).UnixNano() + 1}, 5},
		{[]int64{5, start.Add(stampAheadMax).UnixNano()}, start.Add(stampAheadMax).UnixNano()},
		{[]int64{start.Add(time.Hour).UnixNano()}, 0},
	} {
		listed := &runtimeapi.ListPodSandboxStatsResponse{}
		for _, stamp := range c.stamps {
			listed.Stats = append(listed.Stats, &runtimeapi.PodSandboxStats{
				Linux: &runtimeapi.LinuxPodSandboxStats{
					Memory: &runtimeapi.MemoryUsage{Timestamp: stamp}}})
		}
		if got := newestStamp(listed, start); got != c.want {
			t.Errorf("%d: got %d, want %d", c.stamps, got, c.want)
		}
	}
}

// Pods that cannot be observed are ranked without their usage in the end. Once they can be again,
// they are ranked by it.
func TestUnobservedPods(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "100Mi"}})
	h.addPod("a", 3, 0)
	h.addPod("b", 1, 0)
	for try := range 3 { // half a minute
		if try > 0 {
			h.expect("while it may be known")
		}
		h.now = h.now.Add(period)
		h.complete(h.plan()[0].Op, &world.NodeMeasured{MemoryBytes: 1000 * mib,
			WorkingSetBytes: 999 * mib})
		h.fail(h.plan()[0].Op)
		h.plan()
	}
	blind := "b 1s The node was low on resource: memory. Threshold quantity: 100Mi, available: 1Mi. "
	h.expect("then", blind)
	h.addPod("c", 1, 0)
	h.candidates = h.candidates[1:]
	h.candidates[0].UID = "small"
	h.m.PodEnded("b", h.now)
	h.observe(1, map[string]int64{"small": 10, "c": 200})
	if len(h.evicted) != 2 || !strings.HasPrefix(h.evicted[1], "c ") {
		t.Errorf("with statistics again: evicted %q, want c", h.evicted)
	}
}

func (h *harness) fail(id world.OpID) { h.failWith(id, world.KindTimeout) }

func (h *harness) failWith(id world.OpID, kind world.ErrorKind) {
	h.failures++
	h.effects.Reset(&h.table, h.now)
	h.table.Complete(id)
	h.m.HandleCompletion(id, world.Event{Time: h.now, Op: id,
		Err: world.Errorf(kind, "", "late")}, h.env())
}

// If the trees of the pods cannot be measured, that is tried again, and then the pods are ranked
// without their usage. Observations of other resources do not forget failures.
func TestUnmeasuredTrees(t *testing.T) {
	for _, thresholds := range []map[string]string{{"nodefs.available": "15%"},
		{"nodefs.available": "15%", "memory.available": "5%"}} {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionHard: thresholds})
		h.addPod("a", 0, 0)
		h.failsTrees, h.collected, h.reclaimed = true, true, true
		for range 10 {
			if h.observeDisks(period, 1, 100); len(h.evicted) > 0 {
				break
			}
		}
		if len(h.evicted) != 1 || h.failures != 3 {
			t.Errorf("%v: after %d failures: evicted %q", thresholds, h.failures, h.evicted)
		}
	}
}

// The victim of an earlier agent has the grace period of a soft threshold, and holds its disk.
func TestAdoptedVictimOfSoftThreshold(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionMaxPodGracePeriod: 60,
		EvictionSoft:            map[string]string{"memory.available": "200Mi"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "25s"}})
	h.m.AdoptVictim("a", h.now.Add(50*time.Second), h.now)
	v := h.m.Victim
	if v == nil || !v.HoldsDisk || !v.Soft ||
		!v.Deadline.Equal(h.now.Add(50*time.Second+CleanupMax)) {
		t.Errorf("%+v", v)
	}
	h.m.Victim = nil // one that has no more time than a hard threshold would give it
	if h.m.AdoptVictim("b", h.now.Add(immediateGrace), h.now); h.m.Victim == nil || h.m.Victim.Soft {
		t.Errorf("%+v", h.m.Victim)
	}
}

// A pod of which nothing runs and that has no statistics uses nothing: others are evicted first.
func TestIdlePodWithoutStatistics(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "25%"}})
	h.addPod("idle", 0, 0)
	h.addPod("busy", 0, 0)
	h.candidates[0].Idle = true
	h.observe(50, map[string]int64{"busy": 100})
	if len(h.evicted) != 1 || !strings.HasPrefix(h.evicted[0], "busy ") {
		t.Errorf("evicted %q, want busy", h.evicted)
	}
}

// startSlowAttempt meets a threshold of memory, and returns the request for the usage of the pods,
// which is in flight.
func startSlowAttempt(t *testing.T) (h *harness, stats world.OpID) {
	h = newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "10%"}})
	h.addPod("a", 0, 0)
	h.complete(h.plan()[0].Op, &world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 950})
	return h, h.plan()[0].Op
}

// While the usage of the pods is awaited, which may take half a minute, the node is observed: no
// pod is evicted for what is not lacking any more, or cannot be measured any more.
func TestNodeIsObservedDuringAnAttempt(t *testing.T) {
	for _, test := range []struct {
		answer any
		want   int
	}{
		{&world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 950}, 1},
		{&world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 100}, 0},
		{nil, 0},
	} {
		h, stats := startSlowAttempt(t)
		h.now = h.now.Add(period)
		issued := h.plan()
		if len(issued) != 1 || world.CallName(issued[0].Body) != "MeasureNode" {
			t.Fatalf("issued %v", issued)
		}
		if test.answer != nil {
			h.complete(issued[0].Op, test.answer)
		} else {
			h.fail(issued[0].Op)
		}
		h.plan()
		h.complete(stats, statsOf(map[string]int64{"a": 1}))
		if h.plan(); len(h.evicted) != test.want {
			t.Errorf("%+v: evicted %q, want %d", test.answer, h.evicted, test.want)
		}
	}
}

// Memory that runs short during an attempt for a disk comes first.
func TestMemoryRunsShortDuringAnAttempt(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionHard: map[string]string{
		"nodefs.available": "15%", "memory.available": "25%"}})
	h.addPod("a", 0, 0)
	h.m.Observed = map[Signal]Observation{}
	for i := range h.m.Thresholds {
		h.m.Thresholds[i].MetForGrace = true
		h.m.Observed[h.m.Thresholds[i].Signal] = Observation{AsOf: h.now}
	}
	h.m.Attempt = &Attempt{Answered: true, HasTrees: true, Candidates: map[string]bool{"a": false},
		Threshold: slices.IndexFunc(h.m.Thresholds,
			func(t Threshold) bool { return t.Signal == NodefsAvailable })}
	issued := h.plan()
	h.expect("for the disk")
	if !slices.ContainsFunc(issued, func(e world.Effect) bool {
		return world.CallName(e.Body) == "MeasureNode"
	}) {
		t.Errorf("issued %v, want an observation of the memory", issued)
	}
}

// A pod that has exceeded a limit of its own gives back what it holds of a disk: meanwhile none is
// evicted for a disk, also if the limit was noticed during the attempt, and one for memory is.
func TestPodsOverTheirLimitsAreWaitedFor(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"nodefs.available": "15%", "imagefs.available": "1%"}})
	h.addPod("a", 0, 0)
	h.collected, h.reclaimed = true, true
	h.limitsFreedBy = h.now.Add(20 * time.Second)
	h.observeDisks(0, 2, 100)
	h.observeDisks(period, 2, 100)
	if h.expect("a pod is over its limit"); !h.m.Postponed {
		t.Error("nothing is waited for")
	}
	h.observeDisks(period, 2, 100)
	if len(h.evicted) != 1 {
		t.Errorf("evicted %q, want one pod once the other has not ended in time", h.evicted)
	}

	h = newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "25%"}})
	h.limitsFreedBy = h.now.Add(time.Minute)
	h.addPod("a", 0, 0)
	if h.observe(100, map[string]int64{"a": 1}); len(h.evicted) != 1 {
		t.Errorf("evicted %q for memory, want one", h.evicted)
	}

	attempt := func() *harness {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{
			EvictionHard: map[string]string{"nodefs.available": "15%"}})
		h.addPod("a", 0, 0)
		h.m.Observed = map[Signal]Observation{NodefsAvailable: {AsOf: h.now}}
		h.m.Thresholds[0].MetForGrace = true
		h.m.Attempt = &Attempt{Answered: true, HasTrees: true, Candidates: map[string]bool{"a": false}}
		return h
	}
	h = attempt()
	h.limitsFreedBy = h.now.Add(time.Second)
	h.plan()
	h.expect("a limit was noticed during the attempt")
	h = attempt()
	h.now = h.now.Add(time.Second)
	h.m.NoteLimitFreed(h.now)
	h.plan()
	h.expect("the disk was freed since it was observed")
}

// However many pods exceed their limits, one after the other, a disk does not wait for ever.
func TestWaitForLimitsEnds(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"nodefs.available": "15%", "imagefs.available": "1%"}})
	h.addPod("a", 0, 0)
	h.collected, h.reclaimed = true, true
	for range 3 {
		h.limitsFreedBy = h.now.Add(31 * time.Second)
		h.observeDisks(period, 2, 100)
	}
	h.expect("for half a minute")
	for range 2 {
		h.limitsFreedBy = h.now.Add(31 * time.Second)
		h.observeDisks(period, 2, 100)
	}
	if len(h.evicted) != 1 {
		t.Errorf("evicted %q, want one pod", h.evicted)
	}
}

// What a disk has waited for such pods counts for one shortage of a disk: neither a wait for the
// list of all pods nor another shortage is a part of it.
func TestWaitForLimitsOfOneShortage(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionHard: map[string]string{
		"memory.available": "25%", "nodefs.available": "15%", "imagefs.available": "1%"}})
	h.collected, h.reclaimed = true, true
	h.m.ListedAt = time.Time{}
	if env := h.env(); !h.m.postpone(true, env) || !h.m.LimitsWaitSince.IsZero() {
		t.Errorf("waited since %v for pods over their limits, without any", h.m.LimitsWaitSince)
	}
	h.m.LimitsWaitSince = h.now
	for i := range h.m.Thresholds {
		h.m.Thresholds[i].MetForGrace = h.m.Thresholds[i].Signal == NodefsAvailable
	}
	if h.m.respond(sourceNodefs, h.env()); h.m.LimitsWaitSince.IsZero() {
		t.Error("the wait is forgotten while a disk is short")
	}
	for i := range h.m.Thresholds {
		h.m.Thresholds[i].MetForGrace = h.m.Thresholds[i].Signal == MemoryAvailable
	}
	if h.m.respond(sourceNodefs, h.env()); !h.m.LimitsWaitSince.IsZero() {
		t.Error("the wait is not forgotten while memory alone is short")
	}
}

// Pods that only hold a disk are candidates for a file system, and for nothing else.
func TestCandidatesOfSignal(t *testing.T) {
	for signal, disk := range map[Signal]bool{MemoryAvailable: false, NodefsAvailable: true} {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionHard: map[string]string{
			"memory.available": "25%", "nodefs.available": "15%"}})
		h.addPod("a", 0, 0)
		h.m.Observed = map[Signal]Observation{signal: {AsOf: h.now}}
		h.m.Attempt = &Attempt{Answered: true, HasTrees: true, Candidates: map[string]bool{"a": false},
			Threshold: slices.IndexFunc(
				h.m.Thresholds, func(t Threshold) bool { return t.Signal == signal })}
		h.m.Thresholds[h.m.Attempt.Threshold].MetForGrace = true
		env := h.env()
		env.Candidates = func(forDisk bool) []Candidate {
			if forDisk != disk {
				return nil
			}
			return h.candidates
		}
		h.effects.Reset(&h.table, h.now)
		if h.m.Plan(env); len(h.evicted) != 1 {
			t.Errorf("%s: evicted %q", signal, h.evicted)
		}
	}
}

// While the victim of a soft threshold ends, which may take minutes, conditions follow what is
// observed, and a hard threshold leaves the victim a second. No other pod is evicted meanwhile.
func TestHardThresholdWhileSoftVictimEnds(t *testing.T) {
	begin := func() *harness {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionMaxPodGracePeriod: 600,
			EvictionHard:            map[string]string{"memory.available": "100Mi"},
			EvictionSoft:            map[string]string{"memory.available": "200Mi"},
			EvictionSoftGracePeriod: map[string]string{"memory.available": "5s"}})
		h.addPod("a", 0, 0)
		h.addPod("b", 0, 0)
		h.observe(150, nil)
		h.observe(150, map[string]int64{"a": 100, "b": 50})
		if v := h.m.Victim; v == nil || v.UID != "a" || !v.Soft {
			t.Fatalf("victim %+v, evicted %q", v, h.evicted)
		}
		h.observe(150, nil)
		h.observe(150, nil)
		if len(h.hastened) != 0 || len(h.evicted) != 1 {
			t.Fatalf("hastened %q, evicted %q, want neither", h.hastened, h.evicted)
		}
		return h
	}
	h := begin()
	for range 4 {
		h.observe(50, nil)
	}
	if fmt.Sprint(h.hastened) != "[a 1s]" || len(h.evicted) != 1 {
		t.Errorf("hastened %q, evicted %q, want a once, and no other pod", h.hastened, h.evicted)
	}
	if v := h.m.Victim; v.Soft || v.Deadline.After(h.now.Add(immediateGrace+CleanupMax)) {
		t.Errorf("victim %+v", v)
	}
	h = begin()
	for range 7 {
		h.observe(500, nil)
	}
	if len(h.m.Pressure) != 0 || len(h.hastened) != 0 {
		t.Errorf("conditions %v, hastened %q, want none after the transition period", h.m.Pressure,
			h.hastened)
	}
	if end := h.m.Victim.Deadline; h.m.Plan(h.env()).After(end) {
		t.Error("the plan waits beyond the deadline of the victim")
	}
}

// A message names a threshold that is starved, not the first one of its resource, and only
// observations of such thresholds count as those behind the decision.
func TestThresholdThatIsNotStarved(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionMaxPodGracePeriod: 1,
		EvictionHard:            map[string]string{"memory.available": "100Mi", "pid.available": "1%"},
		EvictionSoft:            map[string]string{"memory.available": "200Mi"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "5s"}})
	h.addPod("a", 0, 0)
	h.observe(150, nil)
	h.observe(150, map[string]int64{"a": 100})
	if len(h.evicted) != 1 || !strings.Contains(h.evicted[0], "Threshold quantity: 200Mi") {
		t.Errorf("evicted %q, want one pod, for 200Mi", h.evicted)
	}
	for i := range h.m.Thresholds {
		h.m.Thresholds[i].MetForGrace = true
	}
	h.m.Observed[PIDAvailable] = Observation{Available: 5, Capacity: 1000}
	if shown, _ := h.m.shownThreshold("pids"); shown == nil || shown.Signal != PIDAvailable {
		t.Errorf("for processes %+v is shown", shown)
	}
	if fmt.Sprint(h.aged) != "[memory.available]" {
		t.Errorf("ages of %v, want that of the soft threshold", h.aged)
	}
}

// Of two hard thresholds of a resource, or two soft ones, the first is acted on.
func TestOrderOfThresholds(t *testing.T) {
	hard, soft := Threshold{Signal: MemoryAvailable}, Threshold{Signal: MemoryAvailable, Grace: 1}
	disk := Threshold{Signal: NodefsAvailable}
	for _, c := range []struct {
		first, second *Threshold
		want          bool
	}{
		{&hard, &hard, false}, {&hard, &soft, true}, {&soft, &hard, false}, {&soft, &soft, false},
		{&soft, &disk, true}, {&disk, &soft, false},
	} {
		if c.first.isBefore(c.second) != c.want {
			t.Errorf("%+v is before %+v: want %v", c.first, c.second, c.want)
		}
	}
}

// Memory and disks have binary amounts, counts decimal ones.
func TestQuantities(t *testing.T) {
	for name, want := range map[v1.ResourceName]string{ //ordered: each by itself
		v1.ResourceMemory: "2Ki", v1.ResourceEphemeralStorage: "2Ki", "inodes": "2048",
	} {
		if got := quantity(2048, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// The trees of a pod count also without statistics of the runtime, and one that could not be
// finished counts as larger than any other.
func TestTreesOfPods(t *testing.T) {
	a := &Attempt{Measured: []string{"a", "b"}}
	a.addTrees(&world.TreesMeasured{Trees: []world.TreeMeasured{
		{Bytes: 1, Inodes: 1}, {Bytes: 2, Inodes: 1}, {Bytes: 1, Inodes: 1, Unfinished: true}, {}}})
	if got := a.Usage["a"]; got == nil || got.Files != (DiskUsage{3, 2}) {
		t.Errorf("a: %+v, want 3 bytes of 2 inodes", got)
	}
	if got := a.Usage["b"]; got == nil || got.Files.Bytes <= unfinishedUsage ||
		got.Files.Inodes <= unfinishedUsage {
		t.Errorf("b: %+v, want more than any other", got)
	}
	if a.addTrees(&world.TreesMeasured{}); len(a.Usage) != 0 {
		t.Errorf("usage %v, want none of pods that an answer lacks", a.Usage)
	}
}

// Conditions that an earlier agent has left end a transition period after the start, also if the
// Node is read only then.
func TestConditionsOfEarlierAgent(t *testing.T) {
	left := []v1.NodeCondition{{Type: v1.NodeDiskPressure, Status: v1.ConditionTrue}}
	for _, c := range []struct {
		after time.Duration
		want  int
	}{{time.Second, 1}, {59 * time.Second, 1}, {time.Minute, 0}, {time.Hour, 0}} {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{
			EvictionHard: map[string]string{"nodefs.available": "15%"}})
		if h.m.Adopt(left, start, start.Add(c.after)); len(h.m.Pressure) != c.want {
			t.Errorf("%v after the start: %v", c.after, h.m.Pressure)
		}
	}
}

// A pod of which both trees could not be finished counts as one of which one could not.
func TestUnfinishedTreesOfOnePod(t *testing.T) {
	a := &Attempt{Measured: []string{"one", "both"}}
	unfinished := world.TreeMeasured{Bytes: 5, Inodes: 1, Unfinished: true}
	a.addTrees(&world.TreesMeasured{Trees: []world.TreeMeasured{{Bytes: 7, Inodes: 2}, unfinished,
		unfinished, unfinished}})
	if one, both := a.Usage["one"].Files, a.Usage["both"].Files; one.Bytes-both.Bytes != 2 {
		t.Errorf("%+v and %+v", one, both)
	}
}

// The victim of a soft threshold that has less time of its own is waited for no longer than that.
func TestSoftVictimWithAShortGracePeriod(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionMaxPodGracePeriod: 600,
		EvictionSoft:            map[string]string{"memory.available": "200Mi"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "5s"}})
	h.addPod("a", 0, 0)
	h.candidates[0].Grace = 5 * time.Second
	h.observe(150, map[string]int64{"a": 100})
	h.observe(150, map[string]int64{"a": 100})
	if v, want := h.m.Victim, h.now.Add(5*time.Second+CleanupMax); v == nil ||
		!v.Deadline.Equal(want) {
		t.Errorf("the victim is %+v, want one until %v", v, want)
	}
}

// Nothing is known of a pod that has started since the pods were observed: it is no victim.
func TestPodThatStartsDuringAnAttempt(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "25%"}})
	h.addPod("old", 0, 0)
	h.now = h.now.Add(period)
	var stats world.OpID
	for _, eff := range h.plan() {
		h.complete(eff.Op, &world.NodeMeasured{MemoryBytes: 1000 * mib, WorkingSetBytes: 900 * mib})
	}
	for _, eff := range h.plan() {
		stats = eff.Op
	}
	h.addPod("new", 0, 0)
	h.m.Attempt.Candidates["waiting"] = true // its container has started since
	h.addPod("waiting", 0, 0)
	h.complete(stats, statsOf(map[string]int64{"old": 1}))
	if h.plan(); len(h.evicted) != 1 || !strings.HasPrefix(h.evicted[0], "old") {
		t.Errorf("evicted %q, want the pod that was observed", h.evicted)
	}
}

// A pod whose statistics the runtime lacks may have anything in its writable layers: it comes first
// for their file system, unless nothing of it runs, and for no other one.
func TestPodWithoutLayerStatistics(t *testing.T) {
	for _, c := range []struct {
		signal  Signal
		devices [2]uint64 // of the node and of the layers
		idle    bool
		answer  map[string]int64
		want    string
	}{
		{NodefsAvailable, [2]uint64{1, 1}, false, map[string]int64{"b": 1}, "a"},
		{NodefsAvailable, [2]uint64{1, 1}, true, map[string]int64{"b": 1}, "b"},
		{NodefsAvailable, [2]uint64{1, 2}, false, map[string]int64{"b": 1}, "b"},
		{ImagefsAvailable, [2]uint64{1, 2}, false, map[string]int64{"b": 1}, "a"},
		{NodefsAvailable, [2]uint64{1, 1}, false, nil, "b"},
	} {
		h := newHarness(t, &kubeletconfig.KubeletConfiguration{EvictionHard: map[string]string{
			string(c.signal): "15%"}})
		h.addPod("a", 0, 0)
		h.addPod("b", 0, 0)
		h.candidates[0].Idle = c.idle
		h.m.Nodefs, h.m.Imagefs = c.devices[0], c.devices[1]
		a := &Attempt{Usage: usageOf(statsOf(c.answer)), Measured: []string{"a", "b"}}
		a.addTrees(&world.TreesMeasured{Trees: []world.TreeMeasured{{Bytes: 1}, {}, {Bytes: 100}, {}}})
		if first, _ := h.m.first(a, h.candidates, c.signal); first.UID != c.want {
			t.Errorf("%+v: %s comes first", c, first.UID)
		}
	}
}
