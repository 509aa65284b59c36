package pullrecord

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// leave puts the files of so many intents of an earlier agent on the disk, of which one is for ref.
func (n *node) leave(intents int) {
	n.files["/im/pulled/"], n.files["/im/pulling/"] = "", ""
	for i := range intents - 1 {
		of := fmt.Sprint("q.io/queued:", i)
		n.files["/im/pulling/"+fileName(of)] = string(encode(
			&kubeletconfig.ImagePullIntent{Image: of}))
	}
	n.files["/im/pulling/"+fileName(ref)] = string(encode(
		&kubeletconfig.ImagePullIntent{Image: ref}))
}

// runAll plans until nothing is left to do, however much that is.
func (n *node) runAll() {
	for range filesMax {
		n.out.Reset(&n.table, n.now)
		n.store.Plan(&n.out)
		effects := slices.Clone(n.out.List())
		for _, e := range effects {
			n.complete(e)
		}
		if len(effects) == 0 && !n.store.Changed {
			return
		}
	}
	n.t.Fatal("it plans without end")
}

// More intents than are read leave an image that was on the node before to all pods, and each to
// its image alone. They are removed in their time, so the next agent reads what is left.
func TestTooManyIntents(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.leave(filesMax + 1)
	n.restart()
	n.readAgain()
	n.expect(Allowed, "q.io/preloaded", "sha256:0")
	n.expect(Denied, ref, id)
	n.expect(Denied, "q.io/queued:7", "sha256:7")
	n.pull("q.io/new", "sha256:new", secret("a", "1"))
	n.expect(Recorded, "q.io/new", "sha256:new", secret("a", "1"))
	n.now = n.now.Add(outcomeAwaited)
	n.store.Reconcile(map[string][]string{"sha256:0": {"q.io/preloaded"}}, n.now, n.now, n.now)
	n.runAll()
	if left := n.names("pulling"); len(left) > 0 || len(n.store.Intents) > 0 {
		t.Errorf("%d intents are left, %d of them on the disk", len(n.store.Intents), len(left))
	}
	n.restart()
	n.expect(Allowed, "q.io/queued:7", "sha256:7")
	n.expect(Recorded, "q.io/new", "sha256:new", secret("a", "1"))
}

// An earlier agent's intents are not dropped for their number: any may be of a pull that goes on.
func TestManyIntentsAreKept(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.leave(intentsMax + 10)
	n.restart()
	n.store.Reconcile(map[string][]string{}, n.now, n.now, n.now)
	n.runAll()
	if left := n.names("pulling"); len(left) != intentsMax+10 {
		t.Errorf("%d intents are left", len(left))
	}
	n.expect(Denied, "q.io/queued:7", "sha256:7")
}

// More records than are read leave each image that has one to those who can pull it, and others to
// all. A record counts again when its image was pulled.
func TestTooManyRecords(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.leave(1)
	for i := range filesMax + 1 {
		of := fmt.Sprint("sha256:", i)
		n.files["/im/pulled/"+fileName(of)] = string(encode(
			&kubeletconfig.ImagePulledRecord{ImageRef: of}))
	}
	n.restart()
	n.expect(Allowed, "q.io/preloaded", "sha256:x")
	n.expect(Denied, "q.io/other", "sha256:7", secret("a", "1"))
	n.pull("q.io/other", "sha256:7", secret("a", "1"))
	n.expect(Recorded, "q.io/other", "sha256:7", secret("a", "1"))
	n.store.Reconcile(map[string][]string{"sha256:7": nil}, n.now, n.now, n.now)
	n.now = n.now.Add(absenceAwaited)
	n.store.Reconcile(map[string][]string{"sha256:7": nil}, n.now, n.now, n.now)
	n.runAll()
	if left := n.names("pulled"); len(left) != 1 {
		t.Errorf("%d records are left", len(left))
	}
}

