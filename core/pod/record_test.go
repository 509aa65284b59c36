package pod

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// FuzzRecord gives an agent that has just started an arbitrary record of a running pod.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"start":"2025-12-31T00:00:00Z","containers":[{"id":"web0","ready":true}]}`))
	f.Add([]byte(`{"end":{"phase":"Failed","at":"9999-12-31T23:59:59Z","grace":-1}}`))
	f.Add([]byte(`{"end":{"grace":9223372036854775807},"round":9223372036854775807}`))
	f.Add([]byte(`{"start":"0000-01-01T00:00:00+23:59","round":-9223372036854775808}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, record []byte) {
		p := runningPod(func(c *v1.Container) {
			c.ReadinessProbe = &v1.Probe{ProbeHandler: execProbe("ready"), PeriodSeconds: 10}
		})
		p.Record.Loaded = false
		r := newHarness(t, p).planAt(0)
		r.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: record}}}, nil)
		for _, after := range []time.Duration{time.Second, 10 * time.Second, 5 * time.Minute} {
			r.planAt(after)
			if stop := r.findCall("StopContainer"); stop != nil &&
				stop.Body.(*runtimeapi.StopContainerRequest).Timeout < 0 {
				t.Errorf("negative timeout: %v", stop.Body)
			}
			if _, err := json.Marshal(p); err != nil {
				t.Fatalf("the pod cannot be encoded: %v", err)
			}
			if _, err := json.Marshal(servedPod(p, r.env.Node, "fake")); err != nil {
				t.Fatalf("the served pod cannot be encoded: %v", err)
			}
		}
	})
}

// preempted returns a pod that was preempted before anything of it was created.
func preempted(t *testing.T, change func(*v1.Pod)) *harness {
	s := spec(v1.RestartPolicyAlways, "", "web")
	change(s)
	p := New(s, nil, true, true, t0)
	p.Preempt(t0)
	p.StaleSince = time.Time{}
	return newHarness(t, p).planAt(0)
}

// The termination of a pod without a directory is persisted as well, before it is reported.
func TestTerminationOfPodWithoutDirectoryIsPersisted(t *testing.T) {
	r := preempted(t, func(*v1.Pod) {})
	r.expectNoCall("WriteFile")
	r.complete("MakeDir", &world.Done{}, nil)
	if p := r.pod; p.Status.Phase == v1.PodFailed || p.Stage != Terminating {
		t.Errorf("%s, %s before the termination is durable", p.Stage, p.Status.Phase)
	}
	r.complete("WriteFile", &world.Done{}, nil)
	if p := r.pod; p.Status.Phase != v1.PodFailed || p.Stage != Terminated {
		t.Errorf("%s, %s after the termination is durable", p.Stage, p.Status.Phase)
	}
}

// A termination that cannot be persisted releases the pod's resources, and is reported only to the
// API server until it is durable.
func TestTerminationThatCannotBePersisted(t *testing.T) {
	full := world.Errorf(world.KindExhausted, "", "no space left on device")
	r := preempted(t, func(*v1.Pod) {}).complete("MakeDir", nil, full)
	if p := r.pod; p.Stage != Terminated || p.HoldsResources() || p.Status.Phase == v1.PodFailed ||
		p.UnreportedTerminalPhase() != v1.PodFailed {
		t.Errorf("%s, holds resources %v, phase %s, unreported %q", p.Stage, p.HoldsResources(),
			p.Status.Phase, p.UnreportedTerminalPhase())
	}
	r.planAt(time.Minute).complete("MakeDir", &world.Done{}, nil).complete("WriteFile", nil, full)
	r.planAt(2*time.Minute).complete("WriteFile", &world.Done{}, nil)
	if p := r.pod; p.Status.Phase != v1.PodFailed || p.UnreportedTerminalPhase() != "" {
		t.Errorf("phase %s, unreported %q after the termination is durable", p.Status.Phase,
			p.UnreportedTerminalPhase())
	}
}

// An end that becomes an eviction is recorded again: the next agent gives it no more time, and
// waits for it instead of evicting another pod.
func TestEndThatBecomesAnEviction(t *testing.T) {
	p := runningPod(func(*v1.Container) {})
	p.startTermination(Termination{Reason: "DeadlineExceeded", Phase: v1.PodFailed,
		Grace: time.Hour}, t0)
	p.StaleSince = time.Time{}
	r := newHarness(t, p).planAt(0).complete("WriteFile", &world.Done{}, nil)
	r.planAt(time.Second).expectNoCall("WriteFile")
	p.Evict("low", time.Second, r.now)
	r.planAt(time.Second).complete("WriteFile", &world.Done{}, nil)
	if end := p.Record.Termination; !end.UnderPressure || end.Grace > time.Minute {
		t.Errorf("the record has the end %+v", end)
	}
	r.planAt(2 * time.Second).expectNoCall("WriteFile")
}

// The deletion of a pod is durable at the API server, and no record is written for it.
func TestDeletionIsDurableAtAPIServer(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	s.DeletionTimestamp = &metav1.Time{Time: t0}
	p := New(s, nil, true, true, t0)
	p.StaleSince = time.Time{}
	if newHarness(t, p).planAt(0).expectNoCall("MakeDir"); p.Status.Phase != v1.PodFailed {
		t.Errorf("phase %s", p.Status.Phase)
	}
}

// If the record cannot be written because the pod's directory was removed, the directory is created
// again.
func TestRecordWithoutDirectory(t *testing.T) {
	r := newHarness(t, runningPod(withProbe(probe.Readiness, nil))).planAt(0).completeExec(0)
	r.complete("WriteFile", nil, world.Errorf(world.KindNotFound, "", "no such directory"))
	r.planAt(time.Minute).complete("MakeDir", &world.Done{}, nil).expectCall("WriteFile")
}

// A pod of the API server that a shutdown of the machine has ended stays ended; a static pod runs
// again.
func TestShutdownInRecord(t *testing.T) {
	for source, want := range map[string]Stage{"file": Syncing, "api": Terminating} {
		p := runningPod(func(*v1.Container) {})
		p.Spec.Annotations = map[string]string{"kubernetes.io/config.source": source}
		p.Record.Loaded = false
		r := newHarness(t, p).planAt(0)
		r.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: []byte(
			`{"start":"2025-12-31T00:00:00Z","end":{"reason":"Terminated","phase":"Failed","grace":1}}`)}}},
			nil)
		if p.Stage != want {
			t.Errorf("a pod of source %s is %v, want %v", source, p.Stage, want)
		}
	}
}

// A pod that is deleted, and that an earlier agent has evicted, ends as that has decided.
func TestEvictionOfDeletedPodInRecord(t *testing.T) {
	p := runningPod(func(*v1.Container) {})
	p.Record.Loaded = false
	p.startTermination(Termination{Reason: reasonDeleted, Grace: 30 * time.Second}, t0)
	p.StaleSince = time.Time{}
	newHarness(t, p).planAt(0).complete("ReadFiles", &world.FilesRead{Files: []world.File{{
		Data: []byte(`{"start":"2025-12-31T00:00:00Z","end":{"reason":"Evicted","message":"low",` +
			`"phase":"Failed","underPressure":true,"pressureMessage":"memory","grace":1000000000}}`)}}}, nil)
	if e := &p.Termination; e.Reason != ReasonEvicted || e.Phase != v1.PodFailed ||
		!e.UnderPressure || e.PressureMessage != "memory" || e.Grace != time.Second {
		t.Errorf("%+v", e)
	}
}

// After a restart of the agent a disk still waits for a pod that was evicted for a limit of its
// own, and not for the victim of a shortage.
func TestOverLimitInRecord(t *testing.T) {
	for _, underPressure := range []bool{false, true} {
		for _, isDeleted := range []bool{false, true} {
			p := runningPod(func(*v1.Container) {})
			p.Record.Loaded = false
			if isDeleted {
				p.startTermination(Termination{Reason: reasonDeleted, Grace: 30 * time.Second}, t0)
			}
			p.StaleSince = time.Time{}
			newHarness(t, p).planAt(0).complete("ReadFiles", &world.FilesRead{Files: []world.File{{
				Data: fmt.Appendf(nil, `{"start":"2025-12-31T00:00:00Z","end":{"reason":"Evicted",`+
					`"message":"m","phase":"Failed","underPressure":%t,"grace":1000000000}}`,
					underPressure)}}}, nil)
			if p.OverLimit == underPressure {
				t.Errorf("under pressure %t, deleted %t: over its limit %t", underPressure, isDeleted,
					p.OverLimit)
			}
		}
	}
}
