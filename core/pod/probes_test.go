package pod

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/probe"
	"seedlet.dev/world"
)

func withProbe(kind probe.Kind, grace *int64) func(*v1.Container) {
	return func(c *v1.Container) {
		p := &v1.Probe{ProbeHandler: execProbe("check"), PeriodSeconds: 10, TimeoutSeconds: 1,
			SuccessThreshold: 1, FailureThreshold: 2, TerminationGracePeriodSeconds: grace}
		switch kind {
		case probe.Startup:
			c.StartupProbe = p
		case probe.Liveness:
			c.LivenessProbe = p
		case probe.Readiness:
			c.ReadinessProbe = p
		}
	}
}

// Readiness is reported once it is durable, and not before.
func TestReadinessIsDurableBeforeItIsReported(t *testing.T) {
	r := newHarness(t, runningPod(withProbe(probe.Readiness, nil)))
	r.planAt(0).completeExec(0)
	if s := status(r.pod); s.Ready || !*s.Started {
		t.Errorf("ready %v, started %v before the record was written", s.Ready, *s.Started)
	}
	r.complete("WriteFile", &world.Done{}, nil)
	if !status(r.pod).Ready {
		t.Error("not ready after the record was written")
	}
}

// Readiness is reported all the same if the record cannot be written.
func TestReadinessIsReportedIfRecordCannotBeWritten(t *testing.T) {
	r := newHarness(t, runningPod(withProbe(probe.Readiness, nil)))
	r.planAt(0).completeExec(0)
	r.complete("WriteFile", nil, world.Errorf(world.KindExhausted, "", "no space"))
	if !status(r.pod).Ready {
		t.Error("a full disk keeps the container from being ready")
	}
}

// A new agent restores readiness from the record, and delays the first probe by at most a period.
func TestReadinessSurvivesAgentRestart(t *testing.T) {
	p := runningPod(withProbe(probe.Readiness, nil))
	p.Record.Loaded = false
	r := newHarness(t, p)
	r.planAt(0).expectNoCall("ExecSync")
	if servedPod(p, r.env.Node, "c").Status.Phase != v1.PodUnknown {
		t.Error("a phase is reported before the record was read")
	}
	data, _ := json.Marshal(recordContent{Start: t0,
		Containers: []ContainerRecord{{ID: "web0", Ready: true}}})
	r.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: data}}}, nil)
	if !status(p).Ready {
		t.Error("readiness was lost")
	}
	r.planAt(10 * time.Second).completeExec(1)
	if !status(p).Ready {
		t.Error("not ready after one failure, the threshold is 2")
	}
	r.planAt(20*time.Second).completeExec(1).complete("WriteFile", &world.Done{}, nil)
	if status(p).Ready {
		t.Error("still ready after two failures")
	}
}

// A record that is damaged or cannot be read delays the pod only for a while.
func TestUnreadableRecord(t *testing.T) {
	for _, complete := range []func(*harness){
		func(r *harness) {
			r.complete("ReadFiles", &world.FilesRead{Files: []world.File{{Data: []byte("{")}}}, nil)
		},
		func(r *harness) {
			for i := range recordReadFailuresMax {
				r.planAt(time.Duration(i) * time.Minute)
				r.complete("ReadFiles", nil, world.Errorf(world.KindInternal, "", "bad sector"))
			}
		},
		func(r *harness) { r.complete("ReadFiles", nil, world.Errorf(world.KindNotFound, "", "")) },
	} {
		p := runningPod(withProbe(probe.Readiness, nil))
		p.Record.Loaded = false
		r := newHarness(t, p).planAt(0)
		complete(r)
		if !p.Record.Loaded || status(p).Ready {
			t.Errorf("loaded: %v, ready: %v; want true, false", p.Record.Loaded, status(p).Ready)
		}
		r.planAt(time.Hour).expectCall("ExecSync")
	}
}

// The liveness probe waits for the startup probe, which runs until it has succeeded once.
func TestStartupProbeRunsFirst(t *testing.T) {
	r := newHarness(t, runningPod(func(c *v1.Container) {
		withProbe(probe.Startup, nil)(c)
		withProbe(probe.Liveness, nil)(c)
		c.LivenessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}
	}))
	r.planAt(0).expectNoCall("TCPConnect")
	r.completeExec(1).expectNoCall("TCPConnect")
	r.planAt(10 * time.Second).completeExec(0).expectCall("TCPConnect")
	r.complete("TCPConnect", &world.Done{}, nil).planAt(20 * time.Second).expectNoCall("ExecSync")
	r.expectCall("TCPConnect")
}

