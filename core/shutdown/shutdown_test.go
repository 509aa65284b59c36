package shutdown

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// harness plans a manager with two groups, of 20 s and 10 s.
type harness struct {
	t           *testing.T
	m           Manager
	now         time.Time
	effects     op.Effects
	table       op.Table
	pods        [][]string // of each group, those that have not ended
	endedBefore [][]string // and those that have
	ended       []int      // groups that were ended
	reported    bool
	unlisted    bool
	issuedAt    map[string]time.Time // the newest request, by call
	delayFor    time.Duration        // asked of logind
	written     *world.WriteFile     // the newest write of the state file
}

func newHarness(t *testing.T) *harness {
	c := &kubeletconfig.KubeletConfiguration{
		ShutdownGracePeriod:             metav1.Duration{Duration: 30 * time.Second},
		ShutdownGracePeriodCriticalPods: metav1.Duration{Duration: 10 * time.Second},
	}
	return &harness{t: t, m: New(c, "/f"), now: t0, reported: true, issuedAt: map[string]time.Time{},
		pods: [][]string{{"a", "b"}, {"c"}}, endedBefore: make([][]string, 2)}
}

// plan plans until no effect is issued, and returns the calls and until when to wait, in seconds
// since t0.
func (h *harness) plan() (calls string, wake int) {
	h.effects.Reset(&h.table, h.now)
	at := h.m.Plan(&Env{Effects: &h.effects, Listed: !h.unlisted,
		IsReported: func(string) bool { return h.reported },
		EndGroup: func(group int, _ time.Duration) (running, ended []string) {
			h.ended = append(h.ended, group)
			return slices.Clone(h.pods[group]), h.endedBefore[group]
		}})
	var names []string
	for _, eff := range h.effects.List() {
		if call := world.CallName(eff.Body); call != "Log" {
			names = append(names, call)
			h.issuedAt[call] = h.now
		}
		switch body := eff.Body.(type) {
		case *world.DelayShutdown:
			h.delayFor = body.AtLeast
		case *world.WriteFile:
			h.written = body
		}
	}
	if !at.IsZero() {
		wake = int(at.Sub(t0).Seconds())
	}
	return strings.Join(names, " "), wake
}

func (h *harness) expect(want string, wantWake int) {
	h.t.Helper()
	if calls, wake := h.plan(); calls != want || wake != wantWake {
		h.t.Errorf("planned %q until %d, want %q until %d", calls, wake, want, wantWake)
	}
}

// complete completes an operation.
func (h *harness) complete(call string, body any, kind world.ErrorKind) bool {
	h.t.Helper()
	h.effects.Reset(&h.table, h.now)
	ev := world.Event{Time: h.now, Body: body}
	if kind != "" {
		ev.Body, ev.Err = nil, world.Errorf(kind, call, "failed")
	}
	r := op.Record{Owner: Owner, Call: call, IssuedAt: h.issuedAt[call]}
	return h.m.HandleCompletion(r, ev, &h.effects)
}

func (h *harness) announce(cancelled bool) bool {
	h.effects.Reset(&h.table, h.now)
	return h.m.HandleAnnouncement(&world.MachineShutdown{Cancelled: cancelled}, &h.effects)
}

func (h *harness) wait(seconds int) { h.now = h.now.Add(time.Duration(seconds) * time.Second) }

// boot reads a state file and takes the lock.
func (h *harness) boot(file string) {
	h.t.Helper()
	h.expect("ReadFiles DelayShutdown", 0)
	if file == "" {
		h.complete("ReadFiles", nil, world.KindNotFound)
		return
	}
	h.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: []byte(file)}}}, "")
}

// bootWithLock finds no state file and is given the lock.
func (h *harness) bootWithLock() {
	h.t.Helper()
	h.boot("")
	h.complete("DelayShutdown", &world.ShutdownDelayed{Max: time.Minute}, "")
}

