package pod

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// podWithRemovedRun returns a pod whose container has run, and whose record an administrator has
// removed.
func podWithRemovedRun(c Container) *Pod {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	c.Hash = containerHash(p.specContainer("web"))
	p.addContainer(c)
	p.dropContainer(c.ID)
	p.Status.Reportable = true
	return p
}

func TestRemovedRunsCount(t *testing.T) {
	c := failedRun("web", 3, 20*time.Second)
	c.Restarts, c.SandboxID = 4, "s"
	p := podWithRemovedRun(c)
	next := p.newRun(p.specContainer("web"), &Node{BackoffMax: 5 * time.Minute})
	if next.Attempt != 4 || next.Restarts != 5 || next.Backoff != 40*time.Second {
		t.Errorf("the next is #%d, restart %d, back-off %v", next.Attempt, next.Restarts,
			next.Backoff)
	}
	if got := status(p); got.RestartCount != 4 || got.ContainerID != "" {
		t.Errorf("status with %d restarts, id %q", got.RestartCount, got.ContainerID)
	}
	next.ID = "web4"
	p.addContainer(next)
	if p.RemovedRun("web").IsNewerThan(p.NewestRun("web")) {
		t.Error("the removed run counts as newer than the run after it")
	}
}

func TestBackoffOfRemovedRun(t *testing.T) {
	p := podWithRemovedRun(failedRun("web", 1, 10*time.Second)) // exited a minute after t0
	for _, test := range []struct {
		at   time.Duration
		want Action
	}{{69 * time.Second, Wait}, {70 * time.Second, Create}} {
		if got, _ := p.nextAction(p.specContainer("web"), App, t0.Add(test.at)); got != test.want {
			t.Errorf("after %v: %s, want %s", test.at, got, test.want)
		}
	}
	p = podWithRemovedRun(run("web", 1, Running)) // stopped by the administrator
	if got, _ := p.nextAction(p.specContainer("web"), App, t0); got != Create {
		t.Errorf("a running container was removed: %s, want Create", got)
	}
}

// A container that has completed does not run again because an administrator has removed its
// record: the API server would refuse the status of its pod for as long as it runs.
func TestCompletedContainerStaysSoWithoutItsRecord(t *testing.T) {
	never, onFailure := v1.ContainerRestartPolicyNever, v1.ContainerRestartPolicyOnFailure
	for _, test := range []struct {
		policy *v1.ContainerRestartPolicy
		code   int32
		want   Action
	}{{&never, 1, Ended}, {&onFailure, 0, Ended}, {&onFailure, 1, Create}, {nil, 0, Create}} {
		c := exitedRun("web", 2, test.code)
		c.Restarts = 2
		p := podWithRemovedRun(c)
		p.specContainer("web").RestartPolicy = test.policy
		container := p.specContainer("web")
		got, _ := p.nextAction(container, App, t0.Add(time.Hour))
		hasEnded := test.want == Ended
		if got != test.want || p.hasCompleted() != hasEnded || p.needsSandbox() == hasEnded ||
			p.hasSucceeded() != (hasEnded && test.code == 0) {
			t.Errorf("%+v: %s, completed %t, needs a sandbox %t, succeeded %t", test, got,
				p.hasCompleted(), p.needsSandbox(), p.hasSucceeded())
		}
		ended := status(p)
		if (ended.State.Terminated != nil) != hasEnded ||
			hasEnded && (ended.RestartCount != 2 || ended.State.Terminated.ExitCode != test.code) {
			t.Errorf("%+v: reported as %+v", test, ended)
		}
		p.addContainer(Container{Name: "web", ID: "later", State: Running,
			Run: criconfig.Run{Attempt: c.Attempt + 1}})
		if p.LastRun("web").ID != "later" {
			t.Errorf("%+v: a later run is not the last", test)
		}
	}
}

