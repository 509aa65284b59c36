package pleg

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// harness plans a relist and a stream, and completes their operations.
type harness struct {
	relist Relist
	stream Stream
	table  op.Table
	out    op.Effects
	now    time.Time
}

func (b *harness) at(d time.Duration) *harness {
	b.now = t0.Add(d)
	b.out.Reset(&b.table, b.now)
	return b
}

// planRelist plans the relist at a time, and reports whether lists were issued.
func (b *harness) planRelist(d time.Duration) bool {
	b.at(d)
	b.relist.Plan(&b.stream, &b.out)
	return len(b.out.List()) == 2
}

// completeRelist completes the lists in flight.
func (b *harness) completeRelist(d time.Duration, err *world.Error) bool {
	sandboxes := world.Event{Time: t0.Add(d), Body: &runtimeapi.ListPodSandboxResponse{}}
	containers := world.Event{Time: t0.Add(d), Body: &runtimeapi.ListContainersResponse{}, Err: err}
	b.relist.HandleCompletion(b.relist.SandboxOp, sandboxes)
	return b.relist.HandleCompletion(b.relist.ContainerOp, containers)
}

func (b *harness) planStream(d time.Duration) { b.at(d).stream.Plan(&b.out) }

func (b *harness) breakStream(d time.Duration, kind world.ErrorKind) {
	b.at(d).stream.HandleCompletion(b.stream.Op, world.Event{Time: b.now,
		Err: world.Errorf(kind, "GetEvents", "gone")}, &b.out)
}

const s = time.Second

// reliableStream returns a harness with a reliable stream, whose newest relist was issued at 11 s.
func reliableStream(t *testing.T) *harness {
	b := &harness{stream: Stream{Enabled: true}}
	b.planStream(0)
	for _, at := range []time.Duration{0, 11 * s} {
		if !b.planRelist(at) || !b.completeRelist(at, nil) {
			t.Fatalf("no relist at %s", at)
		}
	}
	return b
}

func TestRelistEverySecondWithoutStream(t *testing.T) {
	b := &harness{}
	if !b.planRelist(0) || !b.completeRelist(s, nil) || b.planRelist(2*s-1) || !b.planRelist(2*s) {
		t.Error("not relisted a second after the last completion")
	}
	b.relist.Request(t0.Add(2 * s))
	if b.completeRelist(3*s, nil); b.planRelist(4*s - 1) {
		t.Error("a request shortened the period")
	}
}

func TestFailedRelistDoesNotAdvance(t *testing.T) {
	b := &harness{}
	b.planRelist(0)
	if b.completeRelist(s, world.Errorf(world.KindInternal, "ListContainers", "no")) ||
		!b.relist.AsOf.IsZero() || b.relist.Failures != 1 {
		t.Errorf("as of %s after a failure", b.relist.AsOf)
	}
}

func TestRelistEveryFiveMinutesWithStream(t *testing.T) {
	b := reliableStream(t)
	if b.planRelist(300 * s) {
		t.Error("relisted after less than 300 s")
	}
	if !b.planRelist(311 * s) {
		t.Error("not relisted after 300 s")
	}
}

func TestRelistEverySecondUntilStreamIsReliable(t *testing.T) {
	b := &harness{stream: Stream{Enabled: true}}
	b.planStream(0)
	b.planRelist(10 * s)
	b.completeRelist(10*s, nil)
	if !b.planRelist(11 * s) {
		t.Error("no relist covers the time before the stream became reliable")
	}
}

func TestRequestIsServedAtOnce(t *testing.T) {
	b := reliableStream(t)
	if !b.relist.Request(t0.Add(60*s)) || b.relist.Request(t0.Add(60*s)) {
		t.Error("a request must be new exactly once")
	}
	if !b.planRelist(60*s+requestDelay) || !b.completeRelist(60*s+requestDelay, nil) {
		t.Error("the request was not served at once")
	}
	b.relist.Request(t0.Add(60*s + 2*requestDelay))
	next := 60*s + requestDelay + requestedPause
	if b.planRelist(next-1) || !b.planRelist(next) {
		t.Error("the next relist is not issued after the pause")
	}
	if b.completeRelist(next+time.Second/5, nil); b.planRelist(next + 2*s) {
		t.Error("relisted without a request")
	}
	if b.relist.Request(t0.Add(60*s + 2*requestDelay)) {
		t.Error("a request that has been served is new")
	}
}

