package pod

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

func stopTimeout(r *harness) int64 {
	r.t.Helper()
	return r.expectCall("StopContainer").Body.(*runtimeapi.StopContainerRequest).Timeout
}

func withHook(preStop, postStart *v1.LifecycleHandler) *Pod {
	return runningPod(func(c *v1.Container) {
		c.Lifecycle = &v1.Lifecycle{PreStop: preStop, PostStart: postStart}
	})
}

func notDesired(p *Pod) *Pod {
	p.ClearDesired(t0)
	return p
}

// StopContainer is issued when the preStop hook has completed, with the rest of the grace period.
func TestPreStopRunsBeforeStopContainer(t *testing.T) {
	r := newHarness(t, notDesired(withHook(execHook("drain"), nil)))
	r.planAt(0).expectNoCall("StopContainer")
	r.planAt(12 * time.Second).expectNoCall("StopContainer")
	r.completeExec(0)
	if got := stopTimeout(r); got != 18 {
		t.Errorf("%d s are left, want 18 of 30", got)
	}
	r.planAt(13 * time.Second)
	if n := len(r.openCalls()); n != 1 {
		t.Errorf("open: %v", r.openCalls())
	}
}

// StopContainer does not wait for a hook that has failed. A hook that may not have run is repeated.
func TestFailedPreStop(t *testing.T) {
	r := newHarness(t, notDesired(withHook(execHook("drain"), nil)))
	r.planAt(0).completeExec(1)
	if got := stopTimeout(r); got != 30 {
		t.Errorf("%d s are left, want all 30", got)
	}
	r = newHarness(t, notDesired(withHook(execHook("drain"), nil)))
	r.planAt(0).complete("ExecSync", nil, world.Errorf(world.KindUnavailable, "", "gone"))
	r.expectNoCall("StopContainer")
	r.planAt(time.Second).completeExec(0).expectCall("StopContainer")
}

// A hook that uses up the grace period is not waited for any longer. It goes on for the two more
// seconds that StopContainer gets.
func TestPreStopThatDoesNotComplete(t *testing.T) {
	r := newHarness(t, notDesired(withHook(execHook("drain"), nil)))
	if r.planAt(0); !r.wake.Equal(t0.Add(30 * time.Second)) {
		t.Errorf("wakes at %v, want at the end of the grace period", r.wake)
	}
	hook := r.planAt(30 * time.Second).expectCall("ExecSync").Body.(*runtimeapi.ExecSyncRequest)
	if got := stopTimeout(r); got != 2 || hook.Timeout != 32 {
		t.Errorf("%d s are left, and the hook has %d s", got, hook.Timeout)
	}
	if r.completeExec(137); len(r.openCalls()) != 1 {
		t.Errorf("in flight after the hook has failed: %v", r.openCalls())
	}
}

func TestPreStopByHTTPAndSleep(t *testing.T) {
	p := withHook(&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
		Path: "/drain", Port: intstr.FromInt32(80)}}, nil)
	p.Sandboxes[0].IPs = []string{"10.0.0.5"}
	r := newHarness(t, notDesired(p)).planAt(0)
	get := r.expectCall("HTTPGet").Body.(*world.HTTPGet)
	if get.Host != "10.0.0.5" || get.Path != "/drain" || get.Headers[0].Value != hookUserAgent {
		t.Errorf("requested %+v", get)
	}
	r.complete("HTTPGet", &world.HTTPGot{Status: 500}, nil).expectCall("StopContainer")

	r = newHarness(t, notDesired(withHook(&v1.LifecycleHandler{
		Sleep: &v1.SleepAction{Seconds: 4}}, nil))).planAt(0)
	r.planAt(3 * time.Second).expectNoCall("StopContainer")
	r.planAt(4 * time.Second)
	if got := stopTimeout(r); got != 26 {
		t.Errorf("%d s are left, want 26", got)
	}
}

