package parity

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Exec runs the suite of commands in containers. The image of all containers must be there.
func Exec(t *testing.T, w Execs) {
	exec := func(run func(*pod, Execs)) func(*pod) { return func(p *pod) { run(p, w) } }
	runCases(t, w, 100, []criCase{
		{"a command's exit code and output come back", exec(execAnswers)},
		{"a command that cannot be started is an error", exec(execNoProgram)},
		{"a command is killed when its time has run out", exec(execTimeout)},
		{"commands are not run where nothing runs", exec(execNotRunning)},
		{"a command is killed with its container", exec(execEndsWithContainer)},
		{"commands run side by side", exec(execSideBySide)},
	})
}

func execIn(container string, line []string, timeoutSeconds int64) *runtimeapi.ExecSyncRequest {
	return &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: line, Timeout: timeoutSeconds}
}

func execAnswers(p *pod, w Execs) {
	container := p.started(p.sandbox(0), Runs, 0)
	for _, command := range []Command{Succeeds, Fails} {
		line, want := w.Exec(command)
		p.check((want.ExitCode == 0) == (command == Succeeds), "%s wants %v", command, want)
		for _, timeout := range []int64{0, 30} { // zero: no bound
			got := must[*runtimeapi.ExecSyncResponse](p, execIn(container, line, timeout))
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				p.Errorf("%s, timeout %d: (-want +got)\n%s", command, timeout, diff)
			}
		}
	}
	p.check(p.status(container).State == isRunning, "the container has ended")
}

// That the program is not there, or may not be run, has no code of its own in containerd.
func execNoProgram(p *pod, w Execs) {
	line, _ := w.Exec(NoProgram)
	p.fails(execIn(p.started(p.sandbox(0), Runs, 0), line, 30), world.KindInternal)
}

func execTimeout(p *pod, w Execs) {
	container := p.started(p.sandbox(0), Runs, 0)
	line, _ := w.Exec(Hangs)
	began := p.w.Now()
	p.fails(execIn(container, line, 1), world.KindTimeout)
	took := p.w.Now().Sub(began)
	p.check(took >= time.Second && took < 20*time.Second, "it took %v", took)
	p.check(p.status(container).State == isRunning, "the container has ended")
}

func execNotRunning(p *pod, w Execs) {
	id := p.sandbox(0)
	idle, done := p.created(id, Runs, 0), p.started(id, Exits3, 0)
	p.exit(done)
	line, _ := w.Exec(Succeeds)
	p.fails(execIn(idle, line, 30), world.KindInternal)
	p.fails(execIn(done, line, 30), world.KindInternal)
	p.fails(execIn(nobody, line, 30), world.KindNotFound)
	p.fails(execIn(id, line, 30), world.KindNotFound) // a sandbox is no container
}

func execEndsWithContainer(p *pod, w Execs) {
	container := p.started(p.sandbox(0), Runs, 0)
	line, _ := w.Exec(Hangs)
	wait := p.w.Begin(execIn(container, line, 60))
	p.stop(container, 30)
	body, err := wait()
	answer, _ := body.(*runtimeapi.ExecSyncResponse)
	p.check(err == nil && answer.GetExitCode() == 137, "answered by %v, %v", body, err)
}

func execSideBySide(p *pod, w Execs) {
	container := p.started(p.sandbox(0), Runs, 0)
	hangs, _ := w.Exec(Hangs)
	wait := p.w.Begin(execIn(container, hangs, 5))
	line, _ := w.Exec(Succeeds)
	began := p.w.Now()
	must[*runtimeapi.ExecSyncResponse](p, execIn(container, line, 30))
	took := p.w.Now().Sub(began)
	p.check(took < 4*time.Second, "it waited %v for the other", took)
	_, err := wait()
	p.check(err.Has(world.KindTimeout), "the other: %v", err)
}
