package devicemount

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

const blocksDir = "/k/plugins/blocks"

// blocks plans block volumes against a disk of a few lines.
type blocks struct {
	t       *testing.T
	b       *Blocks
	table   op.Table
	effects op.Effects
	now     time.Time
	known   []string            // pods
	files   map[string][]string // by directory
	fail    map[string]int      // by call: how often it fails
	hold    string              // a call that is left in flight
	cleans  bool
	calls   []string
	all     []string // those of earlier runs
	planned []string // pods
	wake    time.Time
}

func newBlocks(t *testing.T) *blocks {
	return &blocks{t: t, now: t0, cleans: true, b: &Blocks{Dir: blocksDir, PodsDir: "/k/pods",
		Search: BlockSearch{TableSeen: true}},
		files: map[string][]string{}, fail: map[string]int{}}
}

func (w *blocks) env() *BlocksEnv {
	return &BlocksEnv{Effects: &w.effects, CleansUp: w.cleans,
		IsKnownPod: func(uid string) bool { return slices.Contains(w.known, uid) },
		EnqueuePod: func(uid string) { w.planned = append(w.planned, uid) }}
}

// run plans and completes operations until none is left but those that are held, and returns the
// calls.
func (w *blocks) run() string {
	w.t.Helper()
	w.all, w.calls = append(w.all, w.calls...), nil
	for range 100 {
		w.effects.Reset(&w.table, w.now)
		w.wake = w.b.Plan(w.env())
		answered := false
		for _, eff := range w.effects.List() {
			if eff.Op == 0 {
				continue
			}
			w.calls = append(w.calls, describeCall(eff.Body))
			if call := world.CallName(eff.Body); call != w.hold {
				answered = true
				w.complete(eff)
			}
		}
		if !answered {
			return strings.Join(w.calls, ", ")
		}
	}
	w.t.Fatalf("more than 100 operations: %v", w.calls)
	return ""
}

// complete completes an operation.
func (w *blocks) complete(eff world.Effect) {
	r, _ := w.table.Complete(eff.Op)
	ev := world.Event{Time: w.now, Op: eff.Op, Body: &world.Done{}}
	list, isList := eff.Body.(*world.ListDir)
	switch {
	case w.fail[r.Call] > 0:
		w.fail[r.Call]--
		ev.Body, ev.Err = nil, world.Errorf(world.KindInternal, r.Call, "EIO")
	case isList && w.files[list.Path] == nil:
		ev.Body, ev.Err = nil, world.Errorf(world.KindNotFound, r.Call, "no such directory")
	case isList:
		listed := &world.DirListed{}
		for _, name := range w.files[list.Path] {
			listed.Entries = append(listed.Entries,
				world.DirEntry{Name: name, Directory: list.Path == blocksDir})
		}
		ev.Body = listed
	}
	var effects op.Effects
	effects.Reset(&w.table, w.now)
	env := w.env()
	env.Effects = &effects
	w.b.HandleCompletion(eff.Op, r, ev, env)
}

func describeCall(body any) string {
	at := ""
	switch c := body.(type) {
	case *world.ListDir:
		at = c.Path
	case *world.RemoveTree:
		at = c.Path
	case *world.ReleaseDevice:
		at = c.Path
	case *world.Unmount:
		at = c.Path
	}
	at = strings.ReplaceAll(at, blocksDir, "B")
	return world.CallName(body) + " " +
		strings.ReplaceAll(at, "/volumeDevices/kubernetes.io~local-volume", "")
}

// taken is how a device is taken from a pod.
func taken(volume, uid string) string {
	return fmt.Sprintf("RemoveTree /k/pods/%[2]s/%[1]s, ReleaseDevice B/%[1]s/%[2]s, "+
		"Unmount B/%[1]s/%[2]s, RemoveTree B/%[1]s/%[2]s", volume, uid)
}

func (w *blocks) expect(want ...string) {
	w.t.Helper()
	if got := w.run(); got != strings.Join(want, ", ") {
		w.t.Errorf("%s\nwant %s", got, strings.Join(want, ", "))
	}
}

