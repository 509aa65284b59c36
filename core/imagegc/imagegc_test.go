package imagegc

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/imagename"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// node is a collector with a runtime: images by ID with their sizes, on a file system of 100 bytes.
type node struct {
	c           Collector
	table       op.Table
	out         op.Effects
	now         time.Time
	images      map[string]uint64
	pinned      string
	registry    string   // in front of the names of images
	containers  []string // images of containers
	pods        []string // images of specs
	waiting     []string // images of specs of pods that are not being started
	free        int64
	capacity    int64
	failing     string // a call that fails
	removed     []string
	warnings    []string
	onRemoval   func() // called when an image is removed
	podsUnknown bool   // the API server was not listed
	notReady    bool   // and no round may remove anything yet
	lists       int    // of images
	measured    int    // how often the file system was
	measuredAt  string // the path of the file system
}

func filesystems(paths ...string) []*runtimeapi.FilesystemUsage {
	var all []*runtimeapi.FilesystemUsage
	for _, p := range paths {
		all = append(all, &runtimeapi.FilesystemUsage{
			FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: p}})
	}
	return all
}

// The first file system that the runtime has for images decides, not that of writable layers.
func TestFilesystemOfImagesIsMeasured(t *testing.T) {
	n := newNode(defaults)
	n.round(0)
	if n.measuredAt != "/images" {
		t.Errorf("%q is measured", n.measuredAt)
	}
}

func newNode(s Settings) *node {
	return &node{c: Collector{Settings: s}, now: t0, capacity: 100, free: 50,
		registry: "docker.io/library/",
		images:   map[string]uint64{"a": 10, "b": 10, "c": 10, "d": 10}}
}

var digest = "sha256:" + strings.Repeat("1", 64)

var defaults = Settings{HighPercent: 85, LowPercent: 80, AgeMin: 2 * time.Minute}

func (n *node) env() *Env {
	return &Env{Effects: &n.out, Ready: !n.notReady, KnowsPods: !n.podsUnknown,
		References: func(forEviction bool) []string {
			if forEviction {
				return imagename.WithFullNames(n.pods)
			}
			return imagename.WithFullNames(slices.Concat(n.pods, n.waiting))
		},
		Warn: func(reason, _ string) { n.warnings = append(n.warnings, reason) }}
}

// round runs the rounds that are due, and returns the removed images.
func (n *node) round(after time.Duration) string {
	n.now, n.removed, n.warnings = n.now.Add(after), nil, nil
	for {
		n.out.Reset(&n.table, n.now)
		wake := n.c.Plan(n.env())
		if len(n.out.List()) == 0 && !wake.Equal(n.now) {
			return strings.Join(n.removed, " ")
		}
		for _, eff := range slices.Clone(n.out.List()) {
			if eff.Op != 0 {
				n.complete(eff)
			}
		}
	}
}

func (n *node) complete(eff world.Effect) {
	record, _ := n.table.Complete(eff.Op)
	ev := world.Event{Time: n.now, Op: eff.Op}
	switch body := eff.Body.(type) {
	case *runtimeapi.ListImagesRequest:
		n.lists++
		list := &runtimeapi.ListImagesResponse{}
		for id, size := range n.images {
			list.Images = append(list.Images, &runtimeapi.Image{Id: id, Size: size,
				RepoTags:    []string{n.registry + id + ":latest"},
				RepoDigests: []string{n.registry + id + "@" + digest}, Pinned: id == n.pinned})
		}
		ev.Body = list
	case *runtimeapi.ListContainersRequest:
		list := &runtimeapi.ListContainersResponse{}
		for _, id := range n.containers {
			list.Containers = append(list.Containers, &runtimeapi.Container{ImageId: id})
		}
		ev.Body = list
	case *runtimeapi.ImageFsInfoRequest:
		ev.Body = &runtimeapi.ImageFsInfoResponse{
			ImageFilesystems:     filesystems("/images", "/others"),
			ContainerFilesystems: filesystems("/layers")}
	case *world.MeasureFilesystem:
		n.measured++
		n.measuredAt = body.Path
		ev.Body = &world.FilesystemMeasured{CapacityBytes: n.capacity, AvailableBytes: n.free}
	case *runtimeapi.RemoveImageRequest:
		ev.Body = &runtimeapi.RemoveImageResponse{}
		if n.onRemoval != nil {
			n.onRemoval()
		}
		if n.failing != "RemoveImage" {
			n.removed = append(n.removed, body.Image.Image)
			n.free += int64(n.images[body.Image.Image])
			delete(n.images, body.Image.Image)
		}
	}
	if record.Call == n.failing {
		ev.Body, ev.Err = nil, world.Errorf(world.KindInternal, record.Call, "fails")
	}
	n.out.Reset(&n.table, n.now)
	n.c.HandleCompletion(record, ev, n.env())
}

