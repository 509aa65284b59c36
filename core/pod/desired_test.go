package pod

import (
	"seedlet.dev/core/admission"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// A terminal phase that the API server has is final, whatever phase this agent has computed.
func TestTerminalPhaseAtAPIServerIsFinal(t *testing.T) {
	for _, phase := range []v1.PodPhase{v1.PodRunning, v1.PodFailed, v1.PodSucceeded} {
		r := newHarness(t, runningPod(func(*v1.Container) {}))
		r.pod.Status.Phase = phase
		object := r.pod.Spec.DeepCopy()
		object.Status.Phase = v1.PodFailed
		r.pod.SetDesired(object, nil, t0)
		if r.pod.StaleSince = (time.Time{}); r.pod.Status.Phase != v1.PodFailed {
			t.Errorf("%s here: %s", phase, r.pod.Status.Phase)
		}
		r.planAt(0).expectCall("StopContainer")
	}
}

// A pod that the machine's shutdown ends has the smaller of its grace period and its group's, and
// so has one that is ending already.
func TestShutDownGrace(t *testing.T) {
	for _, test := range []struct {
		own    int64
		period time.Duration
		want   time.Duration
	}{
		{30, 10 * time.Second, 10 * time.Second}, {5, 10 * time.Second, 5 * time.Second},
		{30, 0, time.Second}, {0, 10 * time.Second, time.Second}, // a preStop hook is started
	} {
		for _, isEnding := range []bool{false, true} {
			s := spec(v1.RestartPolicyAlways, "", "web")
			s.Spec.TerminationGracePeriodSeconds = &test.own
			p := podWith(s, run("web", 0, Running))
			if isEnding {
				p.Preempt(t0)
			}
			if p.ShutDown(test.period, t0); p.Termination.Grace != test.want {
				t.Errorf("own %d s, period %v, ending %t: %v, want %v", test.own, test.period, isEnding,
					p.Termination.Grace, test.want)
			}
		}
	}
}

// A pod of which nothing runs is a candidate while it holds something and may go on.
func TestEvictionOfPodThatDoesNotRun(t *testing.T) {
	for _, c := range []struct {
		what         string
		policy       v1.RestartPolicy
		inspected    State
		ready        bool
		memory, disk bool
	}{
		{"it waits for its next run", v1.RestartPolicyAlways, Exited, true, true, true},
		{"only its directory is left", v1.RestartPolicyAlways, Exited, false, false, true},
		{"its exit is not known", v1.RestartPolicyAlways, Running, true, false, false},
		{"it has completed", v1.RestartPolicyNever, Exited, true, false, false},
	} {
		exited := run("web", 0, Exited)
		exited.Inspected = c.inspected
		p := podWith(spec(c.policy, "", "web"), exited)
		p.Sandboxes[0].Ready = c.ready
		if m, d := p.CanBeEvicted(false), p.CanBeEvicted(true); m != c.memory || d != c.disk {
			t.Errorf("%s: for memory %t, for a disk %t", c.what, m, d)
		}
	}
}

// A pod that is ending is hastened by its eviction and evicted once. One that is only deleted is
// reported as evicted.
func TestEvictionOfEndingPod(t *testing.T) {
	for _, want := range []string{ReasonEvicted, admission.PreemptedReason} {
		p := runningPod(func(*v1.Container) {})
		if want == ReasonEvicted {
			p.startTermination(Termination{Reason: reasonDeleted, Grace: 30 * time.Second}, t0)
		} else {
			p.Preempt(t0)
		}
		p.Evict("low", time.Second, t0)
		if e := &p.Termination; e.Reason != want || e.Phase != v1.PodFailed || !e.UnderPressure ||
			e.Grace > time.Second || p.CanBeEvicted(true) {
			t.Errorf("%+v; can be evicted again: %t", e, p.CanBeEvicted(true))
		}
	}
}