// A run whose record was lost while it ran counts as killed, and its work is done again if the
// restart policy allows that.
func TestLostRun(t *testing.T) {
	for _, test := range []struct {
		policy v1.RestartPolicy
		want   Action
	}{{v1.RestartPolicyNever, Ended}, {v1.RestartPolicyOnFailure, Create},
		{v1.RestartPolicyAlways, Create}} {
		for _, state := range []State{Running, Unknown, Exited} {
			c := run("web", 1, state)
			c.Restarts, c.Inspected = 1, "" // if it has exited, its exit code was not asked for yet
			p := podWithRemovedRun(c)
			p.Spec.Spec.RestartPolicy = test.policy
			got, _ := p.nextAction(p.specContainer("web"), App, t0)
			hasEnded := test.want == Ended
			if got != test.want || p.hasCompleted() != hasEnded || p.hasSucceeded() {
				t.Errorf("%s, %s: %s, completed %t, succeeded %t", test.policy, state, got,
					p.hasCompleted(), p.hasSucceeded())
			}
			ended := status(p).State.Terminated
			if (ended != nil) != hasEnded || hasEnded && (ended.ExitCode != 137 ||
				ended.Reason != "ContainerStatusUnknown" || p.TerminalPhase() != v1.PodFailed) {
				t.Errorf("%s, %s: reported as %+v", test.policy, state, ended)
			}
		}
	}
}

// A container that the API server has as running, and of which the runtime has nothing, was lost
// while another agent had the node.
func TestRunLostByAnotherAgent(t *testing.T) {
	running := v1.ContainerStatus{Name: "web", ContainerID: "containerd://old", RestartCount: 3,
		State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}}}
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyAlways} {
		s := spec(policy, "", "web")
		s.Status.ContainerStatuses = []v1.ContainerStatus{running}
		p := podWith(s)
		p.Status.Reportable = true
		p.restoreRemovedRuns()
		p.restoreRemovedRuns()
		got := status(p)
		isLost := policy == v1.RestartPolicyNever
		if p.hasCompleted() != isLost || len(p.RemovedRuns) > 1 || got.RestartCount != 3 ||
			(got.State.Terminated != nil) != isLost ||
			isLost && (got.ContainerID != running.ContainerID || got.State.Terminated.ExitCode != 137) {
			t.Errorf("%s: completed %t, reported as %+v", policy, p.hasCompleted(), got)
		}
	}
	s := spec(v1.RestartPolicyNever, "", "web")
	s.Status.ContainerStatuses = []v1.ContainerStatus{running}
	ended := running
	ended.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}
	for code, wants := range map[int32]bool{0: true, 1: false} {
		ended.State.Terminated.ExitCode = code
		after := spec(v1.RestartPolicyOnFailure, "", "web")
		after.Status.ContainerStatuses = []v1.ContainerStatus{ended}
		p := podWith(after)
		p.Status.Reportable = true
		if p.restoreRemovedRuns(); p.hasCompleted() != wants || p.hasSucceeded() != wants ||
			wants && status(p).State.Terminated.Reason != "Completed" {
			t.Errorf("after exit code %d: %+v", code, status(p))
		}
	}
	if p := podWith(s, run("web", 3, Running)); p.hasCompleted() {
		t.Error("its record is there")
	} else if p.restoreRemovedRuns(); p.RemovedRun("web") != nil {
		t.Error("a run that the runtime has is lost")
	}
	s.Annotations = map[string]string{manifest.ConfigSourceAnnotation: "file"}
	static := podWith(s)
	if static.restoreRemovedRuns(); static.RemovedRun("web") != nil {
		t.Error("the status in a manifest says what ran")
	}
}

