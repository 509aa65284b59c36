package pod

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/pleg"
	"seedlet.dev/world"
)

// restartAll gives a container a rule that restarts all containers on exit code 88.
func restartAll(c *v1.Container) {
	never := v1.ContainerRestartPolicyNever
	c.RestartPolicy = &never
	c.RestartPolicyRules = []v1.ContainerRestartRule{
		rule(v1.ContainerRestartRuleOnExitCodesOpIn, 88)}
	c.RestartPolicyRules[0].Action = v1.ContainerRestartRuleActionRestartAllContainers
}

// podOfFour returns a pod with restart policy Never: an init container, a sidecar and two app
// containers, of which the sidecar and the first app container have the rule.
func podOfFour() *v1.Pod {
	s := spec(v1.RestartPolicyNever, "setup", "app")
	side := v1.Container{Name: "side", Image: "i"}
	restartAll(&side)
	always := v1.ContainerRestartPolicyAlways
	side.RestartPolicy = &always
	s.Spec.InitContainers = append(s.Spec.InitContainers, side)
	restartAll(&s.Spec.Containers[0])
	s.Spec.Containers = append(s.Spec.Containers, v1.Container{Name: "more", Image: "i"})
	return s
}

// exitedRun returns a run that has exited.
func exitedRun(name string, attempt uint32, code int32) Container {
	c := run(name, attempt, Exited)
	c.ExitCode = code
	return c
}

func TestRoundStarts(t *testing.T) {
	setup, side := exitedRun("setup", 0, 0), run("side", 0, Running)
	app, more := run("app", 0, Running), run("more", 0, Running)
	unknown := exitedRun("more", 0, 0)
	unknown.Inspected = Running
	for _, c := range []struct {
		name  string
		runs  []Container
		round int
	}{
		{"no exit", []Container{setup, side, app, more}, 0},
		{"a rule", []Container{setup, side, exitedRun("app", 0, 88), more}, 1},
		{"a sidecar's rule", []Container{setup, exitedRun("side", 0, 88), app, more}, 1},
		{"no rule for the code", []Container{setup, side, exitedRun("app", 0, 1), more}, 0},
		{"no rule", []Container{setup, side, app, exitedRun("more", 0, 88)}, 0},
		{"before the last container was created", []Container{setup, exitedRun("side", 0, 88)}, 1},
		{"the container has run again since", []Container{setup, side, exitedRun("app", 0, 88),
			run("app", 1, Running), more}, 0},
		{"one unknown exit", []Container{setup, side, exitedRun("app", 0, 88), unknown}, 0},
		{"the pod had completed before", []Container{setup, exitedRun("side", 0, 88),
			exitedRun("app", 0, 1), exitedRun("more", 0, 0)}, 0},
	} {
		p := podWith(podOfFour(), c.runs...)
		p.startRoundOnExit(newHarness(t, p).planAt(0).env)
		if p.Round.Number != c.round {
			t.Errorf("%s: round %d, want %d", c.name, p.Round.Number, c.round)
		}
	}
}

// The exit of an init container that was left to its work when its image was changed starts a round
// as its rule says.
func TestOutdatedInitContainerStartsRound(t *testing.T) {
	s := podOfFour()
	restartAll(&s.Spec.InitContainers[0])
	old := exitedRun("setup", 0, 88)
	old.Hash = "another"
	p := podWith(s, old)
	if p.startRoundOnExit(newHarness(t, p).planAt(0).env); p.Round.Number != 1 {
		t.Errorf("round %d", p.Round.Number)
	}
}

// Live containers are stopped at once and together, without preStop hooks and with the least grace
// period, but not before the round is durable. Then all containers are created again, from the
// first init container on.
func TestAllContainersRestart(t *testing.T) {
	s := podOfFour()
	s.Spec.Containers[1].Lifecycle = &v1.Lifecycle{PreStop: execHook("bye")}
	side, more := run("side", 0, Running), run("more", 0, Running)
	side.SidecarOrder, more.PreStop = 2, execHook("bye")
	p := podWith(s, exitedRun("setup", 0, 0), side, exitedRun("app", 0, 88), more)
	r := newHarness(t, p).planAt(2 * time.Minute)
	r.expectNoCall("StopContainer")
	r.expectNoCall("CreateContainer")
	r.complete("WriteFile", &world.Done{}, nil)
	r.expectNoCall("ExecSync")
	stops := 0
	for _, call := range r.openCalls() {
		if call == "StopContainer" {
			stops++
		}
	}
	stop := r.expectCall("StopContainer").Body.(*runtimeapi.StopContainerRequest)
	if stop.Timeout != 2 || stops != 2 {
		t.Errorf("%d stops, with a grace period of %d s", stops, stop.Timeout)
	}
	condition := func() (v1.ConditionStatus, string) {
		for _, c := range servedPod(r.pod, r.env.Node, "c").Status.Conditions {
			if c.Type == v1.AllContainersRestarting {
				return c.Status, c.Message
			}
		}
		return "", ""
	}
	if status, message := condition(); status != v1.ConditionTrue ||
		message != "container app exited with code 88" {
		t.Errorf("condition %q: %q", status, message)
	}
	for i := range r.pod.Containers {
		r.pod.Containers[i].advanceState(Exited, r.now)
		r.pod.Containers[i].Inspected = Exited
	}
	r.pod.DirCreated, r.pod.LogDirs = true, []string{"setup"}
	r.planAt(3 * time.Minute)
	created := r.expectCall("CreateContainer").Body.(*runtimeapi.CreateContainerRequest)
	if m := created.Config.Metadata; m.Name != "setup" || m.Attempt != 1 ||
		created.Config.Annotations[criconfig.AnnotationRound] != "1" || created.PodSandboxId != "s" {
		t.Errorf("created %v with %v", m, created.Config.Annotations)
	}
	if status, _ := condition(); status != v1.ConditionFalse || r.pod.Status.Phase != v1.PodPending {
		t.Errorf("condition %s, phase %s", status, r.pod.Status.Phase)
	}
	if r.pod.Stage != Syncing {
		t.Errorf("the pod is %s", r.pod.Stage)
	}
}

