package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

// fromKubelet returns a running pod with probes that another agent has started, whose record is not
// read yet, and the status that the API server has for it.
func fromKubelet(id string, started, ready bool) (*Pod, v1.PodStatus) {
	p := runningPod(func(c *v1.Container) {
		c.StartupProbe = &v1.Probe{ProbeHandler: execProbe("start"), PeriodSeconds: 10,
			FailureThreshold: 3}
		c.ReadinessProbe = &v1.Probe{ProbeHandler: execProbe("ready"), PeriodSeconds: 10,
			FailureThreshold: 1, SuccessThreshold: 1}
	})
	p.Record.Loaded, p.Containers[0].FromOtherAgent = false, true
	return p, v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "web",
		ContainerID: "containerd://" + id, Started: &started, Ready: ready,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}
}

var noRecord = world.Errorf(world.KindNotFound, "", "none")

// A container that ran before the agent stays as the API server has it, or as the record has it if
// that was written later, until its probes say something else. This is reported at once, and is
// durable later.
func TestReportedHealth(t *testing.T) {
	const written = `{"written":"2026-01-02T03:04:05.6Z","containers":[{"id":"web0","started":true`
	recordedReady, recordedUnready := written+`,"ready":true}]}`, written+`}]}`
	for _, test := range []struct {
		name                    string
		id                      string
		started, ready, foreign bool
		record                  string
		since                   time.Duration // after 03:04:05 of the record
		wantStarted, wantReady  bool
	}{
		{"ready", "web0", true, true, true, "", 0, true, true},
		{"started", "web0", true, false, true, "", 0, true, false},
		{"neither", "web0", false, false, true, "", 0, false, false},
		{"of another run", "web9", true, true, true, "", 0, false, false},
		{"own, and the record is lost", "web0", true, true, false, "", 0, true, true},
		{"unready, as old as the record", "web0", true, false, true, recordedReady, 0, true, true},
		{"ready, as old as the record", "web0", true, true, true, recordedUnready, 0, true, false},
		{"unready since", "web0", true, false, false, recordedReady, time.Second, true, false},
		{"ready since", "web0", true, true, false, recordedUnready, time.Second, true, true},
		{"not in the record", "web0", true, true, true,
			`{"written":"2026-01-02T03:04:05Z"}`, 0, true, true},
		{"not in the record, own", "web0", true, true, false,
			`{"written":"2026-01-02T03:04:05Z"}`, 0, false, false},
	} {
		p, status := fromKubelet(test.id, test.started, test.ready)
		status.Conditions = []v1.PodCondition{{Type: v1.ContainersReady,
			LastTransitionTime: metav1.NewTime(recordTime.Add(test.since))}}
		p.Containers[0].FromOtherAgent, p.Spec.Status = test.foreign, status
		h := readRecord(t, p, test.record).ReportableHealth(&p.Containers[0])
		if h.Started != test.wantStarted || h.Ready != test.wantReady {
			t.Errorf("%s: %+v", test.name, h)
		}
	}
}

var recordTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// readRecord plans a pod whose record is not read yet, and completes the read.
func readRecord(t *testing.T, p *Pod, record string) *Pod {
	r := newHarness(t, p).planAt(0)
	if record == "" {
		r.complete("ReadFiles", nil, noRecord)
	} else {
		r.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: []byte(record)}}}, nil)
	}
	return p
}

// Pods of a node that has sent no heartbeats are not ready until they are probed, which happens at
// once. A pod that waits for a readiness gate is another matter, and so is what was found later.
func TestReadinessOfALostNode(t *testing.T) {
	const record = `{"written":"2026-01-02T03:04:05Z","containers":[{"id":"web0",` +
		`"started":true,"ready":true}]}`
	for _, test := range []struct {
		name, reason string
		record       string
		lostAt       time.Duration
		want         bool
	}{
		{"lost", "", record, time.Minute, false},
		{"lost, of a kubelet", "", "", time.Minute, false},
		{"ready since", "", record, -time.Minute, true},
		{"waits for a gate", ReasonReadinessGates, record, time.Minute, true},
	} {
		p, status := fromKubelet("web0", true, true)
		status.Conditions = []v1.PodCondition{{Type: v1.ContainersReady, Status: v1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(recordTime.Add(-time.Hour))}, {Type: v1.PodReady,
			Status: v1.ConditionFalse, Reason: test.reason,
			LastTransitionTime: metav1.NewTime(recordTime.Add(test.lostAt))}}
		p.Spec.Status = status
		c := &readRecord(t, p, test.record).Containers[0]
		if h := p.ReportableHealth(c); !h.Started || h.Ready != test.want {
			t.Errorf("%s: %+v", test.name, h)
		}
		if atOnce := c.prober(probe.Readiness).Op != 0; atOnce == test.want {
			t.Errorf("%s: probed at once: %v", test.name, atOnce)
		}
	}
}