func TestGroups(t *testing.T) {
	h := newHarness(t)
	for priority, want := range map[int32]int{-5: 0, 0: 0, 1_999_999_999: 0, 2_000_000_000: 1,
		2_000_001_000: 1} {
		if got := h.m.GroupOf(priority); got != want {
			t.Errorf("priority %d is in group %d, want %d", priority, got, want)
		}
	}
	c := &kubeletconfig.KubeletConfiguration{}
	c.ShutdownGracePeriodByPodPriority = []kubeletconfig.ShutdownGracePeriodByPodPriority{
		{Priority: 100, ShutdownGracePeriodSeconds: 7}, {Priority: -10, ShutdownGracePeriodSeconds: 3}}
	m := New(c, "/f")
	if m.Total() != 10*time.Second || m.GroupOf(-20) != 0 || m.GroupOf(99) != 0 ||
		m.GroupOf(100) != 1 {
		t.Errorf("groups %+v", m.Groups)
	}
	c.FeatureGates = map[string]bool{"GracefulNodeShutdown": false}
	if m := New(c, "/f"); m.Enabled() {
		t.Error("enabled without its feature gate")
	}
	if m := New(&kubeletconfig.KubeletConfiguration{}, "/f"); m.Enabled() {
		t.Error("enabled without a period")
	}
}

// The groups end one after the other; the lock is released when the last statuses are written and
// the end of the shutdown is on the disk.
func TestShutdown(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.expect("", 0)
	h.reported = false
	if !h.announce(false) || h.announce(false) {
		t.Error("one announcement is news")
	}
	h.expect("WriteFile", 20)
	h.complete("WriteFile", &world.Done{}, "")
	h.wait(5)
	if h.m.PodEnded("x") || !h.m.PodEnded("a") || h.m.PodEnded("a") {
		t.Error("a pod ends once")
	}
	h.expect("", 20)
	h.m.PodEnded("b")
	h.expect("", 15)
	h.wait(10) // the last pod does not end in time
	h.expect("", 30)
	h.reported = true
	h.expect("", 30)
	h.m.PodEnded("c")
	h.expect("WriteFile", 30)
	h.complete("WriteFile", &world.Done{}, "")
	h.expect("PermitShutdown", 0)
	h.complete("PermitShutdown", nil, world.KindInternal)
	h.expect("", 16)
	h.wait(1)
	h.expect("PermitShutdown", 0)
	h.complete("PermitShutdown", &world.Done{}, "")
	h.expect("", 76)
	if !slices.Equal(h.ended, []int{0, 1}) || !h.m.Now.Released || h.m.Lock.Held {
		t.Errorf("ended %v, %+v", h.ended, h.m.Now)
	}
	if !h.announce(true) || h.m.UnderWay() {
		t.Error("not cancelled")
	}
	h.expect("DelayShutdown", 0)
}

// logind is asked to wait for all groups. The state file has the kubelet's name and format.
func TestDelayAndFile(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.announce(false)
	h.plan()
	if h.delayFor != 30*time.Second {
		t.Errorf("the shutdown is delayed for %v, want 30 s", h.delayFor)
	}
	const want = `{"startTime":"2026-01-01T00:00:00Z","endTime":"0001-01-01T00:00:00Z"}`
	if h.written.Path != "/f" || string(h.written.Data) != want || FileName !=
		"graceful_node_shutdown_state" {
		t.Errorf("%s is %s, want %s", h.written.Path, h.written.Data, want)
	}
	h = newHarness(t)
	h.boot(`{"startTime":"2025-12-31T23:59:50Z","endTime":"0001-01-01T00:00:00Z"}`)
	h.complete("DelayShutdown", nil, world.KindConflict)
	if start := h.m.Now.StartedAt; !start.Equal(t0.Add(-10 * time.Second)) {
		t.Errorf("the shutdown goes on since %v, want 10 s before", start)
	}
}

