package pod

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func spec(policy v1.RestartPolicy, init, app string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "default", Name: "p"}}
	pod.Spec.RestartPolicy = policy
	if init != "" {
		pod.Spec.InitContainers = []v1.Container{{Name: init, Image: "i"}}
	}
	pod.Spec.Containers = []v1.Container{{Name: app, Image: "i"}}
	return pod
}

// facts makes an observed pod with a ready sandbox and the given containers in it.
func facts(spec *v1.Pod, containers ...Container) *Pod {
	p := New(spec, false, true, t0)
	p.Observed, p.Record = true, Record{Read: true, Start: t0}
	p.addSandbox(Sandbox{ID: "s", Ready: true, Inspected: true})
	for _, c := range containers {
		if c.SandboxID == "" {
			c.SandboxID = "s"
		}
		p.addContainer(c)
	}
	return p
}

func run(name string, attempt uint32, s State) Container {
	return Container{Name: name, ID: name + string('0'+rune(attempt)), Attempt: attempt, State: s,
		Inspected: s, StartedAt: t0, FinishedAt: t0.Add(time.Minute), Exited: t0.Add(time.Minute)}
}

func failed(name string, attempt uint32, backoff time.Duration) Container {
	c := run(name, attempt, Exited)
	c.ExitCode, c.Backoff = 1, backoff
	return c
}

func TestAppWaitsForInit(t *testing.T) {
	p := facts(spec(v1.RestartPolicyAlways, "setup", "web"), run("setup", 0, Running))
	if p.initialized() {
		t.Error("initialized while the init container runs")
	}
	p = facts(spec(v1.RestartPolicyAlways, "setup", "web"), run("setup", 0, Exited))
	if !p.initialized() {
		t.Error("not initialized although the init container completed")
	}
	p = facts(spec(v1.RestartPolicyAlways, "setup", "web"), run("web", 0, Running))
	if !p.initialized() {
		t.Error("the init container would run again because its record has gone")
	}
}

func TestInitRunsAgainInANewSandbox(t *testing.T) {
	old := run("setup", 0, Exited)
	old.SandboxID = "before"
	p := facts(spec(v1.RestartPolicyAlways, "setup", "web"), old)
	if p.initialized() {
		t.Fatal("an init container of an older sandbox counts")
	}
	if got, _ := p.next(p.want("setup"), Init, t0); got != Create {
		t.Errorf("setup: %s, want Create", got)
	}
}

func TestNext(t *testing.T) {
	created, elsewhere := run("web", 0, Created), run("web", 0, Created)
	elsewhere.SandboxID = "before"
	unread := failed("web", 0, 0)
	unread.Inspected = Running
	for _, test := range []struct {
		name   string
		policy v1.RestartPolicy
		have   []Container
		want   Action
		at     time.Duration // after t0
	}{
		{"nothing yet", v1.RestartPolicyAlways, nil, Create, 0},
		{"created", v1.RestartPolicyNever, []Container{created}, Start, 0},
		{"created in an older sandbox", v1.RestartPolicyNever, []Container{elsewhere}, Create, 0},
		{"runs", v1.RestartPolicyAlways, []Container{run("web", 0, Running)}, Nothing, 0},
		{"how it ended is unknown", v1.RestartPolicyAlways, []Container{unread}, Wait, 0},
		{"first crash", v1.RestartPolicyAlways, []Container{failed("web", 0, 0)}, Create, 0},
		{"second crash", v1.RestartPolicyAlways,
			[]Container{failed("web", 0, 0), failed("web", 1, 10*time.Second)},
			Wait, time.Minute + 10*time.Second},
		{"crash, never", v1.RestartPolicyNever, []Container{failed("web", 0, 0)}, Ended, 0},
		{"success, on failure", v1.RestartPolicyOnFailure,
			[]Container{run("web", 0, Exited)}, Ended, 0},
		{"crash, on failure", v1.RestartPolicyOnFailure,
			[]Container{failed("web", 0, 0)}, Create, 0},
	} {
		p := facts(spec(test.policy, "", "web"), test.have...)
		got, at := p.next(p.want("web"), App, t0.Add(time.Minute+time.Second))
		if got != test.want || test.at != 0 && !at.Equal(t0.Add(test.at)) {
			t.Errorf("%s: %s until %v, want %s until t0+%v", test.name, got, at, test.want, test.at)
		}
	}
}