// The time between the end of the hook and the next plan, as while the runtime returns errors, does
// not count.
func TestDelayAfterPreStop(t *testing.T) {
	r := newHarness(t, notDesired(withHook(&v1.LifecycleHandler{
		Sleep: &v1.SleepAction{Seconds: 4}}, nil))).planAt(0).planAt(time.Minute)
	if got := stopTimeout(r); got != 26 {
		t.Errorf("%d s are left after a sleep, want 26", got)
	}
	r = newHarness(t, notDesired(withHook(execHook("drain"), nil))).planAt(0)
	r.planAt(3 * time.Second)
	record, _ := r.table.Complete(r.findCall("ExecSync").Op)
	r.pod.handleHookCompletion(&r.pod.Containers[0], preStop, record,
		world.Event{Time: r.now, Body: &runtimeapi.ExecSyncResponse{}}, r.env)
	r.planAt(time.Minute)
	if got := stopTimeout(r); got != 27 {
		t.Errorf("%d s are left after a command, want 27", got)
	}
	r = newHarness(t, notDesired(runningPod(func(*v1.Container) {}))).planAt(0)
	if got := stopTimeout(r); got != 30 {
		t.Errorf("%d s without a hook, want 30", got)
	}
}

// A container that the runtime has lost track of may run, so its hook does, too.
func TestPreStopOfUnknownContainer(t *testing.T) {
	p := notDesired(withHook(execHook("drain"), nil))
	p.Containers[0].State = Unknown
	newHarness(t, p).planAt(0).expectCall("ExecSync")
}

// The hook of an orphaned pod is the one that its container was created with.
func TestPreStopOfOrphanedPod(t *testing.T) {
	p := withHook(execHook("drain"), nil)
	p.Spec = nil
	newHarness(t, notDesired(p)).planAt(0).expectCall("ExecSync")
}

// A container that exits during its hook is not stopped.
func TestContainerExitsDuringPreStop(t *testing.T) {
	r := newHarness(t, notDesired(withHook(execHook("drain"), nil)))
	r.planAt(0)
	r.pod.Containers[0].advanceState(Exited, t0)
	r.planAt(time.Second).expectNoCall("StopContainer")
}

// A hook for HTTPS whose server speaks HTTP is sent once more, without TLS and without secrets.
func TestHTTPSHookFallsBackToHTTP(t *testing.T) {
	plain := world.Errorf(world.KindUnavailable, "", "Get: http: %s", world.HTTPInsteadOfHTTPS)
	hook := &v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Scheme: v1.URISchemeHTTPS,
		Port: intstr.FromInt32(80), HTTPHeaders: []v1.HTTPHeader{{Name: "authorization", Value: "x"}}}}
	for _, succeeds := range []bool{true, false} {
		r := newHarness(t, notDesired(withHook(hook, nil))).planAt(0)
		if r.events = nil; r.expectCall("HTTPGet").Body.(*world.HTTPGet).Scheme != "https" {
			t.Error("the first request has no TLS")
		}
		r.complete("HTTPGet", nil, plain)
		got := r.expectCall("HTTPGet").Body.(*world.HTTPGet)
		if got.Scheme != "http" || len(got.Headers) != 1 || got.Headers[0].Name != "User-Agent" {
			t.Errorf("the second request is %+v", got)
		}
		r.expectNoCall("StopContainer")
		if !succeeds {
			r.complete("HTTPGet", nil, plain)
			r.expectEvents("FailedPreStopHook containers{web}: PreStopHook failed")
			continue
		}
		r.complete("HTTPGet", &world.HTTPGot{Status: 500}, nil).expectCall("StopContainer")
		r.expectEvents("LifecycleHTTPFallback: request to HTTPS lifecycle hook 192.0.2.1:80 got HTTP " +
			"response, retry with HTTP succeeded")
		if r.pod.HTTPFallbacks != 1 {
			t.Errorf("%d fallbacks are counted", r.pod.HTTPFallbacks)
		}
	}
}

// A shorter grace period hastens a stop that has started, during the hook and after TERM.
func TestShorterGracePeriodHastensStop(t *testing.T) {
	r := newHarness(t, notDesired(withHook(execHook("drain"), nil)))
	r.planAt(0)
	r.pod.startTermination(Termination{Grace: time.Second}, t0.Add(5*time.Second))
	r.planAt(5 * time.Second).expectNoCall("StopContainer")
	r.planAt(6 * time.Second)
	if got := stopTimeout(r); got != 2 {
		t.Errorf("%d s are left, want 2", got)
	}

	r = newHarness(t, notDesired(runningPod(func(*v1.Container) {}))).planAt(0)
	if got := stopTimeout(r); got != 30 {
		t.Fatalf("%d s, want 30", got)
	}
	r.pod.startTermination(Termination{Grace: 3 * time.Second}, t0.Add(10*time.Second))
	r.planAt(10 * time.Second)
	if got := stopTimeout(r); got != 3 || len(r.openCalls()) != 1 {
		t.Errorf("%d s are left, want 3; open: %v", got, r.openCalls())
	}
	if !slices.ContainsFunc(r.env.Effects.List(), func(eff world.Effect) bool {
		_, isCancel := eff.Body.(*world.CancelOperation)
		return isCancel
	}) {
		t.Error("the longer stop keeps its slot")
	}
	r.pod.startTermination(Termination{Grace: time.Minute}, t0.Add(11*time.Second))
	if r.planAt(11 * time.Second); r.pod.Termination.Grace != 13*time.Second {
		t.Errorf("a longer period changes the grace to %v", r.pod.Termination.Grace)
	}
}