// An agent that starts in the middle of a restart continues it, although the exits look as if the
// pod had completed: the round is durable. A deletion has precedence.
func TestRoundSurvivesAgentRestart(t *testing.T) {
	p := podWith(podOfFour(), exitedRun("setup", 0, 0), exitedRun("side", 0, 88),
		exitedRun("app", 0, 137), exitedRun("more", 0, 137))
	p.Record.Loaded = false
	r := newHarness(t, p).planAt(2 * time.Minute)
	record, err := json.Marshal(recordContent{Start: t0, Round: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: record}}}, nil)
	if p.Stage != Syncing || p.Round.Number != 1 || p.hasCompleted() {
		t.Errorf("stage %s, round %d", p.Stage, p.Round.Number)
	}
	p.ClearDesired(r.now)
	p.StaleSince = time.Time{}
	r.complete("MakeDir", &world.Done{}, nil).expectNoCall("CreateContainer")
	if r.expectCall("StopPodSandbox"); p.Stage != Terminating {
		t.Errorf("stage %s", p.Stage)
	}
}

// An agent that starts after the pod has terminated knows the last round: exits of an earlier round
// do not count.
func TestLastRoundIsKnownAfterTermination(t *testing.T) {
	p := podWith(podOfFour(), exitedRun("setup", 0, 0), exitedRun("side", 0, 88))
	p.Record.Loaded = false
	r := newHarness(t, p).planAt(2 * time.Minute)
	record, err := json.Marshal(recordContent{Start: t0, Round: 1,
		End: &Termination{Phase: v1.PodFailed}})
	if err != nil {
		t.Fatal(err)
	}
	r.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: record}}}, nil)
	if p.Stage == Syncing || p.Round.Number != 1 || !p.IsSuperseded(&p.Containers[0]) {
		t.Errorf("stage %s, round %d", p.Stage, p.Round.Number)
	}
}

// A container that was created and not started is removed before anything of the next round is
// created, because a late start would run it side by side with the next round. Every container
// waits for its own back-off.
func TestNextRoundWaits(t *testing.T) {
	s := podOfFour()
	setup, created := exitedRun("setup", 0, 0), run("more", 0, Created)
	setup.Backoff = 10 * time.Second
	for i := range s.Spec.Containers {
		if c := &s.Spec.Containers[i]; c.Name == "more" {
			created.Hash = containerHash(c)
		}
	}
	p := podWith(s, setup, exitedRun("side", 0, 0), exitedRun("app", 0, 88), created)
	p.DirCreated, p.LogDirs, p.Record.Round = true, []string{"setup"}, 1
	r := newHarness(t, p).planAt(time.Minute)
	r.expectCall("RemoveContainer")
	r.expectNoCall("StartContainer")
	r.complete("RemoveContainer", &runtimeapi.RemoveContainerResponse{}, nil)
	r.expectNoCall("CreateContainer")
	r.planAt(70 * time.Second).expectCall("CreateContainer")
}

// A pod whose init container fails for good in the next round has failed, although its app
// containers had succeeded in the round before.
func TestNextRoundFails(t *testing.T) {
	s := spec(v1.RestartPolicyNever, "setup", "app")
	restartAll(&s.Spec.Containers[0])
	again := exitedRun("setup", 1, 1)
	again.Round = 1
	p := podWith(s, exitedRun("setup", 0, 0), again, exitedRun("app", 0, 0))
	p.restoreRound()
	if !p.hasCompleted() || p.hasSucceeded() || p.Round.Number != 1 {
		t.Errorf("completed %v, succeeded %v, round %d", p.hasCompleted(), p.hasSucceeded(),
			p.Round.Number)
	}
}

// Ephemeral containers are not restarted.
func TestEphemeralContainersAreNotInARound(t *testing.T) {
	s := podOfFour()
	s.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
	p := podWith(s, run("debug", 0, Running), exitedRun("app", 0, 88))
	p.Record.Round = 1
	newHarness(t, p).planAt(time.Minute).expectNoCall("StopContainer")
}

func TestRoundIsRestoredFromAnnotation(t *testing.T) {
	c := containerFromList(&pleg.Container{Name: "app",
		Annotations: map[string]string{criconfig.AnnotationRound: "3"}}, t0)
	p := podWith(podOfFour(), c)
	p.restoreRound()
	if c.Round != 3 || p.Round.Number != 3 {
		t.Errorf("a container of round %d in round %d", c.Round, p.Round.Number)
	}
}
