package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

func stopTimeout(r *rig) int64 {
	r.t.Helper()
	return r.want("StopContainer").Body.(*runtimeapi.StopContainerRequest).Timeout
}

func withHook(preStop, postStart *v1.LifecycleHandler) *Pod {
	return running(func(c *v1.Container) {
		c.Lifecycle = &v1.Lifecycle{PreStop: preStop, PostStart: postStart}
	})
}

func unwanted(p *Pod) *Pod {
	p.Unwant(t0)
	return p
}

// TERM comes when the hook has ended, with what is left of the grace period.
func TestPreStopComesBeforeTerm(t *testing.T) {
	r := newRig(t, unwanted(withHook(execHook("drain"), nil)))
	r.at(0).none("StopContainer")
	r.at(12 * time.Second).none("StopContainer")
	r.exec(0)
	if got := stopTimeout(r); got != 18 {
		t.Errorf("%d s are left, want 18 of 30", got)
	}
	r.at(13 * time.Second)
	if n := len(r.calls()); n != 1 {
		t.Errorf("open: %v", r.calls())
	}
}

// A hook that fails holds nothing up; one of which it is not known whether it ran is run again.
func TestPreStopThatFails(t *testing.T) {
	r := newRig(t, unwanted(withHook(execHook("drain"), nil)))
	r.at(0).exec(1)
	if got := stopTimeout(r); got != 30 {
		t.Errorf("%d s are left, want all 30", got)
	}
	r = newRig(t, unwanted(withHook(execHook("drain"), nil)))
	r.at(0).answer("ExecSync", nil, world.Errorf(world.KindUnavailable, "", "gone"))
	r.none("StopContainer")
	r.at(time.Second).exec(0).want("StopContainer")
}

// A hook that uses the grace period up is given up, and two seconds are added.
func TestPreStopThatDoesNotEnd(t *testing.T) {
	r := newRig(t, unwanted(withHook(execHook("drain"), nil)))
	if r.at(0); !r.wake.Equal(t0.Add(30 * time.Second)) {
		t.Errorf("wakes at %v, want at the end of the grace period", r.wake)
	}
	r.at(30 * time.Second).none("ExecSync")
	if got := stopTimeout(r); got != 2 {
		t.Errorf("%d s are left, want the 2 s of the extension", got)
	}
}

func TestPreStopByHTTPAndSleep(t *testing.T) {
	p := withHook(&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
		Path: "/drain", Port: intstr.FromInt32(80)}}, nil)
	p.Sandboxes[0].IPs = []string{"10.0.0.5"}
	r := newRig(t, unwanted(p)).at(0)
	get := r.want("HTTPGet").Body.(*world.HTTPGet)
	if get.Host != "10.0.0.5" || get.Path != "/drain" || get.Headers[0].Value != hookAgent {
		t.Errorf("asks %+v", get)
	}
	r.answer("HTTPGet", &world.HTTPGot{Status: 500}, nil).want("StopContainer")

	r = newRig(t, unwanted(withHook(&v1.LifecycleHandler{
		Sleep: &v1.SleepAction{Seconds: 4}}, nil))).at(0)
	r.at(3 * time.Second).none("StopContainer")
	r.at(4 * time.Second)
	if got := stopTimeout(r); got != 26 {
		t.Errorf("%d s are left, want 26", got)
	}
}

// The hook of a pod whose manifest has gone is the one that its container was created with.
func TestPreStopOfAnOrphan(t *testing.T) {
	p := withHook(execHook("drain"), nil)
	p.Spec = nil
	newRig(t, unwanted(p)).at(0).want("ExecSync")
}

// A container that ends during its hook needs no TERM.
func TestContainerEndsDuringItsHook(t *testing.T) {
	r := newRig(t, unwanted(withHook(execHook("drain"), nil)))
	r.at(0)
	r.pod.Containers[0].advance(Exited, t0)
	r.at(time.Second).none("StopContainer")
}

// A shorter grace period hastens what has begun, be it the hook or the wait after TERM.
func TestShorterGrace(t *testing.T) {
	r := newRig(t, unwanted(withHook(execHook("drain"), nil)))
	r.at(0)
	r.pod.end(Kill{Grace: time.Second}, t0.Add(5*time.Second))
	r.at(5 * time.Second).none("StopContainer")
	r.at(6 * time.Second)
	if got := stopTimeout(r); got != 2 {
		t.Errorf("%d s are left, want 2", got)
	}

	r = newRig(t, unwanted(running(func(*v1.Container) {}))).at(0)
	if got := stopTimeout(r); got != 30 {
		t.Fatalf("%d s, want 30", got)
	}
	r.pod.end(Kill{Grace: 3 * time.Second}, t0.Add(10*time.Second))
	r.at(10 * time.Second)
	if got := stopTimeout(r); got != 3 || len(r.calls()) != 1 {
		t.Errorf("%d s are left, want 3; open: %v", got, r.calls())
	}
	r.pod.end(Kill{Grace: time.Minute}, t0.Add(11*time.Second))
	if r.at(11 * time.Second); r.pod.Kill.Grace != 13*time.Second {
		t.Errorf("a longer period changes the grace to %v", r.pod.Kill.Grace)
	}
}

