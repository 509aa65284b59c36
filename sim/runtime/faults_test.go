package runtime

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

func withOutcomes(f outcomes) func(*Options) { return func(o *Options) { o.Faults = f } }

func TestLostResponseTakesEffectAndTimesOut(t *testing.T) {
	w := newWorld(1, withOutcomes(outcomes{"RunPodSandbox": {{ResponseLost: true}}}))
	started := w.Now()
	run := &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig("u1")}
	_, err := w.Call(run)
	if !err.Has(world.KindTimeout) || w.Now().Sub(started) != w.timeout {
		t.Errorf("%v after %v", err, w.Now().Sub(started))
	}
	if len(w.runtime.Sandboxes()) != 1 {
		t.Error("the call had no effect")
	}
	if _, err = w.Call(run); !err.Has(world.KindExists) {
		t.Errorf("the sandbox name was free: %v", err)
	}
}

func TestEffectAfterTheDeadline(t *testing.T) {
	late, never := 0, 0
	for seed := range uint64(40) {
		w := newWorld(seed, withOutcomes(outcomes{"RunPodSandbox": {{EffectDelay: 3 * time.Minute}}}))
		run := &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig("u1")}
		_, err := w.Call(run)
		if !err.Has(world.KindTimeout) || len(w.runtime.Sandboxes()) != 0 {
			t.Fatalf("%v, %v", err, w.runtime.Sandboxes())
		}
		if _, err = w.Call(run); !err.Has(world.KindExists) {
			t.Fatalf("the sandbox name was free during the creation: %v", err)
		}
		w.Sleep(2 * time.Minute)
		_, err = w.Call(run)
		if len(w.runtime.Sandboxes()) != 1 {
			t.Fatalf("%v", w.runtime.Sandboxes())
		}
		if err.Has(world.KindExists) {
			late++
		} else if err == nil {
			never++
		}
	}
	if late < 5 || never < 5 || late+never != 40 {
		t.Errorf("%d calls took effect late, %d never", late, never)
	}
}

func TestErrorsBeforeAndAfterTheEffect(t *testing.T) {
	broken := &world.Error{Kind: world.KindInternal, Message: "broken"}
	w := newWorld(1, withOutcomes(outcomes{"StopPodSandbox": {{ErrorBefore: broken},
		{ErrorAfter: broken}}}))
	s := w.mustRun(t, "u1")
	for i, want := range []runtimeapi.PodSandboxState{ready, notReady} {
		_, err := w.Call(&runtimeapi.StopPodSandboxRequest{PodSandboxId: s})
		if !err.Has(world.KindInternal) || err.Op != "StopPodSandbox" {
			t.Errorf("call %d: %v", i, err)
		}
		if got := w.runtime.Sandboxes()[0].State; got != want {
			t.Errorf("after call %d: %v, want %v", i, got, want)
		}
	}
}

func TestFailedRunPodSandboxMayLeaveASandbox(t *testing.T) {
	broken := &world.Error{Kind: world.KindInternal, Message: "broken"}
	left := map[string]int{}
	for seed := range uint64(40) {
		w := newWorld(seed, withOutcomes(outcomes{"RunPodSandbox": {{ErrorAfter: broken}}}))
		run := &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig("u1")}
		if _, err := w.Call(run); err == nil {
			t.Fatal("the call succeeded")
		}
		left[w.runtime.Sandboxes()[0].State.String()]++
		if _, err := w.Call(run); !err.Has(world.KindExists) {
			t.Fatalf("the sandbox name was free: %v", err)
		}
	}
	if left["SANDBOX_READY"] == 0 || left["SANDBOX_NOTREADY"] == 0 {
		t.Errorf("sandboxes left by state: %v", left)
	}
}

func TestFailedStartExitsTheContainer(t *testing.T) {
	for kind, want := range map[world.ErrorKind]runtimeapi.ContainerState{
		world.KindInternal: exited, world.KindUnavailable: created,
	} {
		calls := outcomes{"StartContainer": {{ErrorBefore: &world.Error{Kind: kind}}}}
		w := newWorld(1, withOutcomes(calls))
		c := w.mustCreate(t, w.mustRun(t, "u1"), "u1", "app", 0)
		_, err := w.Call(&runtimeapi.StartContainerRequest{ContainerId: c})
		if !err.Has(kind) || w.state(c) != want {
			t.Errorf("%v: %v, want %v", err, w.state(c), want)
		}
	}
}