// The command of a probe is expanded, and a command that exceeds its bound is no failure.
func TestProbeCommandIsExpanded(t *testing.T) {
	r := newHarness(t, runningPod(func(c *v1.Container) {
		withProbe(probe.Liveness, nil)(c)
		c.Env = []v1.EnvVar{{Name: "PORT", Value: "8080"}}
		c.LivenessProbe.Exec.Command = []string{"nc", "-z", "localhost", "$(PORT)"}
	}))
	r.planAt(0)
	got := r.expectCall("ExecSync").Body.(*runtimeapi.ExecSyncRequest).Cmd
	if !slices.Equal(got, []string{"nc", "-z", "localhost", "8080"}) {
		t.Errorf("the command is %q", got)
	}
	if command := r.pod.Spec.Spec.Containers[0].LivenessProbe.Exec.Command[3]; command != "$(PORT)" {
		t.Errorf("the spec says %s now", command)
	}
	r = newHarness(t, runningPod(func(c *v1.Container) {
		withProbe(probe.Liveness, nil)(c)
		c.Env = []v1.EnvVar{{Name: "A", Value: strings.Repeat("x", 1<<17)}}
		c.LivenessProbe.Exec.Command = []string{"$(A)"}
	}))
	r.planAt(0).expectNoCall("ExecSync")
	r.expectEvents("Unhealthy containers{web}: Liveness probe errored and resulted in unknown " +
		"state: the command of a probe of container web has 131073 bytes, and one may have 32768")
	r.planAt(time.Minute).expectNoCall("StopContainer")
}

// A probe may fail with a text of any length, or time out with a long command. The prober keeps the
// first bytes, and so does the log.
func TestLongProbeMessagesAreCut(t *testing.T) {
	for call, c := range map[string]struct {
		handler v1.ProbeHandler
		err     *world.Error
	}{
		"TCPConnect": {v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}},
			internalError(strings.Repeat("x", 1<<20))},
		"ExecSync": {execProbe(strings.Repeat("\x01", 30_000)),
			world.Errorf(world.KindTimeout, "ExecSync", "late")},
	} {
		r := newHarness(t, runningPod(func(container *v1.Container) {
			withProbe(probe.Readiness, nil)(container)
			container.ReadinessProbe.ProbeHandler = c.handler
			container.ReadinessProbe.FailureThreshold = 1
		}))
		eff := r.planAt(0).expectCall(call)
		record, _ := r.table.Complete(eff.Op)
		r.env.Effects.Reset(&r.table, r.now)
		r.pod.HandleCompletion(eff.Op, record, world.Event{Time: r.now, Op: eff.Op, Err: c.err}, r.env)
		pr := r.pod.Containers[0].prober(probe.Readiness)
		if pr.Result != probe.Failure || len(pr.Message) > probe.MessageMax || pr.Message == "" {
			t.Errorf("%s with a message of %d bytes", pr.Result, len(pr.Message))
		}
		for _, eff := range r.env.Effects.List() {
			if text := fmt.Sprintf("%+v", eff.Body); len(text) > budget.MessageMax+1024 {
				t.Errorf("%s has %d bytes", world.BodyName(eff.Body), len(text))
			}
		}
	}
}

// A command that the runtime cannot run is tried three times at once, then in the next period.
func TestProbeErrorsAreRetried(t *testing.T) {
	r := newHarness(t, runningPod(withProbe(probe.Liveness, nil)))
	failing := internalError("no exec")
	r.planAt(0).complete("ExecSync", nil, failing).complete("ExecSync", nil, failing).expectEvents()
	r.complete("ExecSync", nil, failing).expectNoCall("ExecSync")
	r.expectEvents("Unhealthy containers{web}: Liveness probe errored and resulted in unknown " +
		"state: no exec")
	r.planAt(9 * time.Second).expectNoCall("ExecSync")
	r.planAt(10*time.Second).complete("ExecSync", nil, failing).completeExec(0)
	r.expectNoCall("ExecSync")
	r.planAt(20*time.Second).complete("ExecSync", nil, failing) // two more attempts, not one
	r.complete("ExecSync", nil, failing).expectCall("ExecSync")
	r.expectEvents()
}

