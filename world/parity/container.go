package parity

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Cases about the life cycle of a container.

const (
	created   = runtimeapi.ContainerState_CONTAINER_CREATED
	isRunning = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited    = runtimeapi.ContainerState_CONTAINER_EXITED
)

func createWithoutReadySandbox(p *pod) {
	p.mustFail(p.containerRequest(unknownID, Runs, 0), world.KindNotFound)
	id := p.createSandbox(0)
	p.stopSandbox(id)
	_, err := p.w.Call(p.containerRequest(id, Runs, 0))
	p.check(err != nil, "a container was created in a stopped sandbox")
	p.check(len(p.containers(&runtimeapi.ContainerFilter{PodSandboxId: id})) == 0, "found in the list")
}

func containerNameIsReserved(p *pod) {
	id := p.createSandbox(0)
	first := p.createContainer(id, Runs, 0)
	p.mustFail(p.containerRequest(id, Runs, 0), world.KindExists)
	second := p.createContainer(id, Runs, 1)
	p.check(first != second, "two containers have one id")
	p.remove(first)
	p.check(p.createContainer(id, Runs, 0) != first, "the ID was reused")
}

func containerNameIsPerPod(p *pod) {
	first, second := p.createSandbox(0), p.createSandbox(1)
	p.createContainer(first, Runs, 0)
	p.mustFail(p.containerRequest(second, Runs, 0), world.KindExists)
}

func createWithoutImage(p *pod) {
	id := p.createSandbox(0)
	req := p.containerRequest(id, Runs, 0)
	_, missing := p.w.Images()
	req.Config.Image = &runtimeapi.ImageSpec{Image: missing, UserSpecifiedImage: missing}
	p.mustFail(req, world.KindNotFound)
	p.createContainer(id, Runs, 0) // the failed creation has released its name
}

func exitsByItself(p *pod) {
	container := p.createContainer(p.createSandbox(0), Exits3, 0)
	s := p.status(container)
	p.check(s.State == created && s.CreatedAt > 0 && s.StartedAt == 0 && s.FinishedAt == 0,
		"created: %v %d %d %d", s.State, s.CreatedAt, s.StartedAt, s.FinishedAt)
	p.start(container)
	s = p.waitForExit(container)
	p.check(s.ExitCode == 3 && s.Reason == "Error", "code %d, reason %q", s.ExitCode, s.Reason)
	// The end of a short run may be before its start: containerd dates the start after it has started
	// the process, and takes the end from the kernel.
	p.check(s.CreatedAt <= s.StartedAt && s.CreatedAt <= s.FinishedAt &&
		s.StartedAt-s.FinishedAt < int64(100*time.Millisecond),
		"times %d %d %d", s.CreatedAt, s.StartedAt, s.FinishedAt)
	p.check(s.FinishedAt <= p.w.Now().UnixNano(), "finished in the future")
}

func exitsWithZero(p *pod) {
	s := p.waitForExit(p.startNewContainer(p.createSandbox(0), Exits0, 0))
	p.check(s.ExitCode == 0 && s.Reason == "Completed", "code %d, reason %q", s.ExitCode, s.Reason)
}

func runningHasNoEnd(p *pod) {
	s := p.status(p.startNewContainer(p.createSandbox(0), Runs, 0))
	p.check(s.State == isRunning && s.StartedAt >= s.CreatedAt && s.FinishedAt == 0,
		"%v %d %d", s.State, s.StartedAt, s.FinishedAt)
	p.check(s.Reason == "" && s.ExitCode == 0, "reason %q, code %d", s.Reason, s.ExitCode)
}

func startsOnce(p *pod) {
	id := p.createSandbox(0)
	container := p.startNewContainer(id, Runs, 0)
	before := p.status(container)
	_, err := p.w.Call(&runtimeapi.StartContainerRequest{ContainerId: container})
	p.check(err != nil, "the container was started twice")
	after := p.status(container)
	p.check(after.State == isRunning && after.StartedAt == before.StartedAt, "%v", after)

	done := p.startNewContainer(id, Exits3, 0)
	p.waitForExit(done)
	_, err = p.w.Call(&runtimeapi.StartContainerRequest{ContainerId: done})
	p.check(err != nil && p.status(done).ExitCode == 3, "an exited container was started: %v", err)
}

func startUnknown(p *pod) {
	p.mustFail(&runtimeapi.StartContainerRequest{ContainerId: unknownID}, world.KindNotFound)
}

func startInStoppedSandbox(p *pod) {
	id := p.createSandbox(0)
	container := p.createContainer(id, Runs, 0)
	p.stopSandbox(id)
	_, err := p.w.Call(&runtimeapi.StartContainerRequest{ContainerId: container})
	p.check(err != nil, "the container was started")
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 128 && s.Reason == "StartError" && s.StartedAt == 0,
		"%v, code %d, reason %q, started %d", s.State, s.ExitCode, s.Reason, s.StartedAt)
}