// Relists on request take a fifth of the runtime's time at most, and wait for no longer than the
// period.
func TestRequestedRelistsArePaced(t *testing.T) {
	for _, c := range []struct{ took, pause time.Duration }{
		{time.Millisecond, requestedPause}, {50 * time.Millisecond, 200 * time.Millisecond},
		{2 * s, RelistPeriod},
	} {
		b := &harness{}
		b.planRelist(0)
		b.completeRelist(c.took, nil)
		b.relist.Request(t0.Add(c.took))
		if b.planRelist(c.took+c.pause-1) || !b.planRelist(c.took+c.pause) {
			t.Errorf("after a relist of %v the next one is not issued after %v", c.took, c.pause)
		}
	}
}

func TestFailedRelistIsRetriedAfterASecond(t *testing.T) {
	b := reliableStream(t)
	b.planRelist(311 * s)
	b.completeRelist(312*s, world.Errorf(world.KindTimeout, "ListContainers", "no"))
	if !b.planRelist(313 * s) {
		t.Error("not retried after a second")
	}
}

func TestRelistAfterStreamBreaks(t *testing.T) {
	b := reliableStream(t)
	if b.breakStream(60*s, world.KindUnavailable); !b.planRelist(60 * s) {
		t.Error("not relisted at once")
	}
	b.completeRelist(60*s, nil)
	if !b.planRelist(61 * s) {
		t.Error("not relisted after a second")
	}
}

func TestStreamBacksOff(t *testing.T) {
	b := &harness{stream: Stream{Enabled: true}}
	var waits []time.Duration
	at := time.Duration(0)
	for range 7 {
		if b.planStream(at); b.stream.Op == 0 {
			t.Fatalf("no stream at %s", at)
		}
		b.breakStream(at, world.KindUnavailable)
		waits = append(waits, b.stream.NextAt.Sub(b.now)/s)
		at = b.stream.NextAt.Sub(t0)
	}
	if diff := cmp.Diff([]time.Duration{1, 2, 4, 8, 16, 32, 32}, waits); diff != "" {
		t.Error(diff)
	}
	b.planStream(at)
	if b.breakStream(at+time.Minute, world.KindUnavailable); b.stream.NextAt.Sub(b.now) != s {
		t.Error("the back-off was not reset after a reliable stream")
	}
}

func TestUnsupportedStreamIsNotRetried(t *testing.T) {
	b := &harness{stream: Stream{Enabled: true}}
	b.planStream(0)
	b.breakStream(0, world.KindUnimplemented)
	if b.planStream(time.Hour); b.stream.Op != 0 {
		t.Error("issued again")
	}
	if b.planRelist(time.Hour); !b.completeRelist(time.Hour, nil) || !b.planRelist(time.Hour+s) {
		t.Error("not relisted every second")
	}
	if got := b.stream; got.OpenedTotal != 0 || got.FailedTotal != 1 || got.BrokenTotal != 0 {
		t.Errorf("%d opened, %d failed, %d broken", got.OpenedTotal, got.FailedTotal, got.BrokenTotal)
	}
}

func TestStreamIsRenewedWithoutGap(t *testing.T) {
	b := reliableStream(t)
	first := b.stream.Op
	if b.planStream(streamLifetime - streamOverlap - 1); b.stream.Op != first {
		t.Error("renewed too early")
	}
	b.planStream(streamLifetime - streamOverlap)
	if b.stream.Op == first || b.stream.PreviousOp != first {
		t.Error("not renewed")
	}
	b.at(streamLifetime).stream.HandleCompletion(first, world.Event{Time: b.now,
		Err: world.Errorf(world.KindTimeout, "GetEvents", "deadline")}, &b.out)
	if b.stream.ContinuousSince != t0 || b.stream.BrokenTotal != 0 || b.stream.FailedTotal != 0 ||
		b.stream.OpenedBy(b.now) != 2 {
		t.Error("the end of the previous stream counts as a break")
	}
}