// The hooks of sidecars start together with those of the app containers; StopContainer waits for
// its turn.
func TestPreStopOfSidecar(t *testing.T) {
	p := withHook(nil, nil)
	always := v1.ContainerRestartPolicyAlways
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "proxy", Image: "i",
		RestartPolicy: &always}}
	proxy := run("proxy", 0, Running)
	proxy.SandboxID, proxy.SidecarOrder, proxy.PreStop = "s", 1, execHook("drain")
	p.addContainer(proxy)
	r := newHarness(t, notDesired(p)).planAt(0)
	r.expectCall("ExecSync")
	r.planAt(10 * time.Second).completeExec(0)
	stops := 0
	for _, call := range r.openCalls() {
		if call == "StopContainer" {
			stops++
		}
	}
	if stops != 1 {
		t.Fatalf("%d containers get TERM, want the app alone", stops)
	}
	r.pod.containerByID("web0").advanceState(Exited, r.now)
	r.pod.StaleSince = time.Time{}
	r.planAt(12 * time.Second)
	if got := stopTimeout(r); got != 18 {
		t.Errorf("the sidecar has %d s, want the 18 that are left", got)
	}
}

// The wait for its turn is part of a sidecar's grace period; a delay of one that is stopped alone
// is not.
func TestUsedGraceOfSidecar(t *testing.T) {
	for _, test := range []struct {
		stop Stop
		want time.Duration
	}{
		{Stop{StartedAt: t0, InOrder: true}, 12 * time.Second},
		{Stop{StartedAt: t0}, 0},
		{Stop{StartedAt: t0, PreStop: Hook{EndedAt: t0.Add(5 * time.Second)}}, 5 * time.Second},
	} {
		c := &Container{Stop: &test.stop}
		c.SidecarOrder = 1
		if got := c.usedGrace(t0.Add(12 * time.Second)); got != test.want {
			t.Errorf("%+v: %v, want %v", test.stop, got, test.want)
		}
	}
}

// A container is waiting until its postStart hook has completed, and the next container waits for
// it.
func TestNextContainerWaitsForPostStart(t *testing.T) {
	p := withHook(nil, execHook("warm"))
	p.Spec.Spec.Containers = append(p.Spec.Spec.Containers, v1.Container{Name: "two", Image: "i"})
	p.DirCreated, p.LogDirs = true, []string{"web", "two"}
	r := newHarness(t, p).planAt(0)
	r.expectNoCall("CreateContainer")
	if s := status(p); s.State.Waiting == nil || s.Ready {
		t.Errorf("state %+v during the hook", s.State)
	}
	r.completeExec(0).complete("WriteFile", &world.Done{}, nil)
	r.expectCall("CreateContainer")
	if s := status(p); s.State.Running == nil || !s.Ready {
		t.Errorf("state %+v after the hook", s.State)
	}
	if r.expectNoCall("ExecSync"); !p.Record.Containers[0].PostStarted {
		t.Error("the completion of the hook is not durable")
	}
}

func TestFailedPostStartStopsContainer(t *testing.T) {
	for _, err := range []*world.Error{nil, world.Errorf(world.KindInternal, "", "no such file")} {
		r := newHarness(t, withHook(nil, execHook("warm"))).planAt(0)
		if err == nil {
			r.completeExec(3)
		} else {
			r.complete("ExecSync", nil, err)
		}
		if got := stopTimeout(r); got != 30 {
			t.Errorf("%d s to stop, want the pod's 30", got)
		}
	}
}