// An agent without room, such as for an open file, does not take the names for all there is.
func TestNoRoomToRead(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.pull(ref, id, secret("a", "1"))
	n.fail["ReadFiles"] = world.Errorf(world.KindExhausted, "ReadFiles", "too many open files")
	n.restart()
	n.expect(Unknown, ref, id)
	n.readAgain()
	n.expect(Denied, "q.io/preloaded", "sha256:0")
	clear(n.fail)
	n.now = n.now.Add(time.Minute)
	n.run()
	n.expect(Allowed, "q.io/preloaded", "sha256:0")
	n.expect(Recorded, ref, id, secret("a", "1"))
}

// A directory that can never be read keeps no intent that this agent has written.
func TestUnreadableDirectoryKeepsNoIntent(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.leave(1)
	n.fail["ReadFiles"] = world.Errorf(world.KindInternal, "ReadFiles", "input/output error")
	n.restart()
	n.readAgain()
	for i := range 20 {
		n.pull(fmt.Sprint("q.io/", i), fmt.Sprint("sha256:", i), secret("a", "1"))
	}
	if left := n.names("pulling"); len(left) != 1 || len(n.store.Intents) > 0 {
		t.Errorf("%d intents are left, on the disk %d with that of an earlier agent",
			len(n.store.Intents), len(left))
	}
}

// However many pulls are to begin, a few intents are written at once, each for its pod. The others
// ask again.
func TestFewWritesAtOnce(t *testing.T) {
	n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
	n.leave(1)
	n.restart()
	n.held = true
	waiting := 0
	for i := range 100 {
		of := fmt.Sprint("q.io/", i)
		if _, until := n.store.Begin(of, of, "pod", n.now); until.After(n.now) {
			waiting++
		}
	}
	n.run()
	writes := slices.Clone(n.out.List())
	if len(writes) != lineMax || waiting != 100-pendingMax {
		t.Errorf("%d writes at once, %d pulls wait", len(writes), waiting)
	}
	for _, e := range writes {
		if e.Tenant != "pod" {
			t.Errorf("%T for %q", e.Body, e.Tenant)
		}
	}
	n.held = false
	n.complete(writes[0])
	if n.canBegin("q.io/99", "q.io/99") || len(n.store.Pending) != pendingMax {
		t.Errorf("%d intents are pending", len(n.store.Pending))
	}
	for i := range OwnMax {
		n.store.putIntent(fileName(fmt.Sprint("q.io/own-", i)), fmt.Sprint("q.io/own-", i),
			&Intent{BeganAt: n.now})
	}
	n.store.Pending = nil
	if _, until := n.store.Begin("q.io/more", "", "", n.now); !until.After(n.now) {
		t.Errorf("%d intents, and one more", len(n.store.Intents))
	}
}

// A completion costs as much with many files that wait as with few.
func TestCompletionsCostTheSame(t *testing.T) {
	cost := func(removals int) uint64 {
		n := newNode(t, kubeletconfig.NeverVerifyPreloadedImages)
		n.leave(removals)
		n.restart()
		n.held = true
		n.now = n.now.Add(outcomeAwaited)
		n.store.Reconcile(map[string][]string{}, n.now, n.now, n.now)
		n.run()
		first := slices.Clone(n.out.List())
		if len(first) != lineMax {
			t.Fatalf("%d removals at once", len(first))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		n.complete(first[0])
		n.run()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	cost(100)
	if few, many := cost(100), cost(10_000); many > 4*few {
		t.Errorf("%d bytes are allocated with 100 files that wait, %d with 10,000", few, many)
	}
}

// The counts of damaged intents and of those of earlier agents are right, whatever happens.
func (s *Store) wrongCounts() string {
	damaged, earlier := 0, 0
	for _, i := range s.Intents { //ordered: counts
		if i.Image == "" {
			damaged++
		}
		if i.BeganAt.IsZero() {
			earlier++
		}
	}
	if damaged != s.Damaged || earlier != s.Earlier {
		return fmt.Sprintf("%d damaged and %d earlier intents are counted as %d and %d", damaged,
			earlier, s.Damaged, s.Earlier)
	}
	return ""
}