// A mirror that comes after the record takes nothing from it, and is read once.
func TestMirrorAfterTheRecord(t *testing.T) {
	p, status := fromKubelet("web0", true, true)
	p.Spec.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	p.Spec.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
		PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook"}}}}
	p.Containers[0].FromOtherAgent = false
	status.Conditions = []v1.PodCondition{{Type: v1.ContainersReady,
		LastTransitionTime: metav1.NewTime(recordTime.Add(time.Minute))}}
	readRecord(t, p, `{"written":"2026-01-02T03:04:05Z","containers":[{"id":"web0",`+
		`"postStarted":true}]}`)
	if h := p.ReportableHealth(&p.Containers[0]); h != (Health{Running: true}) {
		t.Errorf("before the mirror: %+v", h)
	}
	if !p.ObserveReported(&status) {
		t.Error("no change by the mirror")
	}
	want := Health{Running: true, Started: true, Ready: true}
	if h := p.ReportableHealth(&p.Containers[0]); h != want {
		t.Errorf("after the mirror: %+v", h)
	}
	p.Containers[0].prober(probe.Readiness).Result = probe.Unknown
	if p.ObserveReported(&status) {
		t.Error("the mirror was read twice")
	}
}

// The mirror of a node that was lost, which comes after the record and the probes, makes nothing
// unready.
func TestLateMirrorOfALostNode(t *testing.T) {
	p, status := fromKubelet("web0", true, true)
	p.Spec.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	at := metav1.NewTime(recordTime.Add(time.Minute))
	status.Conditions = []v1.PodCondition{
		{Type: v1.ContainersReady, Status: v1.ConditionTrue, LastTransitionTime: at},
		{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: at}}
	readRecord(t, p, `{"written":"2026-01-02T03:04:05Z","containers":[{"id":"web0",`+
		`"started":true,"ready":true}]}`)
	p.ObserveReported(&status)
	if h := p.ReportableHealth(&p.Containers[0]); !h.Ready {
		t.Errorf("%+v", h)
	}
}

// A container that was reported as started has run its postStart hook, if the record is lost.
func TestHookOfALostRecord(t *testing.T) {
	for _, started := range []bool{false, true} {
		p, status := fromKubelet("web0", started, false)
		p.Spec.Spec.Containers[0].Lifecycle = &v1.Lifecycle{
			PostStart: &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"hook"}}}}
		status.Conditions = []v1.PodCondition{{Type: v1.ContainersReady,
			LastTransitionTime: metav1.NewTime(recordTime)}}
		p.Containers[0].FromOtherAgent, p.Spec.Status = false, status
		c := &readRecord(t, p, "").Containers[0]
		if c.PostStart.Done != started || p.ReportableHealth(c).Running != started {
			t.Errorf("started %t: %+v, %+v", started, c.PostStart, p.ReportableHealth(c))
		}
	}
}

// What was reported counts until it is in the record, and a failed probe is not forgotten for it.
func TestReportedHealthEndsWithTheRecord(t *testing.T) {
	p, status := fromKubelet("web0", true, true)
	p.Spec.Status = status
	r := newHarness(t, p).planAt(0).complete("ReadFiles", nil, noRecord)
	r.complete("WriteFile", &world.Done{}, nil)
	if h := p.ReportableHealth(&p.Containers[0]); len(p.Reported.Containers) != 0 || !h.Ready {
		t.Errorf("%v, %+v after the record was written", p.Reported, h)
	}
	r.planAt(10*time.Second).completeExec(1).complete("WriteFile", &world.Done{}, nil)
	if h := p.ReportableHealth(&p.Containers[0]); h.Ready {
		t.Errorf("%+v after a failed probe", h)
	}
}

// The mirror of a static pod may come before the record and after it.
func TestHealthReportedOfStaticPod(t *testing.T) {
	for _, first := range []bool{false, true} {
		p, status := fromKubelet("web0", true, true)
		p.Spec.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		r := newHarness(t, p).planAt(0)
		if first && p.ObserveReported(&status) {
			t.Error("a change before the record was read")
		}
		r.complete("ReadFiles", nil, noRecord)
		if !first && !p.ObserveReported(&status) {
			t.Error("no change by the mirror")
		}
		if h := p.ReportableHealth(&p.Containers[0]); !h.Started || !h.Ready {
			t.Errorf("mirror first %v: %+v", first, h)
		}
		r.complete("WriteFile", &world.Done{}, nil) // if the mirror came later, that of the time before
		if h := p.ReportableHealth(&p.Containers[0]); !h.Started || !h.Ready {
			t.Errorf("mirror first %v, after the record was written: %+v", first, h)
		}
		p.Containers[0].prober(probe.Readiness).Result = probe.Failure
		if p.ObserveReported(&status) {
			t.Error("the mirror changes what a probe has said")
		}
	}
}
