package parity

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Logs runs the suite of container logs. The image of all containers must be there.
func Logs(t *testing.T, w LogFiles) {
	runCases(t, w, 200, []criCase{
		{"a log goes on in a new file when it is reopened", func(p *pod) { reopenRenamed(p, w) }},
		{"reopening a log that is where it was keeps it", func(p *pod) { reopenTwice(p, w) }},
		{"logs of what does not run are not reopened", reopenNotRunning},
	})
}

func reopen(container string) *runtimeapi.ReopenContainerLogRequest {
	return &runtimeapi.ReopenContainerLogRequest{ContainerId: container}
}

// logName is the log path of createContainer.
func (p *pod) logName(process Process, attempt uint32) string {
	return fmt.Sprintf("%s-%s-%d.log", p.name, process, attempt)
}

func reopenRenamed(p *pod, w LogFiles) {
	container := p.started(p.sandbox(0), HandlesTerm7, 0)
	name := p.logName(HandlesTerm7, 0)
	p.check(w.LogBytes(name) >= 0, "a container that runs has no log")
	w.RenameLog(name, name+".1")
	p.check(w.LogBytes(name) == -1, "a log came back by itself")
	must[*runtimeapi.ReopenContainerLogResponse](p, reopen(container))
	before := w.LogBytes(name + ".1")
	p.check(w.LogBytes(name) == 0, "the new log has %d bytes", w.LogBytes(name))
	p.stop(container, 30)
	p.check(w.LogBytes(name) > 0, "nothing has been written to the new log")
	p.check(w.LogBytes(name+".1") == before, "the old log went on")
}

func reopenTwice(p *pod, w LogFiles) {
	container := p.started(p.sandbox(0), HandlesTerm7, 0)
	must[*runtimeapi.ReopenContainerLogResponse](p, reopen(container))
	must[*runtimeapi.ReopenContainerLogResponse](p, reopen(container))
	p.stop(container, 30)
	p.check(w.LogBytes(p.logName(HandlesTerm7, 0)) > 0, "nothing has been written")
}

func reopenNotRunning(p *pod) {
	id := p.sandbox(0)
	idle, done := p.created(id, Runs, 0), p.started(id, Exits3, 0)
	p.exit(done)
	p.fails(reopen(idle), world.KindInternal)
	p.fails(reopen(done), world.KindInternal)
	p.fails(reopen(nobody), world.KindNotFound)
	p.fails(reopen(id), world.KindNotFound)
}