// A pod that ends waits until its device is taken away, in an order in which no mount is busy and
// no file is removed below a mount; the directory of the volume goes with the last pod.
func TestDeviceIsTakenFromItsPod(t *testing.T) {
	w := newBlocks(t)
	w.known = []string{"u1", "u2"}
	w.b.Use("u1", "pv")
	w.b.Use("u2", "pv")
	w.expect("")
	if !w.b.Release("u1", true) {
		t.Error("the pod does not wait")
	}
	w.expect("ListDir B, " + taken("pv", "u1"))
	if w.b.Release("u1", true) || !slices.Contains(w.planned, "u1") {
		t.Errorf("the pod waits for nothing, planned: %v", w.planned)
	}
	if !w.b.Holds("u2") || w.b.Holds("u1") {
		t.Errorf("bound: %+v", w.b.Volumes)
	}
	w.b.Release("u2", true)
	w.expect(taken("pv", "u2"), "RemoveTree B/pv")
	if w.b.IsActive() {
		t.Errorf("left: %+v", w.b.Volumes)
	}
}

// What an earlier agent or a kubelet has bound is found by the directories, also after a loss of
// power. The pod may be known, and its persistent volume need not exist any more.
func TestDevicesOfEarlierAgents(t *testing.T) {
	w := newBlocks(t)
	w.known = []string{"ends", "runs"}
	w.files[blocksDir] = []string{"empty", "pv"}
	w.files[blocksDir+"/empty"] = []string{}
	w.files[blocksDir+"/pv"] = []string{"ends", "gone", "runs"}
	if !w.b.Release("ends", true) {
		t.Error("the pod does not wait until it is known what it has")
	}
	for call := range strings.SplitSeq(taken("pv", "gone")+", RemoveTree B/empty", ", ") {
		if got := w.run() + strings.Join(w.all, ", "); !strings.Contains(got, call) {
			t.Errorf("%s, want %s", got, call)
		}
	}
	if w.b.Holds("gone") || !w.b.Holds("runs") {
		t.Errorf("bound: %+v", w.b.Volumes["pv"].Bound)
	}
	if !slices.Contains(w.planned, "ends") {
		t.Error("the pod is not planned after the search")
	}
	w.b.Release("ends", true)
	w.expect(taken("pv", "ends"))
	w.known = nil // the other one has gone without a trace
	w.expect(taken("pv", "runs"), "RemoveTree B/pv")
}

// A mount of a pod of which nothing is left is found in the mount table.
func TestDeviceInMountTable(t *testing.T) {
	w := newBlocks(t)
	mounts := []world.Mount{{Path: blocksDir + "/pv/u"}, {Path: blocksDir + "/pv/u/below"},
		{Path: "/k/pods/u"}, {Path: blocksDir + "/pv"}}
	w.cleans = false
	w.b.NoteMounts(mounts, w.env().EnqueuePod)
	if len(w.b.Volumes) != 1 || !w.b.Holds("u") || w.b.Holds("below") {
		t.Errorf("found %+v", w.b.Volumes)
	}
	w.expect("ListDir B")
	w.cleans = true
	w.expect(taken("pv", "u"), "RemoveTree B/pv")
}

// A failure of any step has all of them repeated, later: what has happened is not known.
func TestFailedRemovalOfDevice(t *testing.T) {
	steps := strings.Split(taken("pv", "u"), ", ")
	for i, call := range []string{"RemoveTree", "ReleaseDevice", "Unmount"} {
		w := newBlocks(t)
		w.b.Search.Complete = true
		w.b.Use("u", "pv")
		w.fail[call] = 1
		w.expect(steps[:i+1]...)
		if w.wake != t0.Add(backoffFirst) || !w.b.Holds("u") {
			t.Errorf("%s: planned again at %v", call, w.wake)
		}
		w.now = w.wake
		w.expect(append(steps, "RemoveTree B/pv")...)
	}
}