// After a restart of the agent the hook runs again, unless it is known to have completed or another
// agent has created the container.
func TestPostStartAfterAgentRestart(t *testing.T) {
	for _, test := range []struct {
		name    string
		foreign bool
		file    string
		runs    bool
	}{
		{"empty record", false, `{}`, true},
		{"completed", false, `{"containers":[{"id":"web0","postStarted":true}]}`, false},
		{"another container's", false, `{"containers":[{"id":"x","postStarted":true}]}`, true},
		{"another agent's", true, `{}`, false},
	} {
		p := withHook(nil, execHook("warm"))
		p.Record.Loaded, p.Containers[0].FromOtherAgent = false, test.foreign
		r := newHarness(t, p).planAt(0)
		r.complete("ReadFiles", &world.FilesRead{
			Files: []world.File{{Data: []byte(test.file)}}}, nil)
		if runs := r.findCall("ExecSync") != nil; runs != test.runs {
			t.Errorf("%s: the hook runs: %v, want %v", test.name, runs, test.runs)
		}
	}
}

func TestHookCompletionOfRemovedContainer(t *testing.T) {
	p := runningPod(func(*v1.Container) {})
	p.handleProbeOrHook(op.Record{Call: "ExecSync", Subject: "gone preStop"}, world.Event{}, nil)
	p.handleProbeOrHook(op.Record{Call: "ExecSync", Subject: "web0 preStop"}, world.Event{}, nil)
	if p.Containers[0].Stop != nil {
		t.Error("a completion has started a stop")
	}
}

// A stop that has started goes on, whatever the spec says now.
func TestStopGoesOnWithoutItsReason(t *testing.T) {
	r := newHarness(t, runningPod(func(c *v1.Container) {
		withProbe(probe.Liveness, nil)(c)
		c.Lifecycle = &v1.Lifecycle{PreStop: execHook("drain")}
	}))
	r.planAt(0).completeExec(1).planAt(10 * time.Second).completeExec(1) // the hook runs
	changed := r.pod.Spec.DeepCopy()
	changed.Spec.Containers[0].LivenessProbe = nil
	r.pod.SetDesired(changed, nil, r.now)
	r.completeExec(0).expectCall("StopContainer")

	r = newHarness(t, withHook(execHook("drain"), nil)).planAt(0)
	other := r.pod.Spec.DeepCopy()
	back := r.pod.Spec
	other.Spec.Containers[0].Image = "j"
	r.pod.SetDesired(other, nil, r.now)
	r.planAt(time.Second).expectCall("ExecSync")
	r.pod.SetDesired(back, nil, r.now)
	r.planAt(2 * time.Second).completeExec(0).expectCall("StopContainer")
}

// Sidecars are stopped in their order when all containers stop because the sandbox is not ready.
func TestSidecarsOfNotReadySandboxStopInOrder(t *testing.T) {
	p := withHook(nil, nil)
	always := v1.ContainerRestartPolicyAlways
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "proxy", Image: "i",
		RestartPolicy: &always}}
	proxy := run("proxy", 0, Running)
	proxy.SandboxID, proxy.SidecarOrder = "s", 1
	proxy.Hash = containerHash(&p.Spec.Spec.InitContainers[0])
	p.addContainer(proxy)
	p.Sandboxes[0].Ready = false
	r := newHarness(t, p).planAt(0).planAt(time.Second)
	for _, eff := range r.issued {
		stop, ok := eff.Body.(*runtimeapi.StopContainerRequest)
		if ok && stop.ContainerId != "web0" {
			t.Errorf("%s gets TERM while web0 runs", stop.ContainerId)
		}
	}
}

// The sidecars of a kubelet, which does not write down their order, are stopped in it nevertheless.
func TestSidecarsOfOtherAgentStopInOrder(t *testing.T) {
	p := withHook(nil, nil)
	always := v1.ContainerRestartPolicyAlways
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "proxy", Image: "i", RestartPolicy: &always}}
	proxy := run("proxy", 0, Running)
	proxy.SandboxID, proxy.FromOtherAgent = "s", true
	proxy.Hash = containerHash(&p.Spec.Spec.InitContainers[0])
	p.addContainer(proxy)
	r := newHarness(t, notDesired(p)).planAt(0)
	stops := 0
	for _, eff := range r.issued {
		stop, ok := eff.Body.(*runtimeapi.StopContainerRequest)
		if ok {
			stops++
		}
		if ok && stop.ContainerId != "web0" {
			t.Errorf("%s gets TERM while web0 runs", stop.ContainerId)
		}
	}
	if stops != 1 {
		t.Errorf("%d stops, want that of the app container", stops)
	}
}