// A container made in an older sandbox and never started does not hide the run that counts.
func TestAStrayIsNoRun(t *testing.T) {
	stray := run("web", 1, Created)
	stray.SandboxID = "before"
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running), stray)
	if got := p.newest("web"); got.Attempt != 0 {
		t.Errorf("the newest run is attempt %d, want 0", got.Attempt)
	}
	if len(p.unready()) > 0 {
		t.Error("not ready because of a container that never runs")
	}
}

func TestBackoff(t *testing.T) {
	var c *Container
	for i, want := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300} {
		got := backoffAfter(c, 300*time.Second)
		if got != want*time.Second {
			t.Errorf("run %d: %v, want %v s", i, got, want)
		}
		c = &Container{StartedAt: t0, FinishedAt: t0.Add(time.Second), Backoff: got}
	}
	c.FinishedAt = t0.Add(11 * time.Minute)
	if c.wait() != 0 || backoffAfter(c, 300*time.Second) != 10*time.Second {
		t.Errorf("after a long run: wait %v, then %v", c.wait(), backoffAfter(c, 300*time.Second))
	}
	if got := backoffAfter(nil, time.Second); got != 0 {
		t.Errorf("first run: %v", got)
	}
	if got := backoffAfter(&Container{}, time.Second); got != time.Second {
		t.Errorf("with a maximum of 1 s: %v", got)
	}
}

// An observation can be late without doing harm: states only go forward.
func TestStatesOnlyGoForward(t *testing.T) {
	c := run("web", 0, Running)
	if c.advance(Created, t0) || c.State != Running {
		t.Error("a late list made a running container a created one")
	}
	if !c.advance(Exited, t0) || c.advance(Running, t0) || c.State != Exited {
		t.Error("a late list made an exited container run")
	}
}

// A list that was asked for before a container was made says nothing about it.
func TestAbsenceInAnOlderList(t *testing.T) {
	c := run("web", 0, Running)
	c.Learned = t0.Add(time.Second)
	p := facts(spec(v1.RestartPolicyAlways, "", "web"), c)
	p.Sandboxes[0].Learned = t0
	p.Sandboxes[0].seenIn = 7
	p.ObserveEnd(7, t0.Add(time.Second))
	if len(p.Containers) != 1 {
		t.Error("a container is taken for gone by a list older than itself")
	}
	p.ObserveEnd(8, t0.Add(2*time.Second))
	if len(p.Containers) != 0 || len(p.Sandboxes) != 0 {
		t.Error("what a newer list does not have is still known")
	}
}

// A list that was asked for before the predecessor of a pod was removed may still have what is
// gone: the pod does not take it for its own.
func TestALateListOfThePredecessor(t *testing.T) {
	p := New(spec(v1.RestartPolicyAlways, "", "web"), true, true, t0.Add(10*time.Second))
	old := &pleg.Sandbox{ID: "old", UID: "u", Attempt: 1}
	gone := &pleg.Container{ID: "gone", UID: "u", Name: "web", Attempt: 3}
	asked := t0.Add(9 * time.Second)
	if p.ObserveSandbox(old, 1, asked) || p.ObserveContainer(gone, 1, asked, t0.Add(time.Hour)) {
		t.Error("what was removed before the pod was made is taken for its own")
	}
	asked = t0.Add(11 * time.Second)
	if !p.ObserveSandbox(old, 2, asked) || !p.ObserveContainer(gone, 2, asked, asked) {
		t.Error("what a later list has is not taken up")
	}
}

// The runtime's clock may be years from the agent's: a restart waits from the earlier of the two.
func TestRestartDoesNotTrustTheRuntimesClock(t *testing.T) {
	c := failed("web", 1, 10*time.Second)
	c.StartedAt, c.FinishedAt, c.Exited = t0.AddDate(10, 0, 0), t0.AddDate(10, 0, 0), t0
	if got := c.restartAt(); !got.Equal(t0.Add(10 * time.Second)) {
		t.Errorf("restarts at %v", got)
	}
	c.FinishedAt = time.Time{}
	if got := c.restartAt(); !got.Equal(t0.Add(10 * time.Second)) {
		t.Errorf("without an end, restarts at %v", got)
	}
}

// A container that was made from another spec runs again whatever the policy says, and at once.
func TestAChangedContainerRunsAgain(t *testing.T) {
	old := failed("web", 3, 5*time.Minute)
	old.Hash = "another"
	p := facts(spec(v1.RestartPolicyNever, "", "web"), old)
	if p.completed() {
		t.Error("the pod is over before its new container has run")
	}
	if got, _ := p.next(p.want("web"), App, t0.Add(time.Minute)); got != Create {
		t.Errorf("%s, want Create", got)
	}
	if next := p.run(p.want("web"), &Node{BackoffMax: time.Hour}); next.Backoff != 0 {
		t.Errorf("made with a back-off of %v", next.Backoff)
	}
}