// A search that fails is repeated, and the pod waits.
func TestFailedSearchForDevices(t *testing.T) {
	w := newBlocks(t)
	w.known = []string{"u"}
	w.fail["ListDir"] = 2
	w.b.Release("u", true)
	w.expect("ListDir B")
	if !w.b.Release("u", true) || len(w.planned) > 0 {
		t.Error("the pod does not wait")
	}
	w.now = w.wake
	w.expect("ListDir B")
	w.now = w.wake
	w.expect("ListDir B")
	if w.b.Release("u", true) || !slices.Equal(w.planned, []string{"u"}) {
		t.Errorf("planned: %v", w.planned)
	}
}

// A pod whose spec is not known waits for the mount table, not for the search, but has that made.
func TestOrphanHasDevicesSearched(t *testing.T) {
	w := newBlocks(t)
	w.b.Search.TableSeen = false
	if !w.b.Release("u", false) || !w.b.Holds("u") {
		t.Error("the orphan does not wait for the mount table")
	}
	w.b.NoteMounts(nil, w.env().EnqueuePod)
	if w.b.Release("u", false) || !slices.Equal(w.planned, []string{"u"}) || !w.b.IsActive() {
		t.Errorf("the orphan waits, or nothing is searched; planned: %v", w.planned)
	}
	w.expect("ListDir B")
}

// A pod that comes back during a removal keeps its device, whatever the operation in flight is.
func TestDeviceIsUsedAgain(t *testing.T) {
	for _, call := range []string{"RemoveTree", "ReleaseDevice", "Unmount"} {
		w := newBlocks(t)
		w.known, w.hold, w.b.Search.Complete = []string{"u"}, call, true
		w.b.Use("u", "pv")
		w.b.Release("u", true)
		w.run()
		w.b.Use("u", "pv")
		eff := world.Effect{Op: w.b.Volumes["pv"].Bound["u"].Removal.Op, Body: &world.Unmount{}}
		w.complete(eff)
		w.hold = ""
		w.expect("")
		if !w.b.Holds("u") {
			t.Errorf("%s: the device is not known any more", call)
		}
		w.b.Release("u", true)
		w.expect(taken("pv", "u"), "RemoveTree B/pv")
	}
}

// While the directory of a volume is removed, another pod may get the volume.
func TestVolumeIsUsedWhileItsDirectoryIsRemoved(t *testing.T) {
	w := newBlocks(t)
	w.b.Search.Complete, w.known = true, []string{"u2"}
	w.b.noteVolume("pv")
	w.hold = "RemoveTree"
	w.expect("RemoveTree B/pv")
	w.b.Use("u2", "pv")
	w.complete(world.Effect{Op: w.b.Volumes["pv"].Removal.Op, Body: &world.RemoveTree{}})
	w.hold = ""
	w.expect("")
	if !w.b.Holds("u2") {
		t.Error("the device of the other pod is not known any more")
	}
}

// A directory that cannot be removed may have a mount of which nothing is known: it is searched.
func TestDirectoryWithUnknownDevice(t *testing.T) {
	w := newBlocks(t)
	w.b.Search.Complete = true
	w.b.noteVolume("pv")
	w.fail["RemoveTree"] = 1
	w.files[blocksDir], w.files[blocksDir+"/pv"] = []string{"pv"}, []string{"u"}
	w.run()
	w.now = w.now.Add(time.Hour)
	w.run()
	if w.b.IsActive() {
		t.Errorf("left: %+v", w.b.Volumes)
	}
}

// One that hangs does not keep the others: each device has an operation of its own, within a bound.
func TestDevicesAreTakenSideBySide(t *testing.T) {
	w := newBlocks(t)
	w.b.Search.Complete, w.hold = true, "ReleaseDevice"
	for i := range removalsMax + 2 {
		w.b.Use(fmt.Sprintf("u%d", i), "pv")
	}
	w.run()
	inFlight := 0
	for _, bound := range w.b.Volumes["pv"].Bound {
		if bound.Removal.Op != 0 {
			inFlight++
		}
	}
	if inFlight != removalsMax {
		t.Errorf("%d operations in flight, want %d", inFlight, removalsMax)
	}
}