func TestDisconnect(t *testing.T) {
	outcomes := map[string]int{}
	for seed := range uint64(60) {
		w := newWorld(seed, func(o *Options) {
			o.Behaviour = func(Instance) Script { return Script{IgnoresTerm: true} }
		})
		s := w.mustRun(t, "u1")
		c := w.mustCreate(t, s, "u1", "app", 0)
		w.mustStart(t, c)
		completed := len(w.completions)
		w.Begin(&runtimeapi.StopContainerRequest{ContainerId: c, Timeout: 30})
		w.Begin(w.createRequest(s, "u1", "second", 0))
		w.Sleep(time.Millisecond)
		w.runtime.Disconnect()
		w.Sleep(time.Minute)
		if len(w.completions) != completed {
			t.Fatal("a call of a dead agent completed")
		}
		killed, created := w.state(c) == exited, len(w.runtime.Containers()) == 2
		outcomes[fmt.Sprintf("killed %v, made %v", killed, created)]++

		w.runtime.Connect(w.deliver)
		_, err := w.Call(w.createRequest(s, "u1", "second", 0))
		if err.Has(world.KindExists) != created {
			t.Fatalf("created %v, but %v", created, err)
		}
	}
	if len(outcomes) != 4 {
		t.Errorf("outcomes %v", outcomes)
	}
}

func TestRestartOfTheRuntime(t *testing.T) {
	w := newWorld(1, func(o *Options) {
		o.Behaviour = func(Instance) Script { return Script{IgnoresTerm: true} }
	})
	s := w.mustRun(t, "u1")
	c := w.mustCreate(t, s, "u1", "app", 0)
	w.mustStart(t, c)
	stop := w.Begin(&runtimeapi.StopContainerRequest{ContainerId: c, Timeout: 5})
	create := w.Begin(w.createRequest(s, "u1", "second", 0))
	w.Sleep(time.Millisecond)
	w.runtime.Restart(10 * time.Second)
	for _, wait := range []func() (any, *world.Error){stop, create} {
		if _, err := wait(); !err.Has(world.KindUnavailable) {
			t.Errorf("a call in flight: %v", err)
		}
	}
	w.Sleep(8 * time.Second)
	if _, err := w.Call(&runtimeapi.VersionRequest{}); !err.Has(world.KindUnavailable) {
		t.Errorf("while the runtime was down: %v", err)
	}
	w.Sleep(2 * time.Second)
	if _, err := w.Call(&runtimeapi.VersionRequest{}); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	if w.state(c) != running || len(w.runtime.Containers()) != 1 {
		t.Errorf("containers %v", w.runtime.Containers())
	}
	w.mustCreate(t, s, "u1", "second", 0) // its name is free again
}

func TestKillContainerAndSandbox(t *testing.T) {
	w := newWorld(1, nil)
	s := w.mustRun(t, "u1")
	first := w.mustCreate(t, s, "u1", "first", 0)
	second := w.mustCreate(t, s, "u1", "second", 0)
	w.mustStart(t, first)
	w.mustStart(t, second)
	if !w.runtime.Kill("u1", "first", truth.CauseOOM, 137) ||
		w.runtime.Kill("u1", "first", truth.CauseOOM, 137) {
		t.Error("the container was not killed exactly once")
	}
	if !w.runtime.KillSandbox(s) || w.runtime.KillSandbox(s) || w.runtime.KillSandbox("unknown") {
		t.Error("the sandbox was not killed exactly once")
	}
	if w.state(first) != exited || w.state(second) != running {
		t.Errorf("states %v %v", w.state(first), w.state(second))
	}
	if _, err := w.Call(w.createRequest(s, "u1", "third", 0)); err == nil {
		t.Error("a container was created in a dead sandbox")
	}
	if _, err := w.Call(&runtimeapi.StopPodSandboxRequest{PodSandboxId: s}); err != nil {
		t.Error(err)
	}
	want := "SandboxCreated SandboxReady Created Created Started Started Exited(137 oom) " +
		"SandboxStopped(killed) KillRequested(sandbox) Exited(137 sandbox)"
	if got := w.factSummary(); got != want {
		t.Errorf("facts: %s", got)
	}
}