// An agent that does not know all pods keeps the lock until the time of all groups has passed.
func TestUnlistedPodsAreWaitedFor(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.pods, h.unlisted = [][]string{nil, nil}, true
	h.announce(false)
	h.expect("WriteFile", 20)
	h.complete("WriteFile", &world.Done{}, "")
	h.m.Now.Await("late", 0) // it becomes known
	h.wait(10)
	h.expect("", 20)
	h.m.PodEnded("late")
	h.wait(10)
	h.expect("", 30)
	h.wait(10)
	h.expect("WriteFile PermitShutdown", 0)
	if !slices.Equal(h.ended, []int{0, 1}) {
		t.Errorf("ended groups: %v", h.ended)
	}
}

// A group that was reached before all pods were known is ended once more when they are, and has its
// period then, but no longer than leaves the later groups theirs.
func TestPodsAreListedWhileTheirGroupEnds(t *testing.T) {
	for _, listedAfter := range []int{1, 6, 18} {
		h := newHarness(t)
		h.bootWithLock()
		h.pods, h.unlisted = [][]string{nil, {"c"}}, true
		h.announce(false)
		h.expect("WriteFile", 20)
		h.complete("WriteFile", &world.Done{}, "")
		h.wait(listedAfter)
		h.pods[0], h.unlisted = []string{"a"}, false
		h.expect("", 20)
		if !slices.Equal(h.ended, []int{0, 0}) {
			t.Errorf("ended groups: %v", h.ended)
		}
		h.m.PodEnded("a")
		h.expect("", listedAfter+10)
		if !slices.Equal(h.ended, []int{0, 0, 1}) {
			t.Errorf("ended groups: %v", h.ended)
		}
	}
}

// A group of a short period has it when its pods become known in the first ten seconds.
func TestPodsOfAShortGroupAreListed(t *testing.T) {
	h := newHarness(t)
	h.m.Groups[0].Period = 3 * time.Second
	h.bootWithLock()
	h.pods, h.unlisted = [][]string{nil, {"c"}}, true
	h.announce(false)
	h.expect("WriteFile", 10)
	h.complete("WriteFile", &world.Done{}, "")
	h.wait(6)
	h.pods[0], h.unlisted = []string{"a"}, false
	h.expect("", 9)
	h.wait(3)
	h.expect("", 19)
}

// A disk that takes no state file does not delay the shutdown beyond three attempts.
func TestStateFileThatCannotBeWritten(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.pods = [][]string{nil, {"c"}}
	h.announce(false)
	for range failuresMax {
		h.expect("WriteFile", 10)
		h.complete("WriteFile", nil, world.KindExhausted)
	}
	h.expect("", 10)
	h.m.PodEnded("c")
	for range failuresMax {
		h.expect("WriteFile", 30)
		h.complete("WriteFile", nil, world.KindExhausted)
	}
	h.expect("PermitShutdown", 0)
}

// A group without pods takes no time, and the lock is released at the end of all periods whatever
// is missing.
func TestShutdownAtItsDeadline(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.pods[0], h.endedBefore[0], h.reported = nil, []string{"a"}, false
	h.announce(false)
	h.expect("WriteFile", 10)
	h.m.PodEnded("c")
	h.expect("", 30)
	h.wait(30)
	h.expect("PermitShutdown", 0) // the write still hangs
}

// A cancellation in the middle keeps the lock.
func TestCancellation(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	if h.announce(true) {
		t.Error("nothing was under way")
	}
	h.announce(false)
	h.expect("WriteFile", 20)
	h.announce(true)
	h.complete("WriteFile", &world.Done{}, "")
	h.expect("WriteFile", 0)
	if h.m.UnderWay() || !h.m.Lock.Held || h.m.File.Content.EndTime.IsZero() {
		t.Errorf("%+v", h.m)
	}
}