func TestGraceIsClamped(t *testing.T) {
	pod := spec(v1.RestartPolicyAlways, "", "web")
	endless := int64(math.MaxInt64)
	pod.Spec.TerminationGracePeriodSeconds = &endless
	if got := facts(pod).grace(); got != graceMaxSeconds*time.Second {
		t.Errorf("grace %v", got)
	}
}

func TestTerminalPhaseIsAbsorbing(t *testing.T) {
	for want, c := range map[v1.PodPhase]Container{
		v1.PodFailed: failed("web", 0, 0), v1.PodSucceeded: run("web", 0, Exited),
	} {
		p := facts(spec(v1.RestartPolicyNever, "", "web"), c)
		p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
		r := newRig(t, p).at(0)
		p.Stale = time.Time{}
		if r.at(time.Second); p.Phase == want {
			t.Errorf("%s before it is kept", want)
		}
		r.answer("WriteFile", &world.Done{}, nil)
		if p.Phase != want {
			t.Errorf("phase %s, want %s", p.Phase, want)
		}
		p.dropContainer("web0")
		next := facts(p.Spec) // of an agent that finds nothing but what was kept
		next.Record.End, next.Sandboxes = p.Record.End, nil
		next.restore(r.env)
		next.Stale = time.Time{}
		if newRig(t, next).at(0); next.Phase != want || next.Stage != Terminated {
			t.Errorf("the next agent: phase %s, want %s", next.Phase, want)
		}
	}
}

// An agent that comes up while a container is made anew knows that the pod has run before.
func TestAPodThatHasRunIsNotPending(t *testing.T) {
	always := spec(v1.RestartPolicyAlways, "", "web")
	if got := facts(always, run("web", 0, Created)).phase(); got != v1.PodPending {
		t.Errorf("the first container is made: phase %s, want Pending", got)
	}
	again := facts(always, failed("web", 0, 0), run("web", 1, Created))
	if got := again.phase(); got != v1.PodRunning {
		t.Errorf("the second is made: phase %s, want Running", got)
	}
}

// A sidecar lets the next container start once it runs, is restarted whatever the policy says,
// and does not keep the pod from completing.
func TestSidecar(t *testing.T) {
	pod := spec(v1.RestartPolicyNever, "proxy", "web")
	always := v1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers[0].RestartPolicy = &always
	p := facts(pod, run("proxy", 0, Created))
	if p.initialized() {
		t.Error("the app may start before its sidecar runs")
	}
	p = facts(pod, run("proxy", 0, Running))
	if !p.initialized() {
		t.Error("the app waits for a sidecar that runs")
	}
	p = facts(pod, failed("proxy", 0, 0), run("web", 0, Running))
	if got, _ := p.next(p.want("proxy"), Sidecar, t0.Add(time.Hour)); got != Create {
		t.Errorf("a sidecar that has crashed: %s, want Create", got)
	}
	if p = facts(pod, run("proxy", 0, Running), run("web", 0, Exited)); !p.completed() {
		t.Error("a pod does not complete because its sidecar runs")
	}
}

// No name that a container may have is taken for something else.
func TestContainersOfEveryName(t *testing.T) {
	for _, name := range []string{"record", "logs", "pod", "storage", "left", "volume"} {
		p := facts(spec(v1.RestartPolicyAlways, "", name))
		r := newRig(t, p).at(0)
		for range 5 {
			if r.find("MakeDir") == nil {
				break
			}
			r.answer("MakeDir", &world.Done{}, nil)
		}
		if r.find("CreateContainer") == nil {
			t.Errorf("a container named %q is not made, open: %v, op %d", name, r.calls(), p.Op)
		}
	}
}

// That the containers of a pod failed is no word about its initialisation, as with the kubelet.
func TestInitializedOfAPodThatFailed(t *testing.T) {
	p := facts(spec(v1.RestartPolicyNever, "", "web"), failed("web", 0, 0))
	p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
	r := newRig(t, p).at(0)
	p.Stale = time.Time{}
	r.at(time.Second).answer("WriteFile", &world.Done{}, nil)
	for _, c := range p.Conditions {
		if c.Type == v1.PodInitialized && (!c.Status || c.Reason != "") {
			t.Errorf("phase %s: initialized %v, reason %q", p.Phase, c.Status, c.Reason)
		}
	}
	if p.Phase != v1.PodFailed {
		t.Errorf("phase %s", p.Phase)
	}
}
