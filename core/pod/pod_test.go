package pod

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/criconfig"
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

// podWith returns an observed pod with a ready sandbox and the given containers in it.
func podWith(spec *v1.Pod, containers ...Container) *Pod {
	p := New(spec, nil, false, true, t0)
	p.Observed, p.Record = true, Record{Loaded: true, StartTime: t0}
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
	return Container{Name: name, ID: name + string('0'+rune(attempt)),
		Run: criconfig.Run{Attempt: attempt}, State: s, Inspected: s,
		StartedAt: t0, FinishedAt: t0.Add(time.Minute), ExitSeenAt: t0.Add(time.Minute)}
}

func failedRun(name string, attempt uint32, backoff time.Duration) Container {
	c := run(name, attempt, Exited)
	c.ExitCode, c.Backoff = 1, backoff
	return c
}

func TestAppWaitsForInit(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "setup", "web"), run("setup", 0, Running))
	if p.IsInitialized() {
		t.Error("initialized while the init container runs")
	}
	p = podWith(spec(v1.RestartPolicyAlways, "setup", "web"), run("setup", 0, Exited))
	if !p.IsInitialized() {
		t.Error("not initialized although the init container completed")
	}
	p = podWith(spec(v1.RestartPolicyAlways, "setup", "web"), run("web", 0, Running))
	if !p.IsInitialized() {
		t.Error("the init container would run again because its record was removed")
	}
}

func TestInitRunsAgainInNewSandbox(t *testing.T) {
	old := run("setup", 0, Exited)
	old.SandboxID = "before"
	p := podWith(spec(v1.RestartPolicyAlways, "setup", "web"), old)
	if p.IsInitialized() {
		t.Fatal("an init container of an older sandbox counts")
	}
	if got, _ := p.nextAction(p.specContainer("setup"), Init, t0); got != Create {
		t.Errorf("setup: %s, want Create", got)
	}
}

func TestNextAction(t *testing.T) {
	created, elsewhere := run("web", 0, Created), run("web", 0, Created)
	elsewhere.SandboxID = "before"
	unread := failedRun("web", 0, 0)
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
		{"unknown exit", v1.RestartPolicyAlways, []Container{unread}, Wait, 0},
		{"first crash", v1.RestartPolicyAlways, []Container{failedRun("web", 0, 0)}, Create, 0},
		{"second crash", v1.RestartPolicyAlways,
			[]Container{failedRun("web", 0, 0), failedRun("web", 1, 10*time.Second)},
			Wait, time.Minute + 10*time.Second},
		{"crash, never", v1.RestartPolicyNever, []Container{failedRun("web", 0, 0)}, Ended, 0},
		{"success, on failure", v1.RestartPolicyOnFailure,
			[]Container{run("web", 0, Exited)}, Ended, 0},
		{"crash, on failure", v1.RestartPolicyOnFailure,
			[]Container{failedRun("web", 0, 0)}, Create, 0},
	} {
		p := podWith(spec(test.policy, "", "web"), test.have...)
		got, at := p.nextAction(p.specContainer("web"), App, t0.Add(time.Minute+time.Second))
		if got != test.want || test.at != 0 && !at.Equal(t0.Add(test.at)) {
			t.Errorf("%s: %s until %v, want %s until t0+%v", test.name, got, at, test.want, test.at)
		}
	}
}

// A container that was created in an older sandbox and never started does not hide the newest run.
func TestLeftoverIsNoRun(t *testing.T) {
	leftover := run("web", 1, Created)
	leftover.SandboxID = "before"
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running), leftover)
	if got := p.NewestRun("web"); got.Attempt != 0 {
		t.Errorf("the newest run is attempt %d, want 0", got.Attempt)
	}
	updateStatus(p, t0)
	if status := status(p); status.ContainerID == "" || !status.Ready {
		t.Error("not ready because of a container that never runs")
	}
}

func TestRestartBackoff(t *testing.T) {
	var c *Container
	for i, want := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300} {
		got := backoffAfter(c, 300*time.Second)
		if got != want*time.Second {
			t.Errorf("run %d: %v, want %v s", i, got, want)
		}
		c = &Container{StartedAt: t0, FinishedAt: t0.Add(time.Second),
			Run: criconfig.Run{Backoff: got}}
	}
	c.FinishedAt = t0.Add(11 * time.Minute)
	if c.RestartBackoff() != 0 || backoffAfter(c, 300*time.Second) != 10*time.Second {
		t.Errorf("after a long run: wait %v, then %v", c.RestartBackoff(),
			backoffAfter(c, 300*time.Second))
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
	if c.advanceState(Created, t0) || c.State != Running {
		t.Error("a late list moved a running container back to Created")
	}
	if !c.advanceState(Exited, t0) || c.advanceState(Running, t0) || c.State != Exited {
		t.Error("a late list moved an exited container back to Running")
	}
}

