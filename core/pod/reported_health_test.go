package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

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

// A container of a kubelet stays as the API server has it, until its probes say something else.
// This is reported at once, and is durable later.
func TestHealthReportedByOtherAgent(t *testing.T) {
	for _, test := range []struct {
		name                    string
		id                      string
		started, ready, foreign bool
		record                  string
		wantStarted, wantReady  bool
	}{
		{"ready", "web0", true, true, true, "", true, true},
		{"started", "web0", true, false, true, "", true, false},
		{"neither", "web0", false, false, true, "", false, false},
		{"of another run", "web9", true, true, true, "", false, false},
		{"of the agent's own container", "web0", true, true, false, "", false, false},
		{"older than the record", "web0", true, true, true,
			`{"containers":[{"id":"web0","started":true}]}`, true, false},
	} {
		p, status := fromKubelet(test.id, test.started, test.ready)
		p.Containers[0].FromOtherAgent, p.Spec.Status = test.foreign, status
		r := newHarness(t, p).planAt(0)
		if test.record == "" {
			r.complete("ReadFiles", nil, noRecord)
		} else {
			r.complete("ReadFiles", &world.FilesRead{
				Files: []world.File{{Data: []byte(test.record)}}}, nil)
		}
		h := p.ReportableHealth(&p.Containers[0])
		if h.Started != test.wantStarted || h.Ready != test.wantReady {
			t.Errorf("%s: %+v", test.name, h)
		}
	}
}

// What was reported counts until it is in the record, and a failed probe is not forgotten for it.
func TestReportedHealthEndsWithTheRecord(t *testing.T) {
	p, status := fromKubelet("web0", true, true)
	p.Spec.Status = status
	r := newHarness(t, p).planAt(0).complete("ReadFiles", nil, noRecord)
	r.complete("WriteFile", &world.Done{}, nil)
	if h := p.ReportableHealth(&p.Containers[0]); len(p.Reported) != 0 || !h.Ready {
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
