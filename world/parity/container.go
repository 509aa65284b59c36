package parity

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// The cases about the life of a container.

const (
	created   = runtimeapi.ContainerState_CONTAINER_CREATED
	isRunning = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited    = runtimeapi.ContainerState_CONTAINER_EXITED
)

func createInNoSandbox(p *pod) {
	p.fails(p.createContainer(nobody, Runs, 0), world.KindNotFound)
	id := p.sandbox(0)
	p.stopSandbox(id)
	_, err := p.w.Call(p.createContainer(id, Runs, 0))
	p.check(err != nil, "a container was made in a stopped sandbox")
	p.check(len(p.containers(&runtimeapi.ContainerFilter{PodSandboxId: id})) == 0, "it is listed")
}

func containerNameIsTaken(p *pod) {
	id := p.sandbox(0)
	first := p.created(id, Runs, 0)
	p.fails(p.createContainer(id, Runs, 0), world.KindExists)
	second := p.created(id, Runs, 1)
	p.check(first != second, "two containers have one id")
	p.remove(first)
	p.check(p.created(id, Runs, 0) != first, "the id was used again")
}

func containerNameIsThePods(p *pod) {
	first, second := p.sandbox(0), p.sandbox(1)
	p.created(first, Runs, 0)
	p.fails(p.createContainer(second, Runs, 0), world.KindExists)
}

func createWithoutImage(p *pod) {
	id := p.sandbox(0)
	req := p.createContainer(id, Runs, 0)
	_, missing := p.w.Images()
	req.Config.Image = &runtimeapi.ImageSpec{Image: missing, UserSpecifiedImage: missing}
	p.fails(req, world.KindNotFound)
	p.created(id, Runs, 0) // its name has been given back
}

func exitsByItself(p *pod) {
	container := p.created(p.sandbox(0), Exits3, 0)
	s := p.status(container)
	p.check(s.State == created && s.CreatedAt > 0 && s.StartedAt == 0 && s.FinishedAt == 0,
		"created: %v %d %d %d", s.State, s.CreatedAt, s.StartedAt, s.FinishedAt)
	p.start(container)
	s = p.exit(container)
	p.check(s.ExitCode == 3 && s.Reason == "Error", "code %d, reason %q", s.ExitCode, s.Reason)
	// The end of a short run may be before its start: containerd writes the start down when the
	// process has started, and takes the end from the kernel.
	p.check(s.CreatedAt <= s.StartedAt && s.CreatedAt <= s.FinishedAt &&
		s.StartedAt-s.FinishedAt < int64(100*time.Millisecond),
		"times %d %d %d", s.CreatedAt, s.StartedAt, s.FinishedAt)
	p.check(s.FinishedAt <= p.w.Now().UnixNano(), "finished in the future")
}

func exitsWithZero(p *pod) {
	s := p.exit(p.started(p.sandbox(0), Exits0, 0))
	p.check(s.ExitCode == 0 && s.Reason == "Completed", "code %d, reason %q", s.ExitCode, s.Reason)
}

func running(p *pod) {
	s := p.status(p.started(p.sandbox(0), Runs, 0))
	p.check(s.State == isRunning && s.StartedAt >= s.CreatedAt && s.FinishedAt == 0,
		"%v %d %d", s.State, s.StartedAt, s.FinishedAt)
	p.check(s.Reason == "" && s.ExitCode == 0, "reason %q, code %d", s.Reason, s.ExitCode)
}

func startsOnce(p *pod) {
	id := p.sandbox(0)
	container := p.started(id, Runs, 0)
	before := p.status(container)
	_, err := p.w.Call(&runtimeapi.StartContainerRequest{ContainerId: container})
	p.check(err != nil, "it was started twice")
	after := p.status(container)
	p.check(after.State == isRunning && after.StartedAt == before.StartedAt, "%v", after)

	done := p.started(id, Exits3, 0)
	p.exit(done)
	_, err = p.w.Call(&runtimeapi.StartContainerRequest{ContainerId: done})
	p.check(err != nil && p.status(done).ExitCode == 3, "an exited one was started: %v", err)
}

func startUnknown(p *pod) {
	p.fails(&runtimeapi.StartContainerRequest{ContainerId: nobody}, world.KindNotFound)
}