func TestReboot(t *testing.T) {
	w := newWorld(1, nil)
	w.populate(2)
	creating := w.Begin(&runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig("u1")})
	w.Sleep(time.Millisecond)
	w.runtime.Disconnect()
	w.runtime.Reboot()
	w.Sleep(time.Minute)
	w.runtime.Connect(w.deliver)
	if len(w.runtime.Sandboxes()) != 2 || len(w.runtime.Containers()) != 4 {
		t.Errorf("after the reboot: %v %v", w.runtime.Sandboxes(), w.runtime.Containers())
	}
	for _, s := range w.runtime.Sandboxes() {
		if s.State != notReady || s.IP != "" {
			t.Errorf("sandbox %+v", s)
		}
	}
	for _, c := range w.runtime.Containers() {
		if c.State != exited || c.ExitCode != 255 || c.Reason != "Unknown" {
			t.Errorf("container %+v", c)
		}
	}
	if w.mustRun(t, "u1") == "" || creating == nil {
		t.Error("the name of an unfinished sandbox is still reserved")
	}
}

func TestCreateContainerOutlivesItsSandbox(t *testing.T) {
	slow := Outcome{EffectDelay: 10 * time.Second}
	w := newWorld(1, withOutcomes(outcomes{"CreateContainer": {slow, slow}, "StartContainer": {slow}}))
	s := w.mustRun(t, "u1")
	create := w.Begin(w.createRequest(s, "u1", "app", 0))
	w.Sleep(time.Second)
	if _, err := w.Call(&runtimeapi.StopPodSandboxRequest{PodSandboxId: s}); err != nil {
		t.Fatal(err)
	}
	body, err := create()
	if err != nil {
		t.Fatalf("the creation failed, but containerd does not check the sandbox again: %v", err)
	}
	id := body.(*runtimeapi.CreateContainerResponse).ContainerId
	if _, err = w.Call(&runtimeapi.StartContainerRequest{ContainerId: id}); err == nil ||
		w.state(id) != exited {
		t.Errorf("started in a stopped sandbox: %v, %v", err, w.state(id))
	}
}

func TestRemovingAStartingContainerFails(t *testing.T) {
	w := newWorld(1, withOutcomes(outcomes{"StartContainer": {{EffectDelay: 10 * time.Second}}}))
	s := w.mustRun(t, "u1")
	c := w.mustCreate(t, s, "u1", "app", 0)
	start := w.Begin(&runtimeapi.StartContainerRequest{ContainerId: c})
	w.Sleep(time.Second)
	if _, err := w.Call(&runtimeapi.RemoveContainerRequest{ContainerId: c}); err == nil {
		t.Error("a container was removed while it was being started")
	}
	if _, err := start(); err != nil || w.state(c) != running {
		t.Errorf("%v, %v", err, w.state(c))
	}
}

// While the network is not ready, only a sandbox on the host's network is created.
func TestNetworkNotReady(t *testing.T) {
	w := newWorld(1, nil)
	w.runtime.SetNetworkReady(false)
	own, host := w.sandboxConfig("u1"), w.sandboxConfig("u2")
	host.Linux = &runtimeapi.LinuxPodSandboxConfig{
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
	if _, err := w.Call(&runtimeapi.RunPodSandboxRequest{Config: own}); !err.Has(world.KindInternal) {
		t.Errorf("a sandbox with its own network: %v", err)
	}
	if _, err := w.Call(&runtimeapi.RunPodSandboxRequest{Config: host}); err != nil {
		t.Errorf("a sandbox on the host's network: %v", err)
	}
	w.runtime.SetNetworkReady(true)
	if _, err := w.Call(&runtimeapi.RunPodSandboxRequest{Config: own}); err != nil {
		t.Errorf("the network is ready again: %v", err)
	}
}