func stopByTerm(p *pod) {
	container := p.startNewContainer(p.createSandbox(0), Runs, 0)
	took := p.stop(container, beyondPatience)
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 143 && s.Reason == "Error",
		"%v, code %d, reason %q", s.State, s.ExitCode, s.Reason)
	p.check(took < Patience, "the call took %v", took)
}

func stopHandled(p *pod) {
	container := p.startNewContainer(p.createSandbox(0), HandlesTerm7, 0)
	took := p.stop(container, beyondPatience)
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 7, "%v, code %d", s.State, s.ExitCode)
	p.check(took > 500*time.Millisecond && took < Patience, "the call took %v", took)
}

func stopByKill(p *pod) {
	container := p.startNewContainer(p.createSandbox(0), IgnoresTerm, 0)
	took := p.stop(container, 2)
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 137 && s.Reason == "Error",
		"%v, code %d, reason %q", s.State, s.ExitCode, s.Reason)
	p.check(took >= 2*time.Second && took < Patience, "the call took %v", took)
}

func stopWithoutGrace(p *pod) {
	container := p.startNewContainer(p.createSandbox(0), Runs, 0)
	p.stop(container, 0)
	s := p.status(container)
	p.check(s.State == exited && s.ExitCode == 137, "%v, code %d", s.State, s.ExitCode)
}

func stopTwice(p *pod) {
	container := p.startNewContainer(p.createSandbox(0), IgnoresTerm, 0)
	started := p.w.Now()
	wait := p.w.Begin(&runtimeapi.StopContainerRequest{ContainerId: container,
		Timeout: beyondPatience})
	p.w.Sleep(500 * time.Millisecond)
	p.stop(container, 1)
	_, err := wait()
	took := p.w.Now().Sub(started)
	p.check(err == nil && took < Patience, "the first stop: %v after %v", err, took)
	p.check(p.status(container).ExitCode == 137, "code %d", p.status(container).ExitCode)
}

func cancelStop(p *pod) {
	container := p.startNewContainer(p.createSandbox(0), IgnoresTerm, 0)
	started := p.w.Now()
	wait := p.w.Begin(&runtimeapi.StopContainerRequest{ContainerId: container,
		Timeout: beyondPatience})
	p.w.Sleep(500 * time.Millisecond)
	p.w.CancelLast()
	_, err := wait()
	took := p.w.Now().Sub(started)
	p.check(err.Has(world.KindUnavailable) && took < Patience, "%v after %v", err, took)
	p.check(p.status(container).State == isRunning, "%v", p.status(container).State)
	p.stop(container, 1)
	p.check(p.status(container).ExitCode == 137, "code %d", p.status(container).ExitCode)
}

func stopNotRunning(p *pod) {
	id := p.createSandbox(0)
	done, idle := p.startNewContainer(id, Exits3, 0), p.createContainer(id, Runs, 0)
	p.waitForExit(done)
	p.stop(done, 5)
	p.check(p.status(done).ExitCode == 3, "the exit code changed")
	p.stop(idle, 5)
	p.check(p.status(idle).State == created, "state %v", p.status(idle).State)
}

func removeRunning(p *pod) {
	id := p.createSandbox(0)
	container := p.startNewContainer(id, IgnoresTerm, 0)
	started := p.w.Now()
	p.remove(container)
	p.check(p.w.Now().Sub(started) < Patience, "the removal took too long")
	p.mustFail(&runtimeapi.ContainerStatusRequest{ContainerId: container}, world.KindNotFound)
	p.check(len(p.containers(&runtimeapi.ContainerFilter{PodSandboxId: id})) == 0, "found in the list")
}

func removeNotRunning(p *pod) {
	id := p.createSandbox(0)
	done, idle := p.startNewContainer(id, Exits3, 0), p.createContainer(id, Runs, 0)
	p.waitForExit(done)
	p.remove(done)
	p.remove(idle)
	p.remove(done)
	p.check(len(p.containers(&runtimeapi.ContainerFilter{PodSandboxId: id})) == 0, "found in the list")
	p.check(p.sandboxStatus(id).State == runtimeapi.PodSandboxState_SANDBOX_READY,
		"the sandbox stopped with its last container")
}

func removeSandboxWithContainers(p *pod) {
	id := p.createSandbox(0)
	container := p.startNewContainer(id, Runs, 0)
	p.createContainer(id, Exits3, 0)
	p.removeSandbox(id)
	p.mustFail(&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}, world.KindNotFound)
	p.mustFail(&runtimeapi.ContainerStatusRequest{ContainerId: container}, world.KindNotFound)
	p.check(len(p.containers(&runtimeapi.ContainerFilter{PodSandboxId: id})) == 0, "found in the list")
}