// Each answer that redirects elsewhere has a warning, and each timeout the kubelet's text.
func TestProbeWarningsAndTimeouts(t *testing.T) {
	r := newHarness(t, runningPod(func(c *v1.Container) {
		withProbe(probe.Readiness, nil)(c)
		c.ReadinessProbe.ProbeHandler = v1.ProbeHandler{HTTPGet: &v1.HTTPGetAction{Path: "/x",
			Port: intstr.FromInt32(80)}}
	}))
	for i := range 2 {
		r.planAt(time.Duration(i*10)*time.Second).complete("HTTPGet", &world.HTTPGot{Status: 302,
			RedirectedToOtherHost: true, Body: []byte("go")}, nil)
		r.expectEvents("ProbeWarning containers{web}: Readiness probe warning: Probe terminated " +
			"redirects, Response body: go")
	}
	r.planAt(20*time.Second).complete("HTTPGet", nil, world.Errorf(world.KindTimeout, "", "late"))
	r.expectEvents(`Unhealthy containers{web}: Readiness probe failed: Get "http://192.0.2.1:80/x": ` +
		`context deadline exceeded (Client.Timeout exceeded while awaiting headers)`)
}

// A container that fails its liveness probe is stopped with the probe's grace period, and is not
// probed any more.
func TestFailedLivenessProbeStopsContainer(t *testing.T) {
	grace := int64(5)
	r := newHarness(t, runningPod(withProbe(probe.Liveness, &grace)))
	r.planAt(0).completeExec(1).planAt(10 * time.Second)
	r.completeExec(1)
	if got := stopTimeout(r); got != 5 {
		t.Errorf("%d s to stop, want the probe's 5", got)
	}
	r.planAt(20 * time.Second).expectNoCall("ExecSync")
	if len(r.pod.Containers) != 1 || r.pod.Stage != Syncing {
		t.Errorf("the pod is %s", r.pod.Stage)
	}
}

// A result that arrives after the stop has started changes nothing, but for readiness.
func TestLateProbeResult(t *testing.T) {
	for kind, want := range map[probe.Kind]probe.Result{
		probe.Startup: probe.Unknown, probe.Liveness: probe.Unknown, probe.Readiness: probe.Success,
	} {
		r := newHarness(t, runningPod(withProbe(kind, nil)))
		r.planAt(0)
		r.pod.ClearDesired(t0)
		r.planAt(0).expectCall("StopContainer")
		r.completeExec(0)
		if got := r.pod.Containers[0].probeResult(kind); got != want {
			t.Errorf("%s after the stop had started: %q, want %q", kind, got, want)
		}
	}
}

// Startup and liveness probes of all containers end when the pod begins to terminate, also of
// sidecars that wait for their turn. Readiness is probed and reported until a container has exited,
// also while its preStop hook runs, and while one container alone is stopped.
func TestReadinessIsProbedWhileContainerEnds(t *testing.T) {
	withReadiness := func(c *v1.Container) {
		withProbe(probe.Readiness, nil)(c)
		c.ReadinessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}
		c.Lifecycle = &v1.Lifecycle{PreStop: execHook("drain")}
	}
	ready := func(r *harness, want bool) {
		t.Helper()
		if r.completeWrites(); status(r.pod).Ready != want {
			t.Errorf("at %v: ready %v, want %v", r.now.Sub(t0), !want, want)
		}
	}
	for _, deleted := range []bool{true, false} {
		r := newHarness(t, runningPod(withReadiness))
		r.planAt(0).complete("TCPConnect", &world.Done{}, nil)
		ready(r, true)
		if deleted {
			r.pod.ClearDesired(t0)
		} else {
			changed := r.pod.Spec.DeepCopy()
			changed.Spec.Containers[0].Image = "j"
			r.pod.SetDesired(changed, nil, t0)
		}
		r.planAt(5 * time.Second).expectCall("ExecSync") // the hook
		for _, at := range []time.Duration{10, 20} {
			r.planAt(at*time.Second).complete("TCPConnect", nil,
				world.Errorf(world.KindInternal, "", "refused"))
		}
		ready(r, false)
		r.completeExec(0).expectCall("StopContainer")
		r.planAt(30*time.Second).complete("TCPConnect", &world.Done{}, nil)
		ready(r, true)
		r.complete("StopContainer", &runtimeapi.StopContainerResponse{}, nil)
		r.planAt(40 * time.Second).expectNoCall("TCPConnect")
	}

	p := runningPod(withProbe(probe.Liveness, nil))
	always := v1.ContainerRestartPolicyAlways
	proxy := v1.Container{Name: "proxy", Image: "i", RestartPolicy: &always}
	withProbe(probe.Liveness, nil)(&proxy)
	p.Spec.Spec.InitContainers = []v1.Container{proxy}
	sidecar := run("proxy", 0, Running)
	sidecar.SandboxID, sidecar.SidecarOrder, sidecar.Hash = "s", 1, containerHash(&proxy)
	p.addContainer(sidecar)
	r := newHarness(t, p)
	p.ClearDesired(t0)
	r.planAt(0).planAt(20 * time.Second).expectNoCall("ExecSync")
}