// The hooks of sidecars begin with everybody else's; TERM waits for their turn.
func TestSidecarsHook(t *testing.T) {
	p := withHook(nil, nil)
	always := v1.ContainerRestartPolicyAlways
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "proxy", Image: "i",
		RestartPolicy: &always}}
	proxy := run("proxy", 0, Running)
	proxy.SandboxID, proxy.Sidecar, proxy.PreStop = "s", 1, execHook("drain")
	p.addContainer(proxy)
	r := newRig(t, unwanted(p)).at(0)
	r.want("ExecSync")
	r.at(10 * time.Second).exec(0)
	stops := 0
	for _, call := range r.calls() {
		if call == "StopContainer" {
			stops++
		}
	}
	if stops != 1 {
		t.Fatalf("%d containers get TERM, want the app alone", stops)
	}
	r.pod.container("web0").advance(Exited, r.now)
	r.pod.Stale = time.Time{}
	r.at(12 * time.Second)
	if got := stopTimeout(r); got != 18 {
		t.Errorf("the sidecar has %d s, want the 18 that are left", got)
	}
}

// A container is waiting until its postStart hook has ended, and so is the one after it.
func TestPostStartHoldsTheNextContainer(t *testing.T) {
	p := withHook(nil, execHook("warm"))
	p.Spec.Spec.Containers = append(p.Spec.Spec.Containers, v1.Container{Name: "two", Image: "i"})
	p.Dir, p.LogDirs = true, []string{"web", "two"}
	r := newRig(t, p).at(0)
	r.none("CreateContainer")
	if s := status(p); s.State.Waiting == nil || s.Ready {
		t.Errorf("shown as %+v during the hook", s.State)
	}
	r.exec(0).answer("WriteFile", &world.Done{}, nil)
	r.want("CreateContainer")
	if s := status(p); s.State.Running == nil || !s.Ready {
		t.Errorf("shown as %+v after the hook", s.State)
	}
	if r.none("ExecSync"); !p.Record.Marks[0].PostStarted {
		t.Error("that the hook has ended is not kept")
	}
}

func TestPostStartThatFailsEndsTheContainer(t *testing.T) {
	for _, err := range []*world.Error{nil, world.Errorf(world.KindInternal, "", "no such file")} {
		r := newRig(t, withHook(nil, execHook("warm"))).at(0)
		if err == nil {
			r.exec(3)
		} else {
			r.answer("ExecSync", nil, err)
		}
		if got := stopTimeout(r); got != 30 {
			t.Errorf("%d s to end, want the pod's 30", got)
		}
	}
}

// After a restart of the agent the hook is run again, unless it is known to have ended, or the
// container is another agent's.
func TestPostStartAfterARestart(t *testing.T) {
	for _, test := range []struct {
		name    string
		foreign bool
		file    string
		runs    bool
	}{
		{"nothing is kept", false, `{}`, true},
		{"it has ended", false, `{"containers":[{"id":"web0","postStarted":true}]}`, false},
		{"another container's", false, `{"containers":[{"id":"x","postStarted":true}]}`, true},
		{"another agent's", true, `{}`, false},
	} {
		p := withHook(nil, execHook("warm"))
		p.Record.Read, p.Containers[0].Foreign = false, test.foreign
		r := newRig(t, p).at(0)
		r.answer("ReadFiles", &world.FilesRead{
			Files: []world.File{{Data: []byte(test.file)}}}, nil)
		if runs := r.find("ExecSync") != nil; runs != test.runs {
			t.Errorf("%s: the hook is run: %v, want %v", test.name, runs, test.runs)
		}
	}
}

func TestAnswerOfAContainerThatHasGone(t *testing.T) {
	p := running(func(*v1.Container) {})
	p.told(op.Record{Call: "ExecSync", Subject: "gone preStop"}, world.Event{}, nil)
	p.told(op.Record{Call: "ExecSync", Subject: "web0 preStop"}, world.Event{}, nil)
	if p.Containers[0].Stop != nil {
		t.Error("an answer has begun an end")
	}
}