// The image that was not used for the longest time is removed first, until the usage is at the low
// threshold. Used, pinned and new images stay, and those that a pod only names.
func TestRemovesBySpace(t *testing.T) {
	n := newNode(defaults)
	n.containers = []string{"a", "b"}
	n.expect(t, 0, "")
	n.containers, n.free = []string{"a"}, 14
	n.pinned = "c"
	n.expect(t, period, "d")
	n.images["e"], n.free = 10, 11
	n.expect(t, period, "b")
	n.pods, n.free = []string{"e"}, 5
	n.expect(t, period, "")
	if want := "[FreeDiskSpaceFailed]"; fmt.Sprint(n.warnings) != want {
		t.Errorf("warnings %v, want %s", n.warnings, want)
	}
	n.expect(t, period, "")
	if want := "[FreeDiskSpaceFailed ImageGCFailed]"; fmt.Sprint(n.warnings) != want {
		t.Errorf("warnings %v, want %s", n.warnings, want)
	}
	n.pods, n.free = nil, 15
	n.expect(t, period, "e")
	if n.c.Failures != 0 {
		t.Errorf("%d failures", n.c.Failures)
	}
}

// Of images that were never used the one that was detected first is removed first.
func TestOrderOfDetection(t *testing.T) {
	n := newNode(defaults)
	n.images = map[string]uint64{"b": 10}
	n.expect(t, 0, "")
	n.images["a"] = 10
	n.expect(t, period, "")
	n.free = 14
	n.expect(t, period, "b")
}

// A pod may name an image in full that the runtime names in short.
func TestShortNameOfRuntime(t *testing.T) {
	n := newNode(defaults)
	n.registry = ""
	n.pods, n.free = []string{"docker.io/library/a"}, 0
	n.expect(t, 0, "")
	n.expect(t, period, "b c")
}

func (n *node) expect(t *testing.T, after time.Duration, want string) {
	t.Helper()
	if got := n.round(after); got != want {
		t.Fatalf("removed %q, want %q", got, want)
	}
}

// Images below the high threshold stay, whatever the low one says.
func TestKeepsBelowTheHighThreshold(t *testing.T) {
	n := newNode(defaults)
	n.free = 16
	n.expect(t, 0, "")
	n.expect(t, period, "")
	n.free = 15
	n.expect(t, period, "a")
}

// The maximum age counts from the start of the agent, the last use and the first detection.
func TestRemovesByAge(t *testing.T) {
	n := newNode(Settings{HighPercent: 100, LowPercent: 80, AgeMax: 12 * time.Minute})
	n.containers = []string{"a"}
	n.expect(t, 0, "")
	n.expect(t, period, "")
	n.containers = nil
	n.images["e"] = 1
	n.expect(t, period, "")
	n.expect(t, period, "b c d")
	n.expect(t, period, "a")
	n.expect(t, period, "e")
	if n.c.RemovedByAge != 5 || n.c.RemovedBySpace != 0 {
		t.Errorf("counted %d and %d", n.c.RemovedByAge, n.c.RemovedBySpace)
	}
}

// The age of an image counts from the creation of a container that no round has seen.
func TestUseBetweenRounds(t *testing.T) {
	n := newNode(Settings{HighPercent: 100, LowPercent: 80, AgeMax: 12 * time.Minute})
	n.expect(t, 0, "")
	n.expect(t, 2*period, "")
	n.c.NoteUse("c", n.now.Add(time.Minute))
	n.c.NoteUse("unknown", n.now)
	n.expect(t, period, "a b d")
	n.expect(t, period, "")
	n.expect(t, period, "c")
}