// An agent that is started in the middle admits no pod before logind has answered, and goes on with
// the time that the state file gives.
func TestRestartInTheMiddle(t *testing.T) {
	started, err := json.Marshal(Content{StartTime: t0.Add(-4 * time.Second)})
	if err != nil {
		t.Fatal(err)
	}
	h := newHarness(t)
	if !h.m.Undecided() {
		t.Error("decided before the state file was read")
	}
	h.boot(string(started))
	if !h.m.Undecided() {
		t.Error("decided before logind has answered")
	}
	if !h.complete("DelayShutdown", nil, world.KindConflict) || h.m.Undecided() || !h.m.UnderWay() {
		t.Errorf("no shutdown: %+v", h.m)
	}
	h.expect("", 20)
	h.wait(26)
	h.pods[1] = nil
	h.expect("WriteFile PermitShutdown", 0) // 30 s are over since it began

	h = newHarness(t)
	h.boot(string(started))
	if h.complete("DelayShutdown", &world.ShutdownDelayed{}, "") || h.m.Undecided() || h.m.UnderWay() {
		t.Error("the machine has gone down and come back, and a shutdown is still under way")
	}
	if h.expect("", 0); !h.m.File.Content.EndTime.IsZero() {
		t.Errorf("a shutdown that did not end has an end: %+v", h.m.File)
	}
	h.announce(false)
	if h.expect("WriteFile", 20); !h.m.Now.StartedAt.Equal(h.now) {
		t.Errorf("the next shutdown goes on with the time of the last: %+v", h.m.Now)
	}

	h = newHarness(t) // the file is read after that
	h.expect("ReadFiles DelayShutdown", 0)
	h.complete("DelayShutdown", &world.ShutdownDelayed{}, "")
	h.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: started}}}, "")
	if h.expect("", 0); h.m.File.isUnfinished() {
		t.Errorf("%+v", h.m.File)
	}

	h = newHarness(t) // or after a shutdown has started
	h.expect("ReadFiles DelayShutdown", 0)
	h.announce(false)
	h.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: started}}}, "")
	if h.expect("WriteFile", 20); !h.m.File.Writing.StartTime.Equal(t0) {
		t.Errorf("the start is not recorded: %+v", h.m.File)
	}

}

// Pods do not wait for ever for a logind that never answers. While the state file says that a
// shutdown may be under way, they wait for as long as its groups may take.
func TestNoAnswer(t *testing.T) {
	for _, c := range []struct {
		name    string
		content Content
		waits   bool
	}{
		{"no shutdown", Content{}, false},
		{"one that has started", Content{StartTime: t0.Add(-4 * time.Second)}, true},
		{"one that has ended",
			Content{StartTime: t0.Add(-4 * time.Second), EndTime: t0.Add(-2 * time.Second)}, false},
		{"one that started long ago", Content{StartTime: t0.Add(-30 * time.Second)}, false},
		{"one that is to start", Content{StartTime: t0.Add(4 * time.Second)}, false},
	} {
		file, err := json.Marshal(c.content)
		if err != nil {
			t.Fatal(err)
		}
		h := newHarness(t)
		h.boot(string(file))
		for range 3 {
			if !h.m.Undecided() {
				t.Errorf("%s: decided too early", c.name)
			}
			h.complete("DelayShutdown", nil, world.KindUnavailable)
		}
		if h.m.Undecided() != c.waits {
			t.Errorf("%s: undecided: %t", c.name, !c.waits)
		}
		h.wait(26)
		h.complete("DelayShutdown", nil, world.KindUnavailable)
		if h.m.Undecided() {
			t.Errorf("%s: undecided after the time of all groups", c.name)
		}
	}
}