// The probes of the next run start without results (upstream #141155).
func TestProbesBelongToOneContainer(t *testing.T) {
	r := newHarness(t, runningPod(withProbe(probe.Startup, nil)))
	r.planAt(0).completeExec(0)
	r.complete("WriteFile", &world.Done{}, nil)
	if !*status(r.pod).Started {
		t.Fatal("not started")
	}
	r.pod.Containers[0].advanceState(Exited, t0)
	next := run("web", 1, Running)
	next.SandboxID, next.Hash, next.RunningSeenAt = "s", r.pod.Containers[0].Hash, t0
	r.pod.addContainer(next)
	if s := status(r.pod); *s.Started || s.Ready {
		t.Error("the next run is reported as started because of the results of the old run")
	}
}

// A probe without a valid port is not a failure of the container.
func TestProbeWithoutPort(t *testing.T) {
	r := newHarness(t, runningPod(func(c *v1.Container) {
		withProbe(probe.Liveness, nil)(c)
		c.LivenessProbe.ProbeHandler = v1.ProbeHandler{GRPC: nil}
	}))
	for i := range 5 {
		r.planAt(time.Duration(i) * 10 * time.Second).expectNoCall("StopContainer")
	}
	if r.wake.IsZero() {
		t.Error("the probe is not retried")
	}
}

func TestHashedDelayIsWithinPeriod(t *testing.T) {
	seen := map[time.Duration]bool{}
	for _, id := range []string{"a", "b", "c", "d"} {
		d := hashedDelay(7, id, 10)
		if d < 0 || d >= 10*time.Second || d != hashedDelay(7, id, 10) {
			t.Errorf("%s: %v", id, d)
		}
		seen[d] = true
	}
	if len(seen) < 3 {
		t.Errorf("containers are probed at the same times: %v", seen)
	}
}

// A failed write may have taken effect. The record is written again even if its content is back to
// what was written before.
func TestFailedRecordWriteIsRepeated(t *testing.T) {
	r := newHarness(t, runningPod(withProbe(probe.Readiness, nil))).planAt(0).completeExec(0)
	r.complete("WriteFile", nil, world.Errorf(world.KindTimeout, "", "no answer"))
	// Two failures: the container is not ready any more.
	r.planAt(10 * time.Second).completeExec(1).planAt(20 * time.Second).completeExec(1)
	r.complete("WriteFile", nil, world.Errorf(world.KindTimeout, "", "no answer"))
	r.planAt(time.Minute).expectCall("WriteFile") // the content is that of the first write
}

// A probe that was never sent does not count as a failure.
func TestCanceledProbeIsNoFailure(t *testing.T) {
	r := newHarness(t, runningPod(func(c *v1.Container) {
		withProbe(probe.Liveness, nil)(c)
		c.LivenessProbe.FailureThreshold = 1
		c.LivenessProbe.ProbeHandler = v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{}}
	}))
	r.planAt(0).complete("TCPConnect", nil, world.Errorf(world.KindCanceled, "", "no free place"))
	r.expectNoCall("StopContainer")
}

// A container that was stopped for a failed probe is restarted even if it exits with 0, unless its
// restart policy is Never.
func TestUnhealthyContainerIsRestarted(t *testing.T) {
	for policy, want := range map[v1.RestartPolicy]bool{
		v1.RestartPolicyAlways: true, v1.RestartPolicyOnFailure: true,
		v1.RestartPolicyNever: false,
	} {
		p := runningPod(withProbe(probe.Liveness, nil))
		p.Spec.Spec.RestartPolicy = policy
		r := newHarness(t, p)
		r.planAt(0).completeExec(1).planAt(10 * time.Second)
		r.completeExec(1).expectCall("StopContainer")
		c := &p.Containers[0]
		c.advanceState(Exited, r.now)
		c.Inspected = Exited
		if got := p.ShouldRestart(c); got != want {
			t.Errorf("%s: restarted %v", policy, got)
		}
	}
}