// While the pods of the API server are not known, images are removed for space alone.
func TestPodsUnknown(t *testing.T) {
	n := newNode(Settings{HighPercent: 85, LowPercent: 80, AgeMax: 12 * time.Minute})
	n.podsUnknown = true
	n.expect(t, 0, "")
	n.expect(t, 3*period, "")
	n.free = 15
	n.expect(t, period, "a")
	n.podsUnknown = false
	n.expect(t, period, "b c d")
}

// Images grow old while no round may remove any: what an eviction wants removed is, as soon as the
// pods are known. Images are listed at the start and once in a period meanwhile, and again soon
// after a failure.
func TestDetectsBeforePodsAreKnown(t *testing.T) {
	n := newNode(defaults)
	n.notReady, n.podsUnknown, n.failing = true, true, "ListImages"
	n.expect(t, 0, "")
	n.expect(t, retryDelay, "")
	n.expect(t, retryDelay/2, "")
	n.failing = ""
	n.expect(t, retryDelay/2, "")
	if n.lists != 3 {
		t.Errorf("images were listed %d times", n.lists)
	}
	n.c.RequestRemovalOfUnused(n.now.Add(defaults.AgeMin))
	n.expect(t, defaults.AgeMin, "")
	if n.lists != 3 || n.c.HasRemovedUnused(n.now) {
		t.Errorf("listed %d times, removed: %t", n.lists, n.c.HasRemovedUnused(n.now))
	}
	n.notReady = false
	n.expect(t, retryDelay, "a b c d")
}

// An image over the maximum age stays until it has the minimum age.
func TestMinimumAge(t *testing.T) {
	n := newNode(Settings{HighPercent: 100, AgeMin: 3 * period, AgeMax: period})
	n.expect(t, 0, "")
	n.expect(t, 2*period, "")
	n.expect(t, period, "a b c d")
}

// A runtime or kernel that lies removes nothing.
func TestInvalidCapacity(t *testing.T) {
	n := newNode(defaults)
	n.capacity, n.free = 0, 0
	n.expect(t, 0, "")
	if want := "[InvalidDiskCapacity]"; fmt.Sprint(n.warnings) != want {
		t.Errorf("warnings %v, want %s", n.warnings, want)
	}
	n.capacity, n.free = 100, 1000
	n.expect(t, period, "")
	if len(n.warnings) != 0 || n.c.Failures != 0 {
		t.Errorf("warnings %v", n.warnings)
	}
}

// A removal that fails has an unknown outcome: the image stays known, others are tried, the next
// round begins with a list.
func TestFailedRemoval(t *testing.T) {
	n := newNode(defaults)
	n.expect(t, 0, "")
	n.free, n.failing = 1, "RemoveImage"
	n.expect(t, period, "")
	if n.c.Failures != 1 || len(n.c.Records) != 4 {
		t.Errorf("%d failures, %d images", n.c.Failures, len(n.c.Records))
	}
	n.failing = ""
	n.expect(t, period, "a b")
}

// With the collection off, images are detected all the same: an eviction removes those that are not
// new.
func TestDetectsWhileOff(t *testing.T) {
	n := newNode(Settings{HighPercent: 100, AgeMin: 2 * time.Minute})
	n.failing = "ListImages"
	n.expect(t, 0, "")
	n.expect(t, period, "")
	if len(n.warnings) > 0 {
		t.Errorf("warnings %v", n.warnings)
	}
	n.failing, n.free = "", 1
	n.expect(t, period, "")
	n.images["e"] = 1
	n.now = n.now.Add(3 * time.Minute)
	n.c.RequestRemovalOfUnused(n.now)
	n.expect(t, 0, "a b c d")
}

// An eviction has everything unused removed, also below the thresholds and with the collection off,
// and learns when that is done.
func TestRemovalOfUnused(t *testing.T) {
	n := newNode(Settings{HighPercent: 100})
	n.expect(t, 0, "")
	n.containers = []string{"a"}
	n.now = n.now.Add(time.Minute)
	n.c.RequestRemovalOfUnused(n.now)
	if n.c.HasRemovedUnused(n.now) {
		t.Error("done before it began")
	}
	wanted := n.now
	n.expect(t, 0, "b c d")
	if !n.c.HasRemovedUnused(wanted) {
		t.Error("not done")
	}
	n.c.RequestRemovalOfUnused(n.now.Add(time.Minute))
	n.failing = "ListImages"
	n.expect(t, time.Minute, "")
	if !n.c.HasRemovedUnused(n.now) {
		t.Error("an eviction waits for a runtime that fails")
	}
}

