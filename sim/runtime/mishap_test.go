package runtime

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

func withFates(f fates) func(*Options) { return func(o *Options) { o.Faults = f } }

func TestALostCallTakesEffectAndTimesOut(t *testing.T) {
	w := newWorld(1, withFates(fates{"RunPodSandbox": {{Lost: true}}}))
	began := w.Now()
	run := &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig("u1")}
	_, err := w.Call(run)
	if !err.Has(world.KindTimeout) || w.Now().Sub(began) != w.timeout {
		t.Errorf("%v after %v", err, w.Now().Sub(began))
	}
	if len(w.runtime.Sandboxes()) != 1 {
		t.Error("it took no effect")
	}
	if _, err = w.Call(run); !err.Has(world.KindExists) {
		t.Errorf("its name is free: %v", err)
	}
}

func TestAnEffectAfterTheDeadline(t *testing.T) {
	late, never := 0, 0
	for seed := range uint64(40) {
		w := newWorld(seed, withFates(fates{"RunPodSandbox": {{EffectDelay: 3 * time.Minute}}}))
		run := &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig("u1")}
		_, err := w.Call(run)
		if !err.Has(world.KindTimeout) || len(w.runtime.Sandboxes()) != 0 {
			t.Fatalf("%v, %v", err, w.runtime.Sandboxes())
		}
		if _, err = w.Call(run); !err.Has(world.KindExists) {
			t.Fatalf("its name is free while it is being made: %v", err)
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
		t.Errorf("%d came late, %d never", late, never)
	}
}

func TestErrorsBeforeAndAfter(t *testing.T) {
	broken := &world.Error{Kind: world.KindInternal, Message: "broken"}
	w := newWorld(1, withFates(fates{"StopPodSandbox": {{Before: broken}, {After: broken}}}))
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

func TestAFailedRunMayLeaveASandbox(t *testing.T) {
	broken := &world.Error{Kind: world.KindInternal, Message: "broken"}
	left := map[string]int{}
	for seed := range uint64(40) {
		w := newWorld(seed, withFates(fates{"RunPodSandbox": {{After: broken}}}))
		run := &runtimeapi.RunPodSandboxRequest{Config: w.sandboxConfig("u1")}
		if _, err := w.Call(run); err == nil {
			t.Fatal("it succeeded")
		}
		left[w.runtime.Sandboxes()[0].State.String()]++
		if _, err := w.Call(run); !err.Has(world.KindExists) {
			t.Fatalf("its name is free: %v", err)
		}
	}
	if left["SANDBOX_READY"] == 0 || left["SANDBOX_NOTREADY"] == 0 {
		t.Errorf("left %v", left)
	}
}

func TestAFailedStartExits(t *testing.T) {
	for kind, want := range map[world.ErrorKind]runtimeapi.ContainerState{
		world.KindInternal: exited, world.KindUnavailable: created,
	} {
		w := newWorld(1, withFates(fates{"StartContainer": {{Before: &world.Error{Kind: kind}}}}))
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
		answered := len(w.answers)
		w.Begin(&runtimeapi.StopContainerRequest{ContainerId: c, Timeout: 30})
		w.Begin(w.creation(s, "u1", "second", 0))
		w.Sleep(time.Millisecond)
		w.runtime.Disconnect()
		w.Sleep(time.Minute)
		if len(w.answers) != answered {
			t.Fatal("a dead agent was answered")
		}
		killed, made := w.state(c) == exited, len(w.runtime.Containers()) == 2
		outcomes[fmt.Sprintf("killed %v, made %v", killed, made)]++

		w.runtime.Connect(w.answer)
		_, err := w.Call(w.creation(s, "u1", "second", 0))
		if err.Has(world.KindExists) != made {
			t.Fatalf("made %v, but %v", made, err)
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
	create := w.Begin(w.creation(s, "u1", "second", 0))
	w.Sleep(time.Millisecond)
	w.runtime.Restart(10 * time.Second)
	for _, wait := range []func() (any, *world.Error){stop, create} {
		if _, err := wait(); !err.Has(world.KindUnavailable) {
			t.Errorf("a call in flight: %v", err)
		}
	}
	w.Sleep(8 * time.Second)
	if _, err := w.Call(&runtimeapi.VersionRequest{}); !err.Has(world.KindUnavailable) {
		t.Errorf("while it was down: %v", err)
	}
	w.Sleep(2 * time.Second)
	if _, err := w.Call(&runtimeapi.VersionRequest{}); err != nil {
		t.Errorf("when it was back: %v", err)
	}
	if w.state(c) != running || len(w.runtime.Containers()) != 1 {
		t.Errorf("containers %v", w.runtime.Containers())
	}
	w.mustCreate(t, s, "u1", "second", 0) // its name is free again
}

func TestKills(t *testing.T) {
	w := newWorld(1, nil)
	s := w.mustRun(t, "u1")
	first := w.mustCreate(t, s, "u1", "first", 0)
	second := w.mustCreate(t, s, "u1", "second", 0)
	w.mustStart(t, first)
	w.mustStart(t, second)
	if !w.runtime.Kill("u1", "first", truth.CauseOOM, 137) ||
		w.runtime.Kill("u1", "first", truth.CauseOOM, 137) {
		t.Error("not killed exactly once")
	}
	if !w.runtime.KillSandbox(s) || w.runtime.KillSandbox(s) || w.runtime.KillSandbox("nobody") {
		t.Error("sandbox not killed exactly once")
	}
	if w.state(first) != exited || w.state(second) != running {
		t.Errorf("states %v %v", w.state(first), w.state(second))
	}
	if _, err := w.Call(w.creation(s, "u1", "third", 0)); err == nil {
		t.Error("a container was made in a dead sandbox")
	}
	if _, err := w.Call(&runtimeapi.StopPodSandboxRequest{PodSandboxId: s}); err != nil {
		t.Error(err)
	}
	want := "SandboxCreated SandboxReady Created Created Started Started Exited(137 oom) " +
		"SandboxStopped(killed) KillRequested(sandbox) Exited(137 sandbox)"
	if got := w.story(); got != want {
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
	w.runtime.Connect(w.answer)
	if len(w.runtime.Sandboxes()) != 2 || len(w.runtime.Containers()) != 4 {
		t.Errorf("left %v %v", w.runtime.Sandboxes(), w.runtime.Containers())
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
		t.Error("the name of what was being made is still taken")
	}
}

func TestACreationOutlivesItsSandbox(t *testing.T) {
	slow := Fate{EffectDelay: 10 * time.Second}
	w := newWorld(1, withFates(fates{"CreateContainer": {slow, slow}, "StartContainer": {slow}}))
	s := w.mustRun(t, "u1")
	create := w.Begin(w.creation(s, "u1", "app", 0))
	w.Sleep(time.Second)
	if _, err := w.Call(&runtimeapi.StopPodSandboxRequest{PodSandboxId: s}); err != nil {
		t.Fatal(err)
	}
	body, err := create()
	if err != nil {
		t.Fatalf("containerd does not look again: %v", err)
	}
	id := body.(*runtimeapi.CreateContainerResponse).ContainerId
	if _, err = w.Call(&runtimeapi.StartContainerRequest{ContainerId: id}); err == nil ||
		w.state(id) != exited {
		t.Errorf("started in a stopped sandbox: %v, %v", err, w.state(id))
	}
}

func TestRemovingWhatIsBeingStartedFails(t *testing.T) {
	w := newWorld(1, withFates(fates{"StartContainer": {{EffectDelay: 10 * time.Second}}}))
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
