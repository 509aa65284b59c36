package parity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Exec runs the suite of ExecSync. The image of the containers must be present.
func Exec(t *testing.T, w ExecRuntime) {
	exec := func(run func(*pod, ExecRuntime)) func(*pod) { return func(p *pod) { run(p, w) } }
	runCases(t, w, 100, []criCase{
		{"a command returns its exit code and output", exec(execResult)},
		{"a command that cannot be started is an error", exec(execNoProgram)},
		{"a command is killed after its timeout", exec(execTimeout)},
		{"a command needs a running container", exec(execNotRunning)},
		{"a command is killed when its container ends", exec(execEndsWithContainer)},
		{"commands run concurrently", exec(execSideBySide)},
	})
}

func execIn(container string, line []string, timeoutSeconds int64) *runtimeapi.ExecSyncRequest {
	return &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: line, Timeout: timeoutSeconds}
}

func execResult(p *pod, w ExecRuntime) {
	container := p.startNewContainer(p.createSandbox(0), Runs, 0)
	for _, command := range []Command{Succeeds, Fails} {
		line, want := w.Exec(command)
		p.check((want.ExitCode == 0) == (command == Succeeds), "%s wants %v", command, want)
		for _, timeout := range []int64{0, 30} { // zero: no timeout
			got := must[*runtimeapi.ExecSyncResponse](p, execIn(container, line, timeout))
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				p.Errorf("%s, timeout %d: (-want +got)\n%s", command, timeout, diff)
			}
		}
	}
	p.check(p.status(container).State == isRunning, "the container has ended")
}

// containerd has no specific error for a missing program or a program that is not executable.
func execNoProgram(p *pod, w ExecRuntime) {
	line, _ := w.Exec(NoProgram)
	p.mustFail(execIn(p.startNewContainer(p.createSandbox(0), Runs, 0), line, 30), world.KindInternal)
}

func execTimeout(p *pod, w ExecRuntime) {
	container := p.startNewContainer(p.createSandbox(0), Runs, 0)
	line, _ := w.Exec(Hangs)
	started := p.w.Now()
	p.mustFail(execIn(container, line, 1), world.KindTimeout)
	took := p.w.Now().Sub(started)
	p.check(took >= time.Second && took < Patience, "the call took %v", took)
	p.check(p.status(container).State == isRunning, "the container has ended")
}

func execNotRunning(p *pod, w ExecRuntime) {
	id := p.createSandbox(0)
	idle, done := p.createContainer(id, Runs, 0), p.startNewContainer(id, Exits3, 0)
	p.waitForExit(done)
	line, _ := w.Exec(Succeeds)
	p.mustFail(execIn(idle, line, 30), world.KindInternal)
	p.mustFail(execIn(done, line, 30), world.KindInternal)
	p.mustFail(execIn(unknownID, line, 30), world.KindNotFound)
	p.mustFail(execIn(id, line, 30), world.KindNotFound) // a sandbox ID is not a container ID
}

func execEndsWithContainer(p *pod, w ExecRuntime) {
	p.expectKilledWithContainer(w, func(string) {})
}

func execSideBySide(p *pod, w ExecRuntime) {
	p.expectKilledWithContainer(w, func(container string) {
		line, _ := w.Exec(Succeeds)
		must[*runtimeapi.ExecSyncResponse](p, execIn(container, line, 30)) // waits for no other call
	})
}

// expectKilledWithContainer checks that a command that hangs ends with code 137 when its container
// is stopped, after meanwhile was called. Nothing says when a command has started, and in a
// container that has ended none starts: the command gets more and more time.
func (p *pod) expectKilledWithContainer(w ExecRuntime, meanwhile func(container string)) {
	p.Helper()
	sandbox := p.createSandbox(0)
	line, _ := w.Exec(Hangs)
	for attempt, head := uint32(0), time.Second; ; attempt, head = attempt+1, 2*head {
		container := p.startNewContainer(sandbox, Runs, attempt)
		wait := p.w.Begin(execIn(container, line, beyondPatience))
		p.w.Sleep(head)
		meanwhile(container)
		p.stop(container, beyondPatience)
		body, err := wait()
		if err != nil && head < Patience/2 {
			continue
		}
		result, _ := body.(*runtimeapi.ExecSyncResponse)
		p.check(err == nil && result.GetExitCode() == 137, "completed with %v, %v", body, err)
		return
	}
}
