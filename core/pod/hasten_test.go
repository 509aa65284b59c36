package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// The stop of a pod that should have ended by now may be lost: it is requested again when the pod
// is hastened.
func TestLostStopOfHastenedPod(t *testing.T) {
	p := notDesired(runningPod(func(*v1.Container) {}))
	r := newHarness(t, p).planAt(0)
	if got := stopTimeout(r); got != 30 {
		t.Fatalf("it has %d s, want 30", got)
	}
	p.Evict("low", time.Second, t0.Add(40*time.Second))
	if got := stopTimeout(r.planAt(40 * time.Second)); got != 2 {
		t.Errorf("it has %d s, want 2", got)
	}
}

// A stop that is lost is requested again once its time has passed, also if the pod was hastened
// just before that.
func TestStopLostBeforeItsTime(t *testing.T) {
	p := notDesired(runningPod(func(*v1.Container) {}))
	newHarness(t, p).planAt(0)
	p.Evict("low", time.Second, t0.Add(29500*time.Millisecond))
	newHarness(t, p).planAt(29500 * time.Millisecond).expectNoCall("StopContainer")
	if got := stopTimeout(newHarness(t, p).planAt(31 * time.Second)); got != 2 {
		t.Errorf("it has %d s, want 2", got)
	}
}

// A container whose stop begins long after the end of its pod, which was hastened since, has no
// longer than the pod was hastened to.
func TestLateStopOfHastenedPod(t *testing.T) {
	for _, c := range []struct {
		name    string
		prepare func(p *Pod)
		want    int64
	}{
		{"its stop has not begun", func(p *Pod) {
			p.Containers[0].NotBefore = t0.Add(20 * time.Second)
		}, 2},
		{"its hook has ended", func(p *Pod) {
			p.Containers[0].NotBefore = t0.Add(20 * time.Second)
			p.Containers[0].Stop = &Stop{StartedAt: t0.Add(5 * time.Second), Grace: 30 * time.Second,
				PreStop: Hook{Done: true, EndedAt: t0.Add(6 * time.Second)}}
		}, 2},
	} {
		p := notDesired(runningPod(func(*v1.Container) {}))
		c.prepare(p)
		r := newHarness(t, p).planAt(0)
		r.expectNoCall("StopContainer")
		p.Evict("low", time.Second, t0.Add(20*time.Second))
		if got := stopTimeout(r.planAt(20 * time.Second)); got != c.want {
			t.Errorf("%s: it has %d s, want %d", c.name, got, c.want)
		}
	}
}

// A container that was being stopped before its pod ends, as for a lost sandbox, has the whole
// grace period of that end: the request may not have reached it.
func TestStopFromBeforeTheEndHasTheWholeGracePeriod(t *testing.T) {
	p := runningPod(func(*v1.Container) {})
	p.Containers[0].Stopping = true
	p.Containers[0].Stop = &Stop{StartedAt: t0, Grace: 30 * time.Second, KillAfter: 30 * time.Second,
		Requested: 30 * time.Second, PreStop: Hook{Done: true}}
	p.ShutDown(12*time.Second, t0.Add(3*time.Second))
	if got := stopTimeout(newHarness(t, p).planAt(3 * time.Second)); got != 12 {
		t.Errorf("it has %d s, want 12", got)
	}
}

// So has one whose preStop hook runs then.
func TestHookFromBeforeTheEndHasTheWholeGracePeriod(t *testing.T) {
	for _, ended := range []bool{false, true} {
		p := runningPod(func(*v1.Container) {})
		stop := &Stop{StartedAt: t0, Grace: 30 * time.Second}
		if ended {
			stop.PreStop = Hook{Done: true, EndedAt: t0.Add(2 * time.Second)}
		}
		p.Containers[0].Stop = stop
		p.ShutDown(12*time.Second, t0.Add(13*time.Second))
		if got := stopTimeout(newHarness(t, p).planAt(13 * time.Second)); got != 12 {
			t.Errorf("ended %t: it has %d s, want 12", ended, got)
		}
	}
}

// A pod that is hastened to no time at all has what every container has between TERM and KILL. What
// has ended is not hastened.
func TestHastenedToNothing(t *testing.T) {
	p := notDesired(runningPod(func(*v1.Container) {}))
	p.Containers[0].NotBefore = t0.Add(20 * time.Second)
	newHarness(t, p).planAt(0).expectNoCall("StopContainer")
	if p.Evict("low", 0, t0); p.Termination.Hastened != killAfterMin {
		t.Errorf("hastened to %v", p.Termination.Hastened)
	}
	if got := stopTimeout(newHarness(t, p).planAt(20 * time.Second)); got != 2 {
		t.Errorf("it has %d s, want 2", got)
	}
	p = notDesired(runningPod(func(*v1.Container) {}))
	p.Stage = Terminated
	before := p.Termination
	p.startTermination(Termination{Grace: time.Second}, t0.Add(time.Minute))
	if p.Termination != before {
		t.Errorf("the end of an ended pod is %+v, was %+v", p.Termination, before)
	}
}
