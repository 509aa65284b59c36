package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

func rule(operator v1.ContainerRestartRuleOnExitCodesOperator,
	codes ...int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes}}
}

func TestRestarts(t *testing.T) {
	in, notIn := v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	for _, test := range []struct {
		pod   v1.RestartPolicy
		own   v1.ContainerRestartPolicy
		rules []v1.ContainerRestartRule
		code  int32
		want  bool
	}{
		{v1.RestartPolicyAlways, "", nil, 0, true},
		{v1.RestartPolicyOnFailure, "", nil, 0, false},
		{v1.RestartPolicyOnFailure, "", nil, 1, true},
		{v1.RestartPolicyNever, "", nil, 1, false},
		{v1.RestartPolicyAlways, "Never", nil, 1, false},
		{v1.RestartPolicyNever, "Always", nil, 0, true},
		{v1.RestartPolicyNever, "OnFailure", nil, 1, true},
		{v1.RestartPolicyNever, "OnFailure", nil, 0, false},
		{v1.RestartPolicyAlways, "Never", []v1.ContainerRestartRule{rule(in, 42)}, 42, true},
		{v1.RestartPolicyAlways, "Never", []v1.ContainerRestartRule{rule(in, 42)}, 1, false},
		{v1.RestartPolicyAlways, "Never", []v1.ContainerRestartRule{rule(notIn, 42)}, 1, true},
		{v1.RestartPolicyAlways, "Never", []v1.ContainerRestartRule{rule(notIn, 42)}, 42, false},
		{v1.RestartPolicyAlways, "Never", []v1.ContainerRestartRule{{Action: "Restart"}}, 42, false},
	} {
		s := spec(test.pod, "", "web")
		c := &s.Spec.Containers[0]
		c.RestartPolicyRules = test.rules
		if test.own != "" {
			c.RestartPolicy = &test.own
		}
		exited := run("web", 0, Exited)
		exited.ExitCode = test.code
		if got := facts(s, exited).restarts(&exited); got != test.want {
			t.Errorf("%+v: restarts %v", test, got)
		}
	}
}

// An init container that its own policy does not run again ends the pod; one that has done its
// work is never run again.
func TestRestartsOfInit(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "setup", "web")
	never := v1.ContainerRestartPolicyNever
	s.Spec.InitContainers[0].RestartPolicy = &never
	s.Spec.InitContainers[0].RestartPolicyRules = []v1.ContainerRestartRule{
		rule(v1.ContainerRestartRuleOnExitCodesOpIn, 0, 42)}
	for code, want := range map[int32]struct{ again, over bool }{
		0: {false, false}, 42: {true, false}, 1: {false, true},
	} {
		c := run("setup", 0, Exited)
		c.ExitCode, c.Hash = code, hashOf(&s.Spec.InitContainers[0])
		p := facts(s, c)
		if p.restarts(&c) != want.again || p.completed() != want.over {
			t.Errorf("exit code %d: again %v, over %v", code, p.restarts(&c), p.completed())
		}
	}
}

// An active deadline ends the pod for good, also for an agent that starts later.
func TestActiveDeadline(t *testing.T) {
	p := running(func(*v1.Container) {})
	limit := int64(60)
	p.Spec.Spec.ActiveDeadlineSeconds = &limit
	r := newRig(t, p)
	if r.at(0); !r.wake.Equal(t0.Add(time.Minute)) {
		t.Errorf("wakes at %v", r.wake)
	}
	r.at(time.Minute).want("StopContainer")
	p.Containers[0].advance(Exited, r.now)
	p.Containers[0].Inspected = Exited
	p.Stale, p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = time.Time{}, false, true
	r.at(61*time.Second).answer("WriteFile", &world.Done{}, nil) // that it was ended is kept
	status := p.API(r.env.Node, "c").Status
	if status.Phase != v1.PodFailed || status.Reason != "DeadlineExceeded" {
		t.Errorf("shown as %s, reason %q", status.Phase, status.Reason)
	}
}

// An ephemeral container starts beside the others, once, and decides nothing about the pod.
func TestEphemeralContainers(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "setup", "web")
	s.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
	p := facts(s, run("setup", 0, Running))
	p.Dir, p.LogDirs = true, []string{"debug"}
	newRig(t, p).at(0).want("CreateContainer")

	over := failed("debug", 0, 0)
	over.SandboxID = "s"
	p = facts(s, run("setup", 0, Exited), run("web", 0, Running), over)
	if got, _ := p.next(p.want("debug"), Ephemeral, t0); got != Ended {
		t.Errorf("%s after its end, want Ended", got)
	}
	p.note(newRig(t, p).at(0).env)
	shown := p.API(&Node{}, "c").Status.EphemeralContainerStatuses
	if p.Phase != v1.PodRunning || len(shown) != 1 || shown[0].Ready || shown[0].Started != nil {
		t.Errorf("phase %s, %+v", p.Phase, shown)
	}
}

// The action that restarts every container is refused by the name of its feature gate, where that
// is off.
func TestRestartAllContainersIsRefused(t *testing.T) {
	pod := spec(v1.RestartPolicyNever, "", "web")
	pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{
		{Action: v1.ContainerRestartRuleActionRestart},
		{Action: v1.ContainerRestartRuleActionRestartAllContainers},
	}
	const want = "spec.containers[0].restartPolicyRules[1].action (RestartAllContainers, " +
		"feature gate RestartAllContainersOnContainerExits)"
	if got := Unsupported(pod, false); len(got) != 1 || got[0] != want {
		t.Errorf("%q", got)
	}
	if got := Unsupported(pod, true); len(got) > 0 {
		t.Errorf("%q although the gate is on", got)
	}
}

// A container that has gone before its start was answered leaves no trouble to its pod.
func TestAStartOfWhatHasGone(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	made := run("web", 0, Created)
	made.Hash = hashOf(&s.Spec.Containers[0])
	r := newRig(t, facts(s, made)).at(0)
	r.want("StartContainer")
	r.pod.dropContainer("web0")
	r.answer("StartContainer", nil, world.Errorf(world.KindNotFound, "", "no such container"))
	if len(r.pod.Problems) > 0 || r.pod.Stale.IsZero() {
		t.Errorf("problems %v, stale since %v", r.pod.Problems, r.pod.Stale)
	}
}
