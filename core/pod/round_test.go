package pod

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/pleg"
	"seedlet.dev/world"
)

// restartAll gives a container the rule that exit code 88 restarts all.
func restartAll(c *v1.Container) {
	never := v1.ContainerRestartPolicyNever
	c.RestartPolicy = &never
	c.RestartPolicyRules = []v1.ContainerRestartRule{
		rule(v1.ContainerRestartRuleOnExitCodesOpIn, 88)}
	c.RestartPolicyRules[0].Action = v1.ContainerRestartRuleActionRestartAllContainers
}

// group is a pod that never restarts, of an init container, a sidecar and two app containers, of
// which the sidecar and the first app container have the rule.
func group() *v1.Pod {
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

// exits is a run that has ended.
func exits(name string, attempt uint32, code int32) Container {
	c := run(name, attempt, Exited)
	c.ExitCode = code
	return c
}

func TestRoundBegins(t *testing.T) {
	setup, side, app, more := exits("setup", 0, 0), run("side", 0, Running), run("app", 0, Running),
		run("more", 0, Running)
	unknown := exits("more", 0, 0)
	unknown.Inspected = Running
	for _, c := range []struct {
		name  string
		runs  []Container
		round int
	}{
		{"all is well", []Container{setup, side, app, more}, 0},
		{"a rule", []Container{setup, side, exits("app", 0, 88), more}, 1},
		{"a sidecar's rule", []Container{setup, exits("side", 0, 88), app, more}, 1},
		{"no rule for the code", []Container{setup, side, exits("app", 0, 1), more}, 0},
		{"no rule", []Container{setup, side, app, exits("more", 0, 88)}, 0},
		{"before the last one was made", []Container{setup, exits("side", 0, 88)}, 1},
		{"it has run again since", []Container{setup, side, exits("app", 0, 88),
			run("app", 1, Running), more}, 0},
		{"one exit is not known yet", []Container{setup, side, exits("app", 0, 88), unknown}, 0},
		{"the pod had ended before", []Container{setup, exits("side", 0, 88), exits("app", 0, 1),
			exits("more", 0, 0)}, 0},
	} {
		p := facts(group(), c.runs...)
		p.takeRound(newRig(t, p).at(0).env)
		if p.Round.Number != c.round {
			t.Errorf("%s: round %d, want %d", c.name, p.Round.Number, c.round)
		}
	}
}

// What runs ends at once, all together, without its hook and with the least grace, but not before
// it is kept why; then all is made anew from the first init container on.
func TestAllContainersRestart(t *testing.T) {
	s := group()
	s.Spec.Containers[1].Lifecycle = &v1.Lifecycle{PreStop: execHook("bye")}
	side, more := run("side", 0, Running), run("more", 0, Running)
	side.Sidecar, more.PreStop = 2, execHook("bye")
	r := newRig(t, facts(s, exits("setup", 0, 0), side, exits("app", 0, 88), more)).at(2 * time.Minute)
	r.none("StopContainer")
	r.none("CreateContainer")
	r.answer("WriteFile", &world.Done{}, nil)
	r.none("ExecSync")
	stops := 0
	for _, call := range r.calls() {
		if call == "StopContainer" {
			stops++
		}
	}
	if stop := r.want("StopContainer").Body.(*runtimeapi.StopContainerRequest); stop.Timeout != 2 ||
		stops != 2 {
		t.Errorf("%d stops, with a grace period of %d s", stops, stop.Timeout)
	}
	condition := func() (v1.ConditionStatus, string) {
		for _, c := range r.pod.API(r.env.Node, "c").Status.Conditions {
			if c.Type == v1.AllContainersRestarting {
				return c.Status, c.Message
			}
		}
		return "", ""
	}
	if is, why := condition(); is != v1.ConditionTrue || why != "container app exited with code 88" {
		t.Errorf("shown as %q: %q", is, why)
	}
	for i := range r.pod.Containers {
		r.pod.Containers[i].advance(Exited, r.now)
		r.pod.Containers[i].Inspected = Exited
	}
	r.pod.Dir, r.pod.LogDirs = true, []string{"setup"}
	r.at(3 * time.Minute)
	made := r.want("CreateContainer").Body.(*runtimeapi.CreateContainerRequest)
	if m := made.Config.Metadata; m.Name != "setup" || m.Attempt != 1 ||
		made.Config.Annotations[annotationRound] != "1" || made.PodSandboxId != "s" {
		t.Errorf("made %v with %v", m, made.Config.Annotations)
	}
	if is, _ := condition(); is != v1.ConditionFalse || r.pod.Phase != v1.PodPending {
		t.Errorf("condition %s, phase %s", is, r.pod.Phase)
	}
	if r.pod.Stage != Syncing {
		t.Errorf("the pod is %s", r.pod.Stage)
	}
}

// An agent that starts in the middle goes on, although everything looks as if it had ended: it was
// kept which round it is. Deletion goes first.
func TestRoundOutlivesTheAgent(t *testing.T) {
	p := facts(group(), exits("setup", 0, 0), exits("side", 0, 88), exits("app", 0, 137),
		exits("more", 0, 137))
	p.Record.Read = false
	r := newRig(t, p).at(2 * time.Minute)
	kept, err := json.Marshal(content{Start: t0, Round: 1})
	if err != nil {
		t.Fatal(err)
	}
	r.answer("ReadFiles", &world.FilesRead{Files: []world.File{{Data: kept}}}, nil)
	if p.Stage != Syncing || p.Round.Number != 1 || p.completed() {
		t.Errorf("stage %s, round %d", p.Stage, p.Round.Number)
	}
	p.Unwant(r.now)
	p.Stale = time.Time{}
	r.answer("MakeDir", &world.Done{}, nil).none("CreateContainer")
	if r.want("StopPodSandbox"); p.Stage != Terminating {
		t.Errorf("stage %s", p.Stage)
	}
}

// An agent that starts when the pod has ended knows as well which round was the last: what ended in
// one before it is no end of this one.
func TestTheLastRoundIsKnownAtTheEnd(t *testing.T) {
	p := facts(group(), exits("setup", 0, 0), exits("side", 0, 88))
	p.Record.Read = false
	r := newRig(t, p).at(2 * time.Minute)
	kept, err := json.Marshal(content{Start: t0, Round: 1, End: &Kill{Phase: v1.PodFailed}})
	if err != nil {
		t.Fatal(err)
	}
	r.answer("ReadFiles", &world.FilesRead{Files: []world.File{{Data: kept}}}, nil)
	if p.Stage == Syncing || p.Round.Number != 1 || !p.superseded(&p.Containers[0]) {
		t.Errorf("stage %s, round %d", p.Stage, p.Round.Number)
	}
}

// What was made and not started goes before anything of the next round is made, lest a late start
// have it run beside that; and every container waits for its own back-off.
func TestNextRoundWaits(t *testing.T) {
	s := group()
	setup, made := exits("setup", 0, 0), run("more", 0, Created)
	setup.Backoff = 10 * time.Second
	for i := range s.Spec.Containers {
		if c := &s.Spec.Containers[i]; c.Name == "more" {
			made.Hash = hashOf(c)
		}
	}
	p := facts(s, setup, exits("side", 0, 0), exits("app", 0, 88), made)
	p.Dir, p.LogDirs, p.Record.Round = true, []string{"setup"}, 1
	r := newRig(t, p).at(time.Minute)
	r.want("RemoveContainer")
	r.none("StartContainer")
	r.answer("RemoveContainer", &runtimeapi.RemoveContainerResponse{}, nil)
	r.none("CreateContainer")
	r.at(70 * time.Second).want("CreateContainer")
}

// A pod whose init container fails for good in the next round has failed, although its app
// containers had ended well in the one before.
func TestNextRoundFails(t *testing.T) {
	s := spec(v1.RestartPolicyNever, "setup", "app")
	restartAll(&s.Spec.Containers[0])
	again := exits("setup", 1, 1)
	again.Round = 1
	p := facts(s, exits("setup", 0, 0), again, exits("app", 0, 0))
	p.recallRound()
	if !p.completed() || p.succeeded() || p.Round.Number != 1 {
		t.Errorf("completed %v, succeeded %v, round %d", p.completed(), p.succeeded(),
			p.Round.Number)
	}
}

// Ephemeral containers are not restarted.
func TestEphemeralContainersStay(t *testing.T) {
	s := group()
	s.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
	p := facts(s, run("debug", 0, Running), exits("app", 0, 88))
	p.Record.Round = 1
	newRig(t, p).at(time.Minute).none("StopContainer")
}

func TestRoundIsReadFromTheRuntime(t *testing.T) {
	c := newContainer(&pleg.Container{Name: "app",
		Annotations: map[string]string{annotationRound: "3"}}, t0)
	p := facts(group(), c)
	p.recallRound()
	if c.Round != 3 || p.Round.Number != 3 {
		t.Errorf("a container of round %d in round %d", c.Round, p.Round.Number)
	}
}
