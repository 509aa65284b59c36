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

// bench plans a relist and a stream, and answers for the runtime.
type bench struct {
	relist Relist
	stream Stream
	table  op.Table
	out    op.Out
	now    time.Time
}

func (b *bench) at(d time.Duration) *bench {
	b.now = t0.Add(d)
	b.out.Begin(&b.table, b.now)
	return b
}

// list plans the relist at a time, and reports whether it asked for lists.
func (b *bench) list(d time.Duration) bool {
	b.at(d)
	b.relist.Plan(&b.stream, &b.out)
	return len(b.out.Take()) == 2
}

// listed answers the lists in flight.
func (b *bench) listed(d time.Duration, err *world.Error) bool {
	sandboxes := world.Event{Time: t0.Add(d), Body: &runtimeapi.ListPodSandboxResponse{}}
	containers := world.Event{Time: t0.Add(d), Body: &runtimeapi.ListContainersResponse{}, Err: err}
	b.relist.Answered(b.relist.SandboxOp, sandboxes)
	return b.relist.Answered(b.relist.ListOp, containers)
}

func (b *bench) open(d time.Duration) { b.at(d).stream.Plan(&b.out) }

func (b *bench) broken(d time.Duration, kind world.ErrorKind) {
	b.at(d).stream.Answered(b.stream.Op, world.Event{Time: b.now,
		Err: world.Errorf(kind, "GetEvents", "gone")}, &b.out)
}

const s = time.Second

// telling makes a bench whose stream tells, and whose newest list is of the eleventh second.
func telling(t *testing.T) *bench {
	b := &bench{stream: Stream{On: true}}
	b.open(0)
	for _, at := range []time.Duration{0, 11 * s} {
		if !b.list(at) || !b.listed(at, nil) {
			t.Fatalf("no list at %s", at)
		}
	}
	return b
}

func TestWithoutEventsAListEverySecond(t *testing.T) {
	b := &bench{}
	if !b.list(0) || !b.listed(s, nil) || b.list(2*s-1) || !b.list(2*s) {
		t.Error("not a second after the last one was answered")
	}
	b.relist.Need(t0.Add(2 * s))
	if b.listed(3*s, nil); b.list(4*s - 1) {
		t.Error("a need made the list come more often than every second")
	}
}

func TestAFailedListIsNoNews(t *testing.T) {
	b := &bench{}
	b.list(0)
	if b.listed(s, world.Errorf(world.KindInternal, "ListContainers", "no")) ||
		!b.relist.AsOf.IsZero() || b.relist.Failures != 1 {
		t.Errorf("as of %s after a failure", b.relist.AsOf)
	}
}

func TestWithEventsAListEveryFiveMinutes(t *testing.T) {
	b := telling(t)
	if b.list(300 * s) {
		t.Error("a list after less than 300 s")
	}
	if !b.list(311 * s) {
		t.Error("no list after 300 s")
	}
}

func TestUntilTheStreamSurelyTellsListsGoOn(t *testing.T) {
	b := &bench{stream: Stream{On: true}}
	b.open(0)
	b.list(10 * s)
	b.listed(10*s, nil)
	if !b.list(11 * s) {
		t.Error("what happened before the stream told is in no list")
	}
}

func TestANeedIsServedAtOnce(t *testing.T) {
	b := telling(t)
	if !b.relist.Need(t0.Add(60*s)) || b.relist.Need(t0.Add(60*s)) {
		t.Error("a need is news once")
	}
	if !b.list(60*s+gather) || !b.listed(60*s+gather, nil) {
		t.Error("it was not served at once")
	}
	b.relist.Need(t0.Add(60*s + 2*gather))
	if b.list(61*s) || !b.list(61*s+gather) {
		t.Error("the next one not a second later")
	}
	if b.listed(62*s, nil); b.list(63 * s) {
		t.Error("a list that nobody needs")
	}
	if b.relist.Need(t0.Add(61 * s)) {
		t.Error("a need that is served already is news")
	}
}

func TestAFailedListIsTriedAgainAfterASecond(t *testing.T) {
	b := telling(t)
	b.list(311 * s)
	b.listed(312*s, world.Errorf(world.KindTimeout, "ListContainers", "no"))
	if !b.list(313 * s) {
		t.Error("after 300 s only")
	}
}

func TestABrokenStreamIsFollowedByAList(t *testing.T) {
	b := telling(t)
	if b.broken(60*s, world.KindUnavailable); !b.list(60 * s) {
		t.Error("no list at once")
	}
	b.listed(60*s, nil)
	if !b.list(61 * s) {
		t.Error("no list after a second")
	}
}

