package pod

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
)

func TestCounts(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Exited),
		run("web", 1, Running), run("log", 0, Unknown))
	p.Spec.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	want := Counts{RunningPods: 1, StaticPods: 1, ActiveStaticPods: 1, RunningContainers: 1,
		ExitedContainers: 1, UnknownContainers: 1}
	want.Working[DesiredStaticPod][0] = 1
	if got := p.Counts(); got != want {
		t.Errorf("static pod (-want +got):\n%s", cmp.Diff(want, got))
	}
	p.Spec.Annotations = map[string]string{"kubernetes.io/config.source": "api"}
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	want = Counts{ActivePods: 1, RunningContainers: 1, ExitedContainers: 1, UnknownContainers: 1}
	want.Working[DesiredPod][0] = 1
	if got := p.Counts(); got != want {
		t.Errorf("pod of the API server (-want +got):\n%s", cmp.Diff(want, got))
	}
	p.Spec = nil
	want.ActivePods = 0
	want.Working[DesiredPod][0], want.Working[RuntimeOnlyPod][0] = 0, 1
	if got := p.Counts(); got != want {
		t.Errorf("orphaned pod (-want +got):\n%s", cmp.Diff(want, got))
	}
	for _, c := range []struct {
		stage   Stage
		static  bool
		orphan  bool
		config  Config
		inStage int
	}{
		{Terminating, false, false, DesiredPod, 1}, {Terminated, true, false, DesiredStaticPod, 2},
		{Terminating, false, true, OrphanedPod, 1}, {Terminated, true, true, OrphanedStaticPod, 2},
	} {
		p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
		p.Stage, p.NoLongerDesired = c.stage, c.orphan
		if c.static {
			p.Spec.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
		}
		var want Counts
		want.Working[c.config][c.inStage] = 1
		if got := p.Counts().Working; got != want.Working {
			t.Errorf("%+v: %v", c, got)
		}
	}
	var sum Counts
	sum.Add(want, 3)
	if sum.Add(want, -3); sum != (Counts{}) {
		t.Errorf("adding and subtracting the same counts leaves %+v", sum)
	}
}

func TestIsBusy(t *testing.T) {
	for name, change := range map[string]func(*Pod){
		"a creation in flight": func(p *Pod) { p.Op = 1 },
		"a container stop":     func(p *Pod) { p.Containers[0].Op = 1 },
		"an inspection":        func(p *Pod) { p.Containers[0].InspectOp = 1 },
		"a sandbox stop":       func(p *Pod) { p.Sandboxes[0].Op = 1 },
		"a pending image": func(p *Pod) {
			p.PendingImages = []PendingImage{{Container: "web"}}
		},
		"stale observations":        func(p *Pod) { p.StaleSince = t0 },
		"a termination in progress": func(p *Pod) { p.Stage = Terminating },
		"nothing to do":             nil,
	} {
		p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running))
		if change != nil {
			change(p)
		}
		if got := p.IsBusy(); got != (change != nil) {
			t.Errorf("a pod with %s is busy: %t", name, got)
		}
	}
}

func TestProbedContainer(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running))
	for subject, want := range map[string]probe.Kind{"web0 Liveness": probe.Liveness,
		"web0 Startup": probe.Startup, "web0 preStop": "", "web9 Liveness": "", "": ""} {
		name, kind, ok := p.ProbedContainer(op.Record{Subject: subject})
		if kind != want || ok != (want != "") || ok && name != "web" {
			t.Errorf("%q probes %q as %q", subject, name, kind)
		}
	}
}

func TestInitDuration(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running),
		run("setup", 0, Exited))
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "setup"}}
	c := p.containerByID("setup0")
	c.Inspected, c.StartedAt, c.FinishedAt = Exited, t0, t0.Add(time.Minute)
	if got := p.InitDuration(); got != time.Minute {
		t.Errorf("init containers ran for %v", got)
	}
}

func TestIsStateful(t *testing.T) {
	p := spec(v1.RestartPolicyAlways, "", "web")
	p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	if IsStateful(p) {
		t.Error("a pod with an emptyDir counts as stateful")
	}
	p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{VolumeSource: v1.VolumeSource{
		HostPath: &v1.HostPathVolumeSource{}}})
	if !IsStateful(p) {
		t.Error("a pod with a hostPath does not count as stateful")
	}
}

func TestAreAllContainersStarted(t *testing.T) {
	running := v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}
	running.State.Running.StartedAt.Time = t0
	for want, statuses := range map[bool][]v1.ContainerStatus{
		true: {running, running}, false: {running, {}}} {
		if got := AreAllContainersStarted(&v1.PodStatus{ContainerStatuses: statuses}); got != want {
			t.Errorf("%v: %t", statuses, got)
		}
	}
	if AreAllContainersStarted(&v1.PodStatus{}) {
		t.Error("a status without containers counts as started")
	}
}