// An end that has begun goes on, whatever the spec says now.
func TestAnEndGoesOnWithoutItsReason(t *testing.T) {
	r := newRig(t, running(func(c *v1.Container) {
		probed(probe.Liveness, nil)(c)
		c.Lifecycle = &v1.Lifecycle{PreStop: execHook("drain")}
	}))
	r.at(0).exec(1).at(10 * time.Second).exec(1) // the hook is run
	changed := r.pod.Spec.DeepCopy()
	changed.Spec.Containers[0].LivenessProbe = nil
	r.pod.Want(changed, r.now)
	r.exec(0).want("StopContainer")

	r = newRig(t, withHook(execHook("drain"), nil)).at(0)
	other := r.pod.Spec.DeepCopy()
	back := r.pod.Spec
	other.Spec.Containers[0].Image = "j"
	r.pod.Want(other, r.now)
	r.at(time.Second).want("ExecSync")
	r.pod.Want(back, r.now)
	r.at(2 * time.Second).exec(0).want("StopContainer")
}

// Sidecars keep to their turn when all end because the sandbox is not ready.
func TestSidecarsOfASandboxThatIsNotReady(t *testing.T) {
	p := withHook(nil, nil)
	always := v1.ContainerRestartPolicyAlways
	p.Spec.Spec.InitContainers = []v1.Container{{Name: "proxy", Image: "i",
		RestartPolicy: &always}}
	proxy := run("proxy", 0, Running)
	proxy.SandboxID, proxy.Sidecar, proxy.Hash = "s", 1, hashOf(&p.Spec.Spec.InitContainers[0])
	p.addContainer(proxy)
	p.Sandboxes[0].Ready = false
	r := newRig(t, p).at(0).at(time.Second)
	for _, eff := range r.asked {
		stop, is := eff.Body.(*runtimeapi.StopContainerRequest)
		if is && stop.ContainerId != "web0" {
			t.Errorf("%s gets TERM while web0 runs", stop.ContainerId)
		}
	}
}

// A command needs no address.
func TestACommandDoesNotWaitForTheAddress(t *testing.T) {
	p := unwanted(withHook(execHook("drain"), nil))
	p.Sandboxes[0].Inspected = false
	newRig(t, p).at(0).want("ExecSync")
	p = running(probed(probe.Liveness, nil))
	p.Sandboxes[0].Inspected = false
	newRig(t, p).at(0).want("ExecSync")
}

// That it cannot be learnt how a container is does not put off its end.
func TestAnEndDoesNotWaitForAnInspection(t *testing.T) {
	p := running(func(*v1.Container) {})
	p.Containers[0].Inspected = ""
	r := newRig(t, p).at(0)
	for n := range 6 {
		r.at(time.Duration(n) * time.Minute)
		r.answer("ContainerStatus", nil, world.Errorf(world.KindInternal, "", "broken"))
	}
	p.Unwant(r.now)
	r.at(r.now.Sub(t0)).want("StopContainer")
}

// A hook that a container was not created with is not run.
func TestAPostStartThatComesLater(t *testing.T) {
	r := newRig(t, withHook(nil, nil)).at(0)
	changed := r.pod.Spec.DeepCopy()
	changed.Spec.Containers[0].Lifecycle = &v1.Lifecycle{PostStart: execHook("warm")}
	r.pod.Want(changed, r.now)
	r.at(time.Second).none("ExecSync")
	if s := status(r.pod); s.State.Running == nil || !s.Ready {
		t.Errorf("shown as %+v", s.State)
	}
}

// A container of another agent is shown as running at once.
func TestAContainerOfAnotherAgentIsShownAtOnce(t *testing.T) {
	p := withHook(nil, execHook("warm"))
	p.Record.Read, p.Containers[0].Foreign = false, true
	r := newRig(t, p).at(0)
	r.answer("ReadFiles", nil, world.Errorf(world.KindNotFound, "", "none"))
	if s := status(p); s.State.Running == nil || !s.Ready {
		t.Errorf("shown as %+v", s.State)
	}
}

// A hook that names itself is called so.
func TestAHooksOwnName(t *testing.T) {
	p := withHook(&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: intstr.FromInt32(80),
		HTTPHeaders: []v1.HTTPHeader{{Name: "user-agent", Value: "mine"}}}}, nil)
	get := newRig(t, unwanted(p)).at(0).want("HTTPGet").Body.(*world.HTTPGet)
	if len(get.Headers) != 1 || get.Headers[0].Value != "mine" {
		t.Errorf("headers %+v", get.Headers)
	}
}