func TestStreamBacksOff(t *testing.T) {
	b := &bench{stream: Stream{On: true}}
	var waits []time.Duration
	at := time.Duration(0)
	for range 7 {
		if b.open(at); b.stream.Op == 0 {
			t.Fatalf("no stream at %s", at)
		}
		b.broken(at, world.KindUnavailable)
		waits = append(waits, b.stream.NextAt.Sub(b.now)/s)
		at = b.stream.NextAt.Sub(t0)
	}
	if diff := cmp.Diff([]time.Duration{1, 2, 4, 8, 16, 32, 32}, waits); diff != "" {
		t.Error(diff)
	}
	b.open(at)
	if b.broken(at+time.Minute, world.KindUnavailable); b.stream.NextAt.Sub(b.now) != s {
		t.Error("a stream that has told for a while is opened again late")
	}
}

func TestAStreamThatIsNotOfferedIsNotAskedForAgain(t *testing.T) {
	b := &bench{stream: Stream{On: true}}
	b.open(0)
	b.broken(0, world.KindInvalid)
	if b.open(time.Hour); b.stream.Op != 0 {
		t.Error("asked for again")
	}
	if b.list(time.Hour); !b.listed(time.Hour, nil) || !b.list(time.Hour+s) {
		t.Error("no list every second")
	}
}

func TestAStreamIsRenewedWithoutAGap(t *testing.T) {
	b := telling(t)
	first := b.stream.Op
	if b.open(streamFor - streamOverlap - 1); b.stream.Op != first {
		t.Error("renewed too early")
	}
	if b.open(streamFor - streamOverlap); b.stream.Op == first || b.stream.Before != first {
		t.Error("not renewed")
	}
	b.at(streamFor).stream.Answered(first, world.Event{Time: b.now,
		Err: world.Errorf(world.KindTimeout, "GetEvents", "deadline")}, &b.out)
	if b.stream.Since != t0 || b.stream.Broken != 0 {
		t.Error("the orderly end of the old one is a break")
	}
}

func TestARenewalThatCameLateLeavesAGap(t *testing.T) {
	b := telling(t)
	first, renewed := b.stream.Op, streamFor-streamOverlap
	b.open(renewed)
	b.at(renewed+s).stream.Answered(first, world.Event{Time: b.now,
		Err: world.Errorf(world.KindInternal, "GetEvents", "reset")}, &b.out)
	if b.stream.Since != t0.Add(renewed) || b.stream.telling(t0.Add(renewed)) {
		t.Error("events may have been lost before the new one told")
	}
}

func TestHealth(t *testing.T) {
	healthy := func(b *bench, d time.Duration) bool {
		return b.relist.Health(&b.stream, t0.Add(d), t0) == ""
	}
	plain := &bench{}
	if !healthy(plain, 3*time.Minute) || healthy(plain, 3*time.Minute+1) {
		t.Error("not three minutes before the first list")
	}
	b := telling(t)
	if !healthy(b, 10*time.Minute+11*s) || healthy(b, 10*time.Minute+12*s) {
		t.Error("not ten minutes while events are told")
	}
	b.broken(5*time.Minute, world.KindUnavailable)
	for at := 5 * time.Minute; at <= 8*time.Minute; at = b.stream.NextAt.Sub(t0) {
		if !healthy(b, at) {
			t.Errorf("unwell at %s: the list has not had its time", at)
		}
		b.open(at)
		b.broken(at, world.KindUnavailable)
	}
	if healthy(b, 8*time.Minute+s) {
		t.Error("well although no list has succeeded for three minutes since the stream broke")
	}
}

func TestReadEvent(t *testing.T) {
	started := runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT
	labels := map[string]string{LabelPodUID: "u"}
	statuses := []*runtimeapi.ContainerStatus{{Id: "other"}, {Id: "c", Labels: labels}}
	sandbox := &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: "u"}}
	for _, body := range []*runtimeapi.ContainerEventResponse{
		{ContainerId: "c", ContainerEventType: started, PodSandboxStatus: sandbox},
		{ContainerId: "c", ContainerEventType: started, ContainersStatuses: statuses},
	} {
		want := Event{UID: "u", ID: "c", Type: started}
		if diff := cmp.Diff(want, ReadEvent(body)); diff != "" {
			t.Error(diff)
		}
	}
	if got := ReadEvent(&runtimeapi.ContainerEventResponse{}); got.UID != "" {
		t.Errorf("an empty event is about %q", got.UID)
	}
}