// Hooks that do not complete hold up no other container: when the grace period is used up, all
// sidecars are stopped at the same time as the app containers.
func TestSidecarsWithEndlessHooksStopTogether(t *testing.T) {
	p := withHook(execHook("drain"), nil)
	always := v1.ContainerRestartPolicyAlways
	for i, name := range []string{"proxy", "logger"} {
		p.Spec.Spec.InitContainers = append(p.Spec.Spec.InitContainers, v1.Container{Name: name,
			Image: "i", RestartPolicy: &always})
		sidecar := run(name, 0, Running)
		sidecar.SandboxID, sidecar.SidecarOrder = "s", i+1
		sidecar.Hash = containerHash(&p.Spec.Spec.InitContainers[i])
		p.addContainer(sidecar)
	}
	p.containerByID("proxy0").PreStop = execHook("drain")
	r := newHarness(t, notDesired(p)).planAt(0).planAt(29 * time.Second)
	r.expectNoCall("StopContainer")
	r.planAt(30 * time.Second)
	timeouts := map[string]int64{}
	for _, eff := range r.issued {
		if stop, ok := eff.Body.(*runtimeapi.StopContainerRequest); ok {
			timeouts[stop.ContainerId] = stop.Timeout
		}
	}
	if len(timeouts) != 3 || timeouts["web0"] != 2 || timeouts["proxy0"] != 2 ||
		timeouts["logger0"] != 2 {
		t.Errorf("timeouts of the stops at 30 s: %v", timeouts)
	}
}

// A command in the container does not wait until the pod's IP is known.
func TestExecDoesNotWaitForPodIP(t *testing.T) {
	p := notDesired(withHook(execHook("drain"), nil))
	p.Sandboxes[0].Inspected = false
	newHarness(t, p).planAt(0).expectCall("ExecSync")
	p = runningPod(withProbe(probe.Liveness, nil))
	p.Sandboxes[0].Inspected = false
	newHarness(t, p).planAt(0).expectCall("ExecSync")
}

// A failing ContainerStatus does not delay the stop of a container.
func TestStopDoesNotWaitForInspection(t *testing.T) {
	p := runningPod(func(*v1.Container) {})
	p.Containers[0].Inspected = ""
	r := newHarness(t, p).planAt(0)
	for n := range 6 {
		r.planAt(time.Duration(n) * time.Minute)
		r.complete("ContainerStatus", nil, world.Errorf(world.KindInternal, "", "broken"))
	}
	p.ClearDesired(r.now)
	r.planAt(r.now.Sub(t0)).expectCall("StopContainer")
}

// A hook that a container was not created with does not run.
func TestPostStartOfChangedSpecDoesNotRun(t *testing.T) {
	r := newHarness(t, withHook(nil, nil)).planAt(0)
	changed := r.pod.Spec.DeepCopy()
	changed.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: execHook("warm")}
	r.pod.SetDesired(changed, nil, r.now)
	r.planAt(time.Second).expectNoCall("ExecSync")
	if s := status(r.pod); s.State.Running == nil || !s.Ready {
		t.Errorf("state %+v", s.State)
	}
}

// A container of another agent is reported as running at once.
func TestContainerOfOtherAgentIsReadyAtOnce(t *testing.T) {
	p := withHook(nil, execHook("warm"))
	p.Record.Loaded, p.Containers[0].FromOtherAgent = false, true
	r := newHarness(t, p).planAt(0)
	r.complete("ReadFiles", nil, world.Errorf(world.KindNotFound, "", "none"))
	if s := status(p); s.State.Running == nil || !s.Ready {
		t.Errorf("state %+v", s.State)
	}
}

// A hook with a User-Agent header of its own keeps it.
func TestHookKeepsItsUserAgent(t *testing.T) {
	p := withHook(&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80),
		HTTPHeaders: []v1.HTTPHeader{{Name: "user-agent", Value: "mine"}}}}, nil)
	get := newHarness(t, notDesired(p)).planAt(0).expectCall("HTTPGet").Body.(*world.HTTPGet)
	if len(get.Headers) != 1 || get.Headers[0].Value != "mine" {
		t.Errorf("headers %+v", get.Headers)
	}
}
