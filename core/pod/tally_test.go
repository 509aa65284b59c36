package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
)

func TestCensus(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited),
		run("web", 1, Running), run("log", 0, Unknown))
	p.Spec.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	want := Census{Running: 1, Static: 1, ActiveStatic: 1, Runs: 1, Exited: 1, Unknown: 1}
	if got := p.Census(); got != want {
		t.Errorf("a static pod counts (-want +got):\n%s", cmp.Diff(want, got))
	}
	p.Spec.Annotations = map[string]string{"kubernetes.io/config.source": "api"}
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	want = Census{Active: 1, Runs: 1, Exited: 1, Unknown: 1}
	if got := p.Census(); got != want {
		t.Errorf("a pod of the API server counts (-want +got):\n%s", cmp.Diff(want, got))
	}
	p.Spec = nil
	want.Active = 0
	if got := p.Census(); got != want {
		t.Errorf("an orphan counts (-want +got):\n%s", cmp.Diff(want, got))
	}
	var sum Census
	sum.Add(want, 3)
	if sum.Add(want, -3); sum != (Census{}) {
		t.Errorf("what was added and taken away leaves %+v", sum)
	}
}

func TestBusy(t *testing.T) {
	for name, change := range map[string]func(*Pod){
		"makes":        func(p *Pod) { p.Op = 1 },
		"stops":        func(p *Pod) { p.Containers[0].Op = 1 },
		"looks":        func(p *Pod) { p.Containers[0].InspectOp = 1 },
		"ends":         func(p *Pod) { p.Sandboxes[0].Op = 1 },
		"has to pull":  func(p *Pod) { p.Needs = []Need{{Container: "web"}} },
		"waits":        func(p *Pod) { p.Stale = t0 },
		"is ended":     func(p *Pod) { p.Stage = Terminating },
		"has its rest": nil,
	} {
		p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running))
		if change != nil {
			change(p)
		}
		if got := p.Busy(); got != (change != nil) {
			t.Errorf("a pod that %s is busy: %t", name, got)
		}
	}
}

func TestProbed(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running))
	for subject, want := range map[string]probe.Kind{"web0 Liveness": probe.Liveness,
		"web0 Startup": probe.Startup, "web0 preStop": "", "web9 Liveness": "", "": ""} {
		name, kind, ok := p.Probed(op.Record{Subject: subject})
		if kind != want || ok != (want != "") || ok && name != "web" {
			t.Errorf("%q probes %q as %q", subject, name, kind)
		}
	}
}

func TestInitTime(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running),
		run("setup", 0, Exited))
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	c := p.container("setup0")
	c.Inspected, c.StartedAt, c.FinishedAt = Exited, t0, t0.Add(time.Minute)
	if got := p.InitTime(); got != time.Minute {
		t.Errorf("init containers ran for %v", got)
	}
}

func TestStateful(t *testing.T) {
	p := spec(v1.RestartPolicyAlways, "", "web")
	p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	if Stateful(p) {
		t.Error("a pod with an emptyDir is called stateful")
	}
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{
		HostPath: &v1.HostPathVolumeSource{}}})
	if !Stateful(p) {
		t.Error("a pod with a hostPath is not called stateful")
	}
}

func TestAllStarted(t *testing.T) {
	running := v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	running.State.Running.StartedAt.Time = t0
	for want, statuses := range map[bool][]v1.ContainerStatus{
		true: {running, running}, false: {running, {}}} {
		if got := AllStarted(&v1.PodStatus{ContainerStatuses: statuses}); got != want {
			t.Errorf("%v: %t", statuses, got)
		}
	}
	if AllStarted(&v1.PodStatus{}) {
		t.Error("a status of nothing says that all have started")
	}
}