// An exit that this agent could not ask for in time, and that an earlier one has reported, is that.
func TestReportedExitOfRemovedRun(t *testing.T) {
	s := spec(v1.RestartPolicyNever, "", "web")
	s.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", ContainerID: "containerd://web0",
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}}}
	for _, id := range []string{"web0", "other"} {
		c := run("web", 0, Exited)
		c.ID, c.Inspected = id, ""
		p := podWith(s, c)
		p.dropContainer(id)
		p.restoreRemovedRuns()
		if isReported := id == "web0"; p.hasSucceeded() != isReported || !p.hasCompleted() {
			t.Errorf("%s: succeeded %t", id, p.hasSucceeded())
		}
	}
}

// An init container that was lost while it ran has failed, and its pod with it if the policy is not
// to try again.
func TestLostInitContainer(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure} {
		p := podWith(spec(policy, "setup", "web"), run("setup", 0, Running))
		p.dropContainer("setup0")
		isNever := policy == v1.RestartPolicyNever
		got, _ := p.nextAction(p.specContainer("setup"), Init, t0)
		if p.hasCompleted() != isNever || (got == Ended) != isNever || p.IsInitialized() {
			t.Errorf("%s: %s, completed %t", policy, got, p.hasCompleted())
		}
	}
}

// An init container that has to have completed, since an app container runs, is not lost.
func TestLostInitContainerOfInitializedPod(t *testing.T) {
	s := spec(v1.RestartPolicyNever, "setup", "web")
	s.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "setup",
		ContainerID: "containerd://setup0", // its exit was not reported
		State:       v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	for _, isStatic := range []bool{false, true} {
		p := podWith(s.DeepCopy(), run("web", 0, Running))
		p.Status.Reportable = true
		if isStatic { // its exit was not asked for before its record went
			p.Spec.Annotations = map[string]string{manifest.ConfigSourceAnnotation: "file"}
			p.addContainer(run("setup", 0, Exited))
			p.containerByID("setup0").Inspected = ""
			p.dropContainer("setup0")
		}
		p.restoreRemovedRuns()
		got := servedPod(p, &Node{}, "containerd").Status.InitContainerStatuses[0]
		if p.hasCompleted() || got.State.Terminated == nil || got.State.Terminated.ExitCode != 0 {
			t.Errorf("static %t: completed %t, reported as %+v", isStatic, p.hasCompleted(), got.State)
		}
	}
}

// What is inferred of an init container of which no run is known stays so once it is reported.
func TestInferredCompletionIsNoRun(t *testing.T) {
	s := spec(v1.RestartPolicyNever, "setup", "web")
	p := podWith(s, run("web", 0, Running))
	p.Status.Reportable = true
	first := servedPod(p, &Node{}, "containerd").Status.InitContainerStatuses
	s = s.DeepCopy()
	s.Status.InitContainerStatuses = first
	p = podWith(s, run("web", 0, Running))
	p.Status.Reportable = true
	p.restoreRemovedRuns()
	then := servedPod(p, &Node{}, "containerd").Status.InitContainerStatuses
	if len(p.RemovedRuns) > 0 || !reflect.DeepEqual(first, then) {
		t.Errorf("%+v, then %+v", first, then)
	}
}

// A reported run is of the present restart round, unless the API server has that all containers
// restart.
func TestRoundOfReportedRuns(t *testing.T) {
	for _, restarting := range []v1.ConditionStatus{v1.ConditionFalse, v1.ConditionTrue} {
		s := spec(v1.RestartPolicyNever, "", "web")
		s.Status.Conditions = []v1.PodCondition{{Type: v1.AllContainersRestarting, Status: restarting}}
		s.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", ContainerID: "containerd://w",
			State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
		p := podWith(s)
		p.Round.Number = 2
		p.restoreRemovedRuns()
		if got := p.hasCompleted(); got != (restarting == v1.ConditionFalse) {
			t.Errorf("restarting %s: completed %t", restarting, got)
		}
	}
}