// A request for a stream counts as opened once an event has come, or the stream is settled. Every
// end of the newest stream is an error, also one without a reason.
func TestOpenedStreamsAreCounted(t *testing.T) {
	b := &harness{stream: Stream{Enabled: true}}
	expect := func(when string, opened, failed uint64) {
		t.Helper()
		if got := b.stream.OpenedBy(b.now); got != opened || b.stream.FailedTotal != failed {
			t.Errorf("%s: %d opened and %d failed, want %d and %d", when, got, b.stream.FailedTotal,
				opened, failed)
		}
	}
	b.planStream(0)
	b.at(s)
	expect("requested", 0, 0)
	b.breakStream(2*s, world.KindUnavailable)
	expect("refused", 0, 1)
	b.planStream(10 * s)
	b.at(11 * s).stream.HandleEvent()
	b.stream.HandleEvent()
	expect("after events", 1, 1)
	b.at(10*s + streamSettleTime)
	expect("settled after events", 1, 1)
	b.at(30*s).stream.HandleCompletion(b.stream.Op, world.Event{Time: b.now}, &b.out)
	expect("closed", 1, 2)
	b.planStream(60 * s)
	b.at(60*s + streamSettleTime)
	expect("settled without events", 2, 2)
	b.breakStream(80*s, world.KindUnavailable)
	expect("broken", 2, 3)
}

func TestLateRenewalLeavesGap(t *testing.T) {
	b := reliableStream(t)
	first, renewed := b.stream.Op, streamLifetime-streamOverlap
	b.planStream(renewed)
	b.at(renewed+s).stream.HandleCompletion(first, world.Event{Time: b.now,
		Err: world.Errorf(world.KindInternal, "GetEvents", "reset")}, &b.out)
	if b.stream.ContinuousSince != t0.Add(renewed) || b.stream.isReliable(t0.Add(renewed)) {
		t.Error("reliable although events may have been lost before the new stream")
	}
}

func TestHealth(t *testing.T) {
	healthy := func(b *harness, d time.Duration) bool {
		return b.relist.Health(&b.stream, t0.Add(d), t0) == ""
	}
	plain := &harness{}
	if !healthy(plain, 3*time.Minute) || healthy(plain, 3*time.Minute+1) {
		t.Error("before the first relist the threshold is not three minutes")
	}
	b := reliableStream(t)
	if !healthy(b, 10*time.Minute+11*s) || healthy(b, 10*time.Minute+12*s) {
		t.Error("with a stream the threshold is not ten minutes")
	}
	b.breakStream(5*time.Minute, world.KindUnavailable)
	for at := 5 * time.Minute; at <= 8*time.Minute; at = b.stream.NextAt.Sub(t0) {
		if !healthy(b, at) {
			t.Errorf("unhealthy at %s, before a relist was overdue", at)
		}
		b.planStream(at)
		b.breakStream(at, world.KindUnavailable)
	}
	if healthy(b, 8*time.Minute+s) {
		t.Error("healthy although no relist has succeeded for three minutes since the stream broke")
	}
}

func TestParseEvent(t *testing.T) {
	started := runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	labels := map[string]string{LabelPodUID: "u"}
	statuses := []*runtimeapi.ContainerStatus{{Id: "other"}, {Id: "c", Labels: labels}}
	sandbox := &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}}
	for _, body := range []*runtimeapi.ContainerEventResponse{
		{ContainerId: "c", ContainerEventType: started, PodSandboxStatus: sandbox},
		{ContainerId: "c", ContainerEventType: started, ContainersStatuses: statuses},
	} {
		want := Event{UID: "u", ID: "c", Type: started}
		if diff := cmp.Diff(want, ParseEvent(body)); diff != "" {
			t.Error(diff)
		}
	}
	if got := ParseEvent(&runtimeapi.ContainerEventResponse{}); got.UID != "" {
		t.Errorf("UID %q of an empty event", got.UID)
	}
}
