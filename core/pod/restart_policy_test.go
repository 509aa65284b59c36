package pod

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

func rule(operator v1.ContainerRestartRuleOnExitCodesOperator,
	codes ...int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart,
		ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes}}
}

func TestShouldRestart(t *testing.T) {
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
		if got := podWith(s, exited).ShouldRestart(&exited); got != test.want {
			t.Errorf("%+v: restarts %v", test, got)
		}
	}
}

// An init container that fails and is not restarted completes the pod; one that has succeeded is
// never restarted.
func TestShouldRestartInit(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "setup", "web")
	never := v1.ContainerRestartPolicyNever
	s.Spec.InitContainers[0].RestartPolicy = &never
	s.Spec.InitContainers[0].RestartPolicyRules = []v1.ContainerRestartRule{
		rule(v1.ContainerRestartRuleOnExitCodesOpIn, 0, 42)}
	for code, want := range map[int32]struct{ restarts, completed bool }{
		0: {false, false}, 42: {true, false}, 1: {false, true},
	} {
		c := run("setup", 0, Exited)
		c.ExitCode, c.Hash = code, containerHash(&s.Spec.InitContainers[0])
		p := podWith(s, c)
		if p.ShouldRestart(&c) != want.restarts || p.hasCompleted() != want.completed {
			t.Errorf("exit code %d: restarts %v, completed %v", code, p.ShouldRestart(&c),
				p.hasCompleted())
		}
	}
}

// activeDeadlineSeconds terminates the pod for good, also for an agent that starts later.
func TestActiveDeadline(t *testing.T) {
	p := runningPod(func(*v1.Container) {})
	limit := int64(60)
	p.Spec.Spec.ActiveDeadlineSeconds = &limit
	r := newHarness(t, p)
	if r.planAt(0); !r.wake.Equal(t0.Add(time.Minute)) {
		t.Errorf("wakes at %v", r.wake)
	}
	r.planAt(time.Minute).expectCall("StopContainer")
	p.Containers[0].advanceState(Exited, r.now)
	p.Containers[0].Inspected = Exited
	p.StaleSince, p.Sandboxes[0].Ready, p.Sandboxes[0].Stopped = time.Time{}, false, true
	r.planAt(61*time.Second).complete("WriteFile", &world.Done{}, nil) // the termination
	status := servedPod(p, r.env.Node, "c").Status
	if status.Phase != v1.PodFailed || status.Reason != "DeadlineExceeded" {
		t.Errorf("phase %s, reason %q", status.Phase, status.Reason)
	}
}