// An init container whose record is removed after it has completed stays so: the API server refuses
// a status that takes its exit back.
func TestCompletedInitContainerStaysSoWithoutItsRecord(t *testing.T) {
	stored := []v1.ContainerStatus{{Name: "setup", ContainerID: "containerd://setup0", Ready: true,
		State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Done"}}}}
	for _, test := range []struct {
		known  bool // this agent has seen the exit
		stored []v1.ContainerStatus
		reason string
	}{{known: true}, {stored: stored, reason: "Done"}, {reason: "Completed"}} {
		s := spec(v1.RestartPolicyNever, "setup", "web")
		s.Status.InitContainerStatuses = test.stored
		p := podWith(s, run("web", 0, Running))
		p.Status.Reportable = true
		if test.known {
			p.addContainer(exitedRun("setup", 0, 0))
			p.dropContainer("setup0")
		}
		p.restoreRemovedRuns()
		got := servedPod(p, &Node{}, "containerd").Status.InitContainerStatuses[0]
		if end := got.State.Terminated; !got.Ready || end == nil || end.ExitCode != 0 ||
			end.Reason != test.reason {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}

// An ephemeral container runs once.
func TestRemovedEphemeralContainer(t *testing.T) {
	p := podWithRemovedRun(run("web", 0, Running))
	if got, _ := p.nextAction(p.specContainer("web"), Ephemeral, t0); got != Ended {
		t.Errorf("%s, want Ended", got)
	}
	p = podWithRemovedRun(run("web", 0, Created))
	if got, _ := p.nextAction(p.specContainer("web"), Ephemeral, t0); got != Create {
		t.Errorf("it was never started: %s, want Create", got)
	}
}

func TestRemovedContainerThatNeverStartedIsNoRun(t *testing.T) {
	if p := podWithRemovedRun(run("web", 2, Created)); p.RemovedRun("web") != nil {
		t.Error("a container that was never started counts as a removed run")
	}
}

// The change of the spec may have fixed the failure.
func TestChangedSpecDoesNotWaitForRemovedRun(t *testing.T) {
	c := failedRun("web", 1, 10*time.Second)
	p := podWithRemovedRun(c)
	p.RemovedRuns[0].Hash = "another"
	if got, _ := p.nextAction(p.specContainer("web"), App, t0); got != Create {
		t.Errorf("%s, want Create", got)
	}
	if got := p.nextBackoff("web", time.Minute); got != 0 {
		t.Errorf("back-off %v", got)
	}
}

// The runtime has lost its state, and no API server knows of the static pod.
func TestRunsAreCountedFromTheirLogs(t *testing.T) {
	for _, test := range []struct {
		name    string
		entries []string
		err     *world.Error
		want    uint32
	}{
		{"logs", []string{"2.log", "10.log", "9.log.20260101-000000.gz", "x.log", "11.txt"}, nil, 11},
		{"a rotated log is the newest", []string{".4.log.20260101-000000.tmp"}, nil, 5},
		{"a number too large", []string{"2147483647.log", "0.log"}, nil, 1},
		{"a directory", []string{"7.log/", "0.log"}, nil, 1},
		{"no log", nil, nil, 0},
		{"no directory", nil, &world.Error{Kind: world.KindNotFound}, 0},
	} {
		p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
		p.DirCreated, p.LogDirs, p.Record.LookedFor = true, []string{"web"}, true
		r := newHarness(t, p).planAt(0).completeWrites()
		list := &world.DirListed{}
		for _, name := range test.entries {
			name, isDir := strings.CutSuffix(name, "/")
			list.Entries = append(list.Entries, world.DirEntry{Name: name, Directory: isDir})
		}
		if got := r.expectCall("ListDir").Body.(*world.ListDir).Path; got != p.logDir(r.env.Node)+"/web" {
			t.Errorf("%s: lists %s", test.name, got)
		}
		r.complete("ListDir", list, test.err)
		config := r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest).Config
		want := fmt.Sprintf("web/%d.log", test.want)
		if config.LogPath != want || config.Metadata.Attempt != test.want {
			t.Errorf("%s: attempt %d with the log %s, want %s", test.name, config.Metadata.Attempt,
				config.LogPath, want)
		}
	}
}

// The name of a log comes from the larger count: the status at the API server may be older than the
// newest log, which the next run must not write to.
func TestLogsOfReportedRunsAreListed(t *testing.T) {
	for _, test := range []struct {
		sought   bool // the pod's directory may be gone, and its logs not
		entry    string
		restarts int
	}{{true, "7.log", 8}, {true, "1.log", 4}, {false, "7.log", 8}} {
		p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
		p.DirCreated, p.LogDirs, p.Record.LookedFor = true, []string{"web"}, test.sought
		p.Spec.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "web", RestartCount: 3}}
		r := newHarness(t, p).planAt(0).completeWrites()
		r.complete("ListDir", &world.DirListed{Entries: []world.DirEntry{{Name: test.entry}}}, nil)
		config := r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest).Config
		if want := fmt.Sprintf("web/%d.log", test.restarts); config.LogPath != want {
			t.Errorf("with %s: the log is %s, want %s", test.entry, config.LogPath, want)
		}
		if got := status(p).RestartCount; got != int32(test.restarts-1) {
			t.Errorf("with %s: %d restarts are reported before the run", test.entry, got)
		}
	}
}