// The absence from a list that was requested before the container was created does not count.
func TestAbsenceInOlderList(t *testing.T) {
	c := run("web", 0, Running)
	c.LearnedAt = t0.Add(time.Second)
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"), c)
	p.Sandboxes[0].LearnedAt = t0
	p.Sandboxes[0].seenIn = 7
	p.ObserveEnd(7, t0.Add(time.Second))
	if len(p.Containers) != 1 {
		t.Error("a list older than the container has removed it")
	}
	p.ObserveEnd(8, t0.Add(2*time.Second))
	if len(p.Containers) != 0 || len(p.Sandboxes) != 0 {
		t.Error("objects that a newer list does not have are still known")
	}
}

// A list that was requested before the predecessor of a pod was removed may have objects of the
// predecessor. They do not become the pod's.
func TestLateListOfPredecessor(t *testing.T) {
	p := New(spec(v1.RestartPolicyAlways, "", "web"), nil, true, true, t0.Add(10*time.Second))
	old := &pleg.Sandbox{ID: "old", UID: "u", Attempt: 1}
	removed := &pleg.Container{ID: "gone", UID: "u", Name: "web", Attempt: 3}
	requestedAt := t0.Add(9 * time.Second)
	if p.ObserveSandbox(old, 1, requestedAt) ||
		p.ObserveContainer(removed, 1, requestedAt, t0.Add(time.Hour)) {
		t.Error("removed objects of the predecessor were added")
	}
	requestedAt = t0.Add(11 * time.Second)
	if !p.ObserveSandbox(old, 2, requestedAt) ||
		!p.ObserveContainer(removed, 2, requestedAt, requestedAt) {
		t.Error("objects in a later list were not added")
	}
}

// The runtime's clock may be years from the agent's. The back-off is counted from the agent's
// observation if the two contradict each other.
func TestRestartDoesNotTrustRuntimeClock(t *testing.T) {
	c := failedRun("web", 1, 10*time.Second)
	c.StartedAt, c.FinishedAt, c.ExitSeenAt = t0.AddDate(10, 0, 0), t0.AddDate(10, 0, 0), t0
	if got := c.restartAt(); !got.Equal(t0.Add(10 * time.Second)) {
		t.Errorf("restarts at %v", got)
	}
	c.FinishedAt = time.Time{}
	if got := c.restartAt(); !got.Equal(t0.Add(10 * time.Second)) {
		t.Errorf("without an end time, restarts at %v", got)
	}
}

// An init container that runs is left to its work when its image is changed; a sidecar, or an app
// container, is replaced.
func TestRunningInitContainerIsNotReplaced(t *testing.T) {
	always := v1.ContainerRestartPolicyAlways
	for _, test := range []struct {
		running string
		policy  *v1.ContainerRestartPolicy
		stops   bool
	}{{"setup", nil, false}, {"setup", &always, true}, {"web", nil, true}} {
		s := spec(v1.RestartPolicyAlways, "setup", "web")
		s.Spec.InitContainers[0].RestartPolicy = test.policy
		old := run(test.running, 0, Running)
		old.Hash = "another"
		r := newHarness(t, podWith(s, exitedRun("setup", 0, 0), old)).planAt(0)
		if got := r.findCall("StopContainer") != nil; got != test.stops {
			t.Errorf("%+v: stopped %t", test, got)
		}
	}
}

// A container that was stopped because its spec changed runs again whatever the restart policy, and
// at once. One that had exited before runs again only by its policy, and then at once as well.
func TestChangedContainerRunsAgain(t *testing.T) {
	changed := &Stop{Reason: stopReasonChanged}
	for _, c := range []struct {
		policy v1.RestartPolicy
		stop   *Stop
		want   Action
	}{{v1.RestartPolicyNever, changed, Create}, {v1.RestartPolicyNever, nil, Ended},
		{v1.RestartPolicyOnFailure, nil, Create}} {
		old := failedRun("web", 3, 5*time.Minute)
		old.Hash, old.Stop = "another", c.stop
		p := podWith(spec(c.policy, "", "web"), old)
		if p.hasCompleted() != (c.want == Ended) {
			t.Errorf("%s: the pod has completed: %v", c.policy, p.hasCompleted())
		}
		if got, _ := p.nextAction(p.specContainer("web"), App, t0.Add(time.Minute)); got != c.want {
			t.Errorf("%s: %s, want %s", c.policy, got, c.want)
		}
		next := p.newRun(p.specContainer("web"), &Node{BackoffMax: time.Hour})
		if next.Backoff != 0 {
			t.Errorf("created with a back-off of %v", next.Backoff)
		}
	}
}