// A request that comes while a round removes everything unused has another round: what became
// unused meanwhile may be missing in the first one.
func TestRequestDuringRound(t *testing.T) {
	n := newNode(defaults)
	n.expect(t, 0, "")
	n.containers = []string{"a"}
	n.now = n.now.Add(3 * time.Minute)
	n.c.RequestRemovalOfUnused(n.now)
	n.onRemoval = func() {
		n.onRemoval = func() {}
		n.containers, n.now = nil, n.now.Add(time.Second)
		n.c.RequestRemovalOfUnused(n.now)
		n.now = n.now.Add(time.Second)
	}
	n.expect(t, 0, "b c d a")
	n.failing, n.images["e"] = "RemoveImage", 1
	n.expect(t, period, "")
	n.now = n.now.Add(3 * time.Minute)
	n.measured = 0
	n.c.RequestRemovalOfUnused(n.now)
	if n.expect(t, 0, ""); n.measured > 0 || n.c.Failures != 0 {
		t.Errorf("a removal fails: measured %d times, %d failures", n.measured, n.c.Failures)
	}
}

// Rounds for evictions neither delay nor replace the others: an administrator hears what space
// cannot be freed also while the node evicts pods again and again.
func TestEvictionsDelayNoRound(t *testing.T) {
	n := newNode(defaults)
	n.containers, n.free = []string{"a", "b", "c", "d"}, 5
	warnings := ""
	for range 24 {
		n.c.RequestRemovalOfUnused(n.now)
		n.round(30 * time.Second)
		warnings += fmt.Sprint(n.warnings)
	}
	if strings.Count(warnings, "FreeDiskSpaceFailed") != 3 {
		t.Errorf("events %s, want three in twelve minutes", warnings)
	}
}

// A removal by age that fails is no reason to keep others from an eviction.
func TestEvictionAfterFailedRemovalByAge(t *testing.T) {
	n := newNode(Settings{HighPercent: 100, AgeMax: time.Minute})
	n.expect(t, 0, "")
	n.now, n.failing = n.now.Add(2*time.Minute), "RemoveImage"
	n.onRemoval = func() { n.failing = "" }
	n.c.RequestRemovalOfUnused(n.now)
	n.expect(t, 0, "a b c d")
	if n.c.RemovedByAge != 0 {
		t.Errorf("%d removed by age", n.c.RemovedByAge)
	}
}

// A pod that is not being started keeps its image, but not from an eviction.
func TestImagesOfWaitingPods(t *testing.T) {
	n := newNode(defaults)
	n.pods, n.waiting, n.free = []string{"a"}, []string{"b"}, 1
	n.round(0)
	if got := n.round(period); got != "c d" {
		t.Errorf("removed %q without an eviction", got)
	}
	n.c.RequestRemovalOfUnused(n.now.Add(time.Second))
	if got := n.round(time.Second); got != "b" {
		t.Errorf("removed %q before an eviction", got)
	}
}

// While the removal of an image is in flight, it is known by each of its names, and no other is.
func TestImageThatIsBeingRemoved(t *testing.T) {
	n := newNode(defaults)
	n.pods, n.free = []string{"b", "c", "d"}, 1
	n.round(0)
	removals := 0
	n.onRemoval = func() {
		removals++
		for _, ref := range []string{"a", "a:latest", "docker.io/library/a", "a@" + digest,
			"docker.io/library/a@" + digest} {
			if !n.c.IsRemoving(ref) {
				t.Errorf("%s is not being removed", ref)
			}
		}
		for _, ref := range []string{"b", "a:other", "other/a:latest", "b@" + digest} {
			if n.c.IsRemoving(ref) {
				t.Errorf("%s is being removed", ref)
			}
		}
	}
	if got := n.round(period); got != "a" || removals != 1 || n.c.IsRemoving("a") {
		t.Errorf("removed %q", got)
	}
}