// The logs of a completed init container are listed although the API server has its exit: it runs
// again in a new sandbox, and the count there may be old.
func TestLogsOfReportedInitContainerAreListed(t *testing.T) {
	s := spec(v1.RestartPolicyNever, "setup", "web")
	s.Status.InitContainerStatuses = []v1.ContainerStatus{{Name: "setup",
		ContainerID: "containerd://setup0",
		State:       v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}}}
	p := podWith(s)
	p.DirCreated, p.LogDirs = true, []string{"setup"}
	r := newHarness(t, p).planAt(0).completeWrites()
	r.complete("ListDir", &world.DirListed{Entries: []world.DirEntry{{Name: "1.log"}}}, nil)
	config := r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest).Config
	if config.LogPath != "setup/2.log" {
		t.Errorf("the log is %s", config.LogPath)
	}
}

// The UID of a static pod follows from its manifest. An earlier pod of it may have left logs, also
// if its directory was removed.
func TestLogsOfStaticPodsAreListed(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.DirCreated, p.LogDirs = true, []string{"web"}
	p.Spec.Annotations = map[string]string{manifest.ConfigSourceAnnotation: "file"}
	r := newHarness(t, p).planAt(0).completeWrites()
	r.complete("ListDir", &world.DirListed{Entries: []world.DirEntry{{Name: "2.log"}}}, nil)
	config := r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest).Config
	if config.LogPath != "web/3.log" {
		t.Errorf("the log is %s", config.LogPath)
	}
}

func TestLogsOfNewPodsAreNotListed(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.DirCreated, p.LogDirs = true, []string{"web"}
	newHarness(t, p).planAt(0).completeWrites().expectNoCall("ListDir")
}

// A directory of logs that cannot be listed does not keep the container from starting. An operation
// that was refused is issued again.
func TestFailedListOfLogs(t *testing.T) {
	p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.DirCreated, p.LogDirs, p.Record.LookedFor = true, []string{"web"}, true
	r := newHarness(t, p).planAt(0).completeWrites()
	r.complete("ListDir", nil, &world.Error{Kind: world.KindInternal, Message: "input/output error"})
	config := r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest).Config
	if config.LogPath != "web/0.log" || len(p.RemovedRuns) > 0 {
		t.Errorf("the log is %s, removed runs: %v", config.LogPath, p.RemovedRuns)
	}

	p = podWith(spec(v1.RestartPolicyAlways, "", "web"))
	p.Op = 1
	p.handleLogList(1, op.Record{Call: "ListDir", Subject: "web", Refused: true},
		world.Event{Err: world.Errorf(world.KindExhausted, "ListDir", "refused")}, r.env)
	if len(p.LogsListed) > 0 {
		t.Error("a list that was refused counts")
	}
}