func TestGracePeriodIsClamped(t *testing.T) {
	pod := spec(v1.RestartPolicyAlways, "", "web")
	endless := int64(math.MaxInt64)
	pod.Spec.TerminationGracePeriodSeconds = &endless
	if got := podWith(pod).GracePeriod(); got != graceMaxSeconds*time.Second {
		t.Errorf("grace %v", got)
	}
}

func TestTerminalPhaseIsAbsorbing(t *testing.T) {
	for want, c := range map[v1.PodPhase]Container{
		v1.PodFailed: failedRun("web", 0, 0), v1.PodSucceeded: run("web", 0, Exited),
	} {
		p := podWith(spec(v1.RestartPolicyNever, "", "web"), c)
		p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = false, true
		r := newHarness(t, p).planAt(0)
		p.StaleSince = time.Time{}
		if r.planAt(time.Second); p.Status.Phase == want {
			t.Errorf("%s before it is durable", want)
		}
		r.complete("WriteFile", &world.Done{}, nil)
		if p.Status.Phase != want {
			t.Errorf("phase %s, want %s", p.Status.Phase, want)
		}
		p.dropContainer("web0")
		next := podWith(p.Spec) // of an agent that finds nothing but the record
		next.Record.Termination, next.Sandboxes = p.Record.Termination, nil
		next.applyRecord(r.env)
		next.StaleSince = time.Time{}
		if newHarness(t, next).planAt(0); next.Status.Phase != want || next.Stage != Terminated {
			t.Errorf("the next agent: phase %s, want %s", next.Status.Phase, want)
		}
	}
}

// A sidecar lets the next container start once it runs, is restarted whatever the restart policy,
// and does not keep the pod from completing.
func TestSidecar(t *testing.T) {
	pod := spec(v1.RestartPolicyNever, "proxy", "web")
	always := v1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers[0].RestartPolicy = &always
	p := podWith(pod, run("proxy", 0, Created))
	if p.IsInitialized() {
		t.Error("the app may start before its sidecar runs")
	}
	p = podWith(pod, run("proxy", 0, Running))
	if !p.IsInitialized() {
		t.Error("the app waits for a running sidecar")
	}
	p = podWith(pod, failedRun("proxy", 0, 0), run("web", 0, Running))
	if got, _ := p.nextAction(p.specContainer("proxy"), Sidecar, t0.Add(time.Hour)); got != Create {
		t.Errorf("a crashed sidecar: %s, want Create", got)
	}
	if p = podWith(pod, run("proxy", 0, Running), run("web", 0, Exited)); !p.hasCompleted() {
		t.Error("a pod does not complete because its sidecar runs")
	}
}

// The name of a container is never confused with the subject of another operation.
func TestContainerNamesDoNotCollideWithSubjects(t *testing.T) {
	for _, name := range []string{"record", "logs", "pod", "storage", "left", "volume"} {
		p := podWith(spec(v1.RestartPolicyAlways, "", name))
		r := newHarness(t, p).planAt(0)
		for range 5 {
			if r.findCall("MakeDir") == nil {
				break
			}
			r.complete("MakeDir", &world.Done{}, nil)
		}
		if r.findCall("CreateContainer") == nil {
			t.Errorf("a container named %q is not created, in flight: %v, op %d", name,
				r.openCalls(), p.Op)
		}
	}
}

// The init containers before one that has a run are done, whatever is known of them.
func TestInitsDone(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	for _, name := range []string{"i", "j", "k"} {
		s.Spec.InitContainers = append(s.Spec.InitContainers, v1.Container{Name: name, Image: "i"})
	}
	for _, c := range []struct {
		runs []Container
		want int
	}{
		{nil, 0},
		{[]Container{run("i", 0, Running)}, 0},
		{[]Container{run("i", 0, Exited)}, 1},
		{[]Container{failedRun("i", 0, 0), run("j", 0, Running)}, 1},
		{[]Container{run("k", 0, Exited)}, 3},
	} {
		p := podWith(s, c.runs...)
		if got := p.InitsDone(); got != c.want {
			t.Errorf("%d of %v, want %d", got, c.runs, c.want)
		}
	}
}
