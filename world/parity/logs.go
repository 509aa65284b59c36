package parity

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Logs runs the suite of container logs. The image of the containers must be present.
func Logs(t *testing.T, w LogRuntime) {
	runCases(t, w, 200, []criCase{
		{"a reopened log continues in a new file", func(p *pod) { reopenRenamed(p, w) }},
		{"reopening a log that was not renamed keeps it", func(p *pod) { reopenTwice(p, w) }},
		{"a log of a container that does not run cannot be reopened", reopenNotRunning},
	})
}

func reopen(container string) *runtimeapi.ReopenContainerLogRequest {
	return &runtimeapi.ReopenContainerLogRequest{ContainerId: container}
}

// logName returns the log path of a container of containerRequest.
func (p *pod) logName(process Process, attempt uint32) string {
	return fmt.Sprintf("%s-%s-%d.log", p.name, process, attempt)
}

func reopenRenamed(p *pod, w LogRuntime) {
	container := p.startNewContainer(p.createSandbox(0), HandlesTerm7, 0)
	name := p.logName(HandlesTerm7, 0)
	p.check(w.LogBytes(name) >= 0, "a container that runs has no log")
	w.RenameLog(name, name+".1")
	p.check(w.LogBytes(name) == -1, "the log exists without a reopen")
	must[*runtimeapi.ReopenContainerLogResponse](p, reopen(container))
	before := w.LogBytes(name + ".1")
	p.check(w.LogBytes(name) == 0, "the new log has %d bytes", w.LogBytes(name))
	p.stop(container, beyondPatience)
	p.check(w.LogBytes(name) > 0, "the new log is empty")
	p.check(w.LogBytes(name+".1") == before, "the old log has grown")
}

func reopenTwice(p *pod, w LogRuntime) {
	container := p.startNewContainer(p.createSandbox(0), HandlesTerm7, 0)
	must[*runtimeapi.ReopenContainerLogResponse](p, reopen(container))
	must[*runtimeapi.ReopenContainerLogResponse](p, reopen(container))
	p.stop(container, beyondPatience)
	p.check(w.LogBytes(p.logName(HandlesTerm7, 0)) > 0, "the log is empty")
}

func reopenNotRunning(p *pod) {
	id := p.createSandbox(0)
	idle, done := p.createContainer(id, Runs, 0), p.startNewContainer(id, Exits3, 0)
	p.waitForExit(done)
	p.mustFail(reopen(idle), world.KindInternal)
	p.mustFail(reopen(done), world.KindInternal)
	p.mustFail(reopen(unknownID), world.KindNotFound)
	p.mustFail(reopen(id), world.KindNotFound)
}