// An ephemeral container starts side by side with the others, once, and does not affect the phase.
func TestEphemeralContainers(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "setup", "web")
	s.Spec.EphemeralContainers = []v1.EphemeralContainer{{
		EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug", Image: "i"}}}
	p := podWith(s, run("setup", 0, Running))
	p.DirCreated, p.LogDirs = true, []string{"debug"}
	newHarness(t, p).planAt(0).expectCall("CreateContainer")

	exited := failedRun("debug", 0, 0)
	exited.SandboxID = "s"
	p = podWith(s, run("setup", 0, Exited), run("web", 0, Running), exited)
	if got, _ := p.nextAction(p.specContainer("debug"), Ephemeral, t0); got != Ended {
		t.Errorf("%s after its exit, want Ended", got)
	}
	newHarness(t, p).planAt(0)
	statuses := servedPod(p, &Node{}, "c").Status.EphemeralContainerStatuses
	if p.Status.Phase != v1.PodRunning || len(statuses) != 1 || statuses[0].Ready ||
		statuses[0].Started != nil {
		t.Errorf("phase %s, %+v", p.Status.Phase, statuses)
	}
}

// A rule with the action RestartAllContainers is rejected by the name of its feature gate while
// that is disabled.
func TestRestartAllContainersNeedsFeatureGate(t *testing.T) {
	pod := spec(v1.RestartPolicyNever, "", "web")
	pod.Spec.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{
		{Action: v1.ContainerRestartRuleActionRestart},
		{Action: v1.ContainerRestartRuleActionRestartAllContainers},
	}
	const want = "spec.containers[0].restartPolicyRules[1].action (RestartAllContainers, " +
		"feature gate RestartAllContainersOnContainerExits)"
	if got := UnsupportedFields(pod, false); len(got) != 1 || got[0] != want {
		t.Errorf("%q", got)
	}
	if got := UnsupportedFields(pod, true); len(got) > 0 {
		t.Errorf("%q although the feature gate is enabled", got)
	}
}

// A runtime that does not know a container to stop may have lost more: nothing is created before a
// relist. The removal of a container that is gone says nothing of others.
func TestStopAndRemovalOfUnknownContainer(t *testing.T) {
	none := world.Errorf(world.KindNotFound, "", "no such container")
	for _, test := range []struct {
		call      string
		err       *world.Error
		isStale   bool
		isDropped bool
	}{
		{"StopContainer", none, true, true}, {"StopContainer", nil, false, false},
		{"RemoveContainer", none, false, true}, {"RemoveContainer", nil, false, true},
	} {
		p := podWith(spec(v1.RestartPolicyAlways, "", "web"), run("web", 0, Running))
		p.StaleSince = time.Time{}
		p.handleContainerStopOrRemoval(op.Record{Call: test.call, Subject: "web0"},
			world.Event{Time: t0, Err: test.err}, nil)
		if isDropped := len(p.Containers) == 0; p.StaleSince.IsZero() == test.isStale ||
			isDropped != test.isDropped {
			t.Errorf("%s, %v: stale since %v, dropped %v", test.call, test.err, p.StaleSince, isDropped)
		}
	}
}

// A container that was removed before its start completes leaves no problem.
func TestStartOfRemovedContainer(t *testing.T) {
	s := spec(v1.RestartPolicyAlways, "", "web")
	created := run("web", 0, Created)
	created.Hash = containerHash(&s.Spec.Containers[0])
	r := newHarness(t, podWith(s, created)).planAt(0)
	r.expectCall("StartContainer")
	r.pod.dropContainer("web0")
	r.complete("StartContainer", nil, world.Errorf(world.KindNotFound, "", "no such container"))
	if len(r.pod.Problems) > 0 || r.pod.StaleSince.IsZero() {
		t.Errorf("problems %v, stale since %v", r.pod.Problems, r.pod.StaleSince)
	}
}

// A container that was stopped because its definition changed is started again, whatever its
// restart policy and exit code, also if the definition is changed back before the container exits.
func TestContainerStoppedForChangeRunsAgain(t *testing.T) {
	for _, policy := range []v1.RestartPolicy{v1.RestartPolicyNever, v1.RestartPolicyOnFailure} {
		p := runningPod(func(*v1.Container) {})
		p.Spec.Spec.RestartPolicy = policy
		r := newHarness(t, p).planAt(0)
		original, changed := p.Spec, p.Spec.DeepCopy()
		changed.Spec.Containers[0].Image = "j"
		p.SetDesired(changed, nil, r.now)
		r.planAt(time.Second).expectCall("StopContainer")
		p.SetDesired(original, nil, r.now)
		r.planAt(2*time.Second).complete("StopContainer", &runtimeapi.StopContainerResponse{}, nil)
		c := &p.Containers[0]
		c.Inspected, c.ExitCode = Exited, 0
		if got, _ := p.nextAction(p.specContainer("web"), App, r.now); got != Create {
			t.Errorf("%s: %s, want Create", policy, got)
		}
		if p.hasCompleted() {
			t.Errorf("%s: the pod has completed", policy)
		}
	}
}

// An init container that was killed for lack of memory has failed, even if it has exited with 0.
func TestInitContainerKilledForMemoryHasFailed(t *testing.T) {
	for policy, wantRestart := range map[v1.RestartPolicy]bool{
		v1.RestartPolicyAlways: true, v1.RestartPolicyOnFailure: true, v1.RestartPolicyNever: false,
	} {
		killed := run("setup", 0, Exited)
		killed.Reason = reasonOOMKilled
		p := podWith(spec(policy, "setup", "web"), killed)
		if p.IsInitialized() {
			t.Errorf("%s: the pod is initialized", policy)
		}
		c := p.NewestRun("setup")
		if got := p.ShouldRestart(c); got != wantRestart || p.hasCompleted() == wantRestart {
			t.Errorf("%s: restarted %v, completed %v", policy, got, p.hasCompleted())
		}
	}
}