// Logind has half a minute to answer.
func TestLogindHasHalfAMinute(t *testing.T) {
	h := newHarness(t)
	h.plan()
	asked := 0
	for _, eff := range h.effects.List() {
		if _, is := eff.Body.(*world.DelayShutdown); is {
			asked++
			if want := t0.Add(30 * time.Second); !eff.Deadline.Equal(want) {
				t.Errorf("until %v, want %v", eff.Deadline, want)
			}
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

func (h *harness) loseConnection() {
	h.effects.Reset(&h.table, h.now)
	h.m.HandleUnwatched(&world.ShutdownUnwatched{Reason: "gone"}, &h.effects)
}

// A lost connection is made again; a damaged state file counts as empty.
func TestLostConnection(t *testing.T) {
	h := newHarness(t)
	h.boot("{")
	h.complete("DelayShutdown", &world.ShutdownDelayed{Max: time.Minute}, "")
	if h.m.Undecided() || h.m.UnderWay() || !h.m.Lock.Held {
		t.Errorf("%+v", h.m)
	}
	h.loseConnection()
	h.expect("", 1)
	h.wait(1)
	h.expect("DelayShutdown", 0)
	h.complete("DelayShutdown", nil, world.KindUnavailable)
	h.expect("", 2)
}

// The lock is taken again if the shutdown is cancelled while it is being released.
func TestCancellationWhileReleasing(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.pods = [][]string{nil, nil}
	h.announce(false)
	h.expect("WriteFile", 30)
	h.complete("WriteFile", &world.Done{}, "")
	h.expect("WriteFile", 30)
	h.complete("WriteFile", &world.Done{}, "")
	h.expect("PermitShutdown", 0)
	h.announce(true)
	h.expect("", 0)
	h.complete("PermitShutdown", &world.Done{}, "")
	h.expect("DelayShutdown", 0)
}

// Failures to release the lock do not delay the release in the next shutdown.
func TestReleaseAfterFailuresOfBefore(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.pods = [][]string{nil, nil}
	release := func() {
		t.Helper()
		until := int(h.now.Sub(t0)/time.Second) + 30
		h.announce(false)
		h.expect("WriteFile", until)
		h.complete("WriteFile", &world.Done{}, "")
		h.expect("WriteFile", until)
		h.complete("WriteFile", &world.Done{}, "")
		h.expect("PermitShutdown", 0)
	}
	release()
	for range 4 {
		h.complete("PermitShutdown", nil, world.KindInternal)
		h.plan()
		h.wait(8)
		h.expect("PermitShutdown", 0)
	}
	h.complete("PermitShutdown", nil, world.KindInternal)
	h.plan()
	h.announce(true)
	h.plan()
	release()
}

// A cancellation that was missed is noticed, since logind gives the lock again.
func TestMissedCancellation(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.pods = [][]string{nil, nil}
	h.announce(false)
	h.wait(30)
	h.expect("WriteFile PermitShutdown", 0)
	h.complete("PermitShutdown", &world.Done{}, "")
	h.complete("WriteFile", &world.Done{}, "")
	h.wait(60)
	h.expect("WriteFile DelayShutdown", 0) // the file has the start, and gets the end
	h.complete("WriteFile", &world.Done{}, "")
	if h.complete("DelayShutdown", nil, world.KindConflict) || !h.m.UnderWay() {
		t.Error("the machine still shuts down")
	}
	h.expect("", 150)
	h.wait(60)
	h.expect("DelayShutdown", 0)
	if !h.complete("DelayShutdown", &world.ShutdownDelayed{Max: time.Minute}, "") ||
		h.m.UnderWay() || !h.m.Lock.Held {
		t.Errorf("the machine stays up: %+v", h.m)
	}
}

// A connection that is lost when the lock is released is made again by its back-off, and not a
// minute later: the shutdown may have been cancelled meanwhile.
func TestReleaseWithoutConnection(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.pods = [][]string{nil, nil}
	h.announce(false)
	h.loseConnection()
	h.wait(30)
	h.expect("WriteFile PermitShutdown DelayShutdown", 0)
	h.complete("WriteFile", &world.Done{}, "")
	h.complete("DelayShutdown", nil, world.KindUnavailable)
	h.complete("PermitShutdown", &world.Done{}, "")
	h.expect("WriteFile", 31)
}

// A connection that is lost in the middle of a shutdown is made again while the pods end, and does
// not delay the release of the lock; one that is lost before the answer arrives does not count.
func TestLostConnectionInTheMiddle(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.announce(false)
	h.expect("WriteFile", 20)
	h.complete("WriteFile", &world.Done{}, "")
	h.wait(5)
	h.loseConnection()
	h.expect("", 6)
	h.wait(1)
	h.expect("DelayShutdown", 20)
	h.wait(1)
	h.loseConnection() // the new one
	if h.complete("DelayShutdown", nil, world.KindConflict) || h.m.Lock.Watched {
		t.Errorf("%+v", h.m.Lock)
	}
	h.expect("", 8)
	h.wait(1)
	h.expect("DelayShutdown", 20)
	if h.complete("DelayShutdown", nil, world.KindConflict) || !h.m.Lock.Watched || !h.m.Lock.Held {
		t.Errorf("%+v", h.m.Lock)
	}
	h.expect("", 20)
	h.loseConnection()
	h.wait(1)
	h.expect("DelayShutdown", 20)
	h.complete("DelayShutdown", nil, world.KindUnavailable)
	for _, uid := range []string{"a", "b"} {
		h.m.PodEnded(uid)
	}
	h.pods[1] = nil
	h.expect("WriteFile", 10)
	h.complete("WriteFile", &world.Done{}, "")
	h.expect("PermitShutdown", 10)
	h.wait(1)
	h.expect("DelayShutdown", 0)
	if !h.complete("DelayShutdown", &world.ShutdownDelayed{Max: time.Minute}, "") || h.m.UnderWay() {
		t.Errorf("logind gives a lock away, so nothing is under way: %+v", h.m)
	}
}

// The answer that a shutdown is under way does not count if its cancellation has overtaken it; a
// lock that was given before a shutdown does not end it, even if the answer comes later.
func TestOvertakenAnswer(t *testing.T) {
	h := newHarness(t)
	h.boot("")
	h.wait(1)
	h.announce(true)
	if h.complete("DelayShutdown", nil, world.KindConflict) || h.m.UnderWay() {
		t.Errorf("a cancelled shutdown is under way: %+v", h.m.Now)
	}
	h.expect("DelayShutdown", 0)
	h.announce(false)
	if h.complete("DelayShutdown", &world.ShutdownDelayed{Max: time.Minute}, "") || !h.m.UnderWay() {
		t.Errorf("the answer to an earlier request ends the shutdown: %+v", h.m)
	}
}

// If it is not known whether the lock was released, it is taken again after a cancellation.
func TestUnknownRelease(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.announce(false)
	h.expect("WriteFile", 20)
	h.complete("WriteFile", &world.Done{}, "")
	h.wait(30)
	h.pods[1] = nil
	h.expect("WriteFile PermitShutdown", 0)
	h.complete("PermitShutdown", nil, world.KindTimeout)
	h.announce(true)
	h.complete("WriteFile", &world.Done{}, "")
	h.expect("DelayShutdown", 0)
}

// A lock that was given before it was asked to be released is not held, whichever answer comes
// last.
func TestReleaseDuringRequest(t *testing.T) {
	h := newHarness(t)
	h.bootWithLock()
	h.pods = [][]string{nil, nil}
	h.announce(false)
	h.unlisted = true
	h.expect("WriteFile", 20)
	h.complete("WriteFile", &world.Done{}, "")
	h.loseConnection()
	h.wait(1)
	h.expect("DelayShutdown", 20) // the cancellation was not heard
	h.wait(1)
	h.unlisted = false
	h.expect("WriteFile", 30)
	h.complete("WriteFile", &world.Done{}, "")
	h.expect("PermitShutdown", 0)
	h.complete("PermitShutdown", &world.Done{}, "")
	h.complete("DelayShutdown", &world.ShutdownDelayed{Max: time.Minute}, "")
	if h.m.Lock.Held {
		t.Errorf("%+v", h.m.Lock)
	}
	h.expect("DelayShutdown", 0)
}