func startInStoppedSandbox(p *pod) {
	id := p.sandbox(0)
	container := p.created(id, Runs, 0)
	p.stopSandbox(id)
	_, err := p.w.Call(&runtimeapi.StartContainerRequest{ContainerId: container})
	p.check(err != nil, "it was started")
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 128 && s.Reason == "StartError" && s.StartedAt == 0,
		"%v, code %d, reason %q, started %d", s.State, s.ExitCode, s.Reason, s.StartedAt)
}

func stopByTerm(p *pod) {
	container := p.started(p.sandbox(0), Runs, 0)
	took := p.stop(container, 30)
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 143 && s.Reason == "Error",
		"%v, code %d, reason %q", s.State, s.ExitCode, s.Reason)
	p.check(took < 20*time.Second, "it took %v", took)
}

func stopHandled(p *pod) {
	container := p.started(p.sandbox(0), HandlesTerm7, 0)
	took := p.stop(container, 30)
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 7, "%v, code %d", s.State, s.ExitCode)
	p.check(took > 500*time.Millisecond && took < 20*time.Second, "it took %v", took)
}

func stopByKill(p *pod) {
	container := p.started(p.sandbox(0), IgnoresTerm, 0)
	took := p.stop(container, 2)
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 137 && s.Reason == "Error",
		"%v, code %d, reason %q", s.State, s.ExitCode, s.Reason)
	p.check(took >= 2*time.Second && took < 20*time.Second, "it took %v", took)
}

func stopAtOnce(p *pod) {
	container := p.started(p.sandbox(0), Runs, 0)
	p.stop(container, 0)
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 137, "%v, code %d", s.State, s.ExitCode)
}

func stopTwice(p *pod) {
	container := p.started(p.sandbox(0), IgnoresTerm, 0)
	began := p.w.Now()
	wait := p.w.Begin(&runtimeapi.StopContainerRequest{ContainerId: container, Timeout: 60})
	p.w.Sleep(500 * time.Millisecond)
	p.stop(container, 1)
	_, err := wait()
	took := p.w.Now().Sub(began)
	p.check(err == nil && took < 30*time.Second, "the first stop: %v after %v", err, took)
	p.check(p.status(container).ExitCode == 137, "code %d", p.status(container).ExitCode)
}

func stopNotRunning(p *pod) {
	id := p.sandbox(0)
	done, idle := p.started(id, Exits3, 0), p.created(id, Runs, 0)
	p.exit(done)
	p.stop(done, 5)
	p.check(p.status(done).ExitCode == 3, "its exit code changed")
	p.stop(idle, 5)
	p.check(p.status(idle).State == created, "state %v", p.status(idle).State)
}

func removeRunning(p *pod) {
	id := p.sandbox(0)
	container := p.started(id, IgnoresTerm, 0)
	began := p.w.Now()
	p.remove(container)
	p.check(p.w.Now().Sub(began) < 20*time.Second, "it took too long")
	p.fails(&runtimeapi.ContainerStatusRequest{ContainerId: container}, world.KindNotFound)
	p.check(len(p.containers(&runtimeapi.ContainerFilter{PodSandboxId: id})) == 0, "listed")
}

func removeNotRunning(p *pod) {
	id := p.sandbox(0)
	done, idle := p.started(id, Exits3, 0), p.created(id, Runs, 0)
	p.exit(done)
	p.remove(done)
	p.remove(idle)
	p.remove(done)
	p.check(len(p.containers(&runtimeapi.ContainerFilter{PodSandboxId: id})) == 0, "listed")
	p.check(p.sandboxStatus(id).State == runtimeapi.PodSandboxState_SANDBOX_READY,
		"the sandbox stopped with its last container")
}

func removeSandboxWithContainers(p *pod) {
	id := p.sandbox(0)
	container := p.started(id, Runs, 0)
	p.created(id, Exits3, 0)
	p.removeSandbox(id)
	p.fails(&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, world.KindNotFound)
	p.fails(&runtimeapi.ContainerStatusRequest{ContainerId: container}, world.KindNotFound)
	p.check(len(p.containers(&runtimeapi.ContainerFilter{PodSandboxId: id})) == 0, "listed")
}
