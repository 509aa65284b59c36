package runtime

import (
	"bytes"
	"fmt"
	"path"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// What containers write: logs, and why they ended. A log grows by the clock, so nothing happens
// for it until somebody looks: then what has been written since is added at once.

// File is a file that is open: it stays the same when it is renamed or removed.
type File interface {
	// Append has it grow by size bytes, of which tail are the last.
	Append(tail []byte, size int64)
	// Write replaces the content.
	Write(data []byte)
	// Resize has it be of a size, whatever is in it.
	Resize(size int64)
	// BeforeRead has do run whenever somebody is about to look; nil ends that.
	BeforeRead(do func())
}

// output is what a process has open and has written.
type output struct {
	log     File // nil: none
	lines   int64
	inFile  int64 // lines in the file that is open now, by this process
	message File  // nil: what the process has to say gets lost
}

// Every line of a log is as long as any other.
const (
	lineBytes   = 128
	lineStart   = "2006-01-02T15:04:05.000000000Z07:00"
	linesInTail = 100 // that are kept word for word
)

// openFiles opens what a process that begins writes to. Its message goes into the file that is
// mounted where the kubelet says; if that is missing, containerd mounts a directory.
func (r *Runtime) openFiles(c *container) {
	c.output = output{}
	if r.opts.OpenFile == nil {
		return
	}
	r.openLog(c)
	inside := c.config.Annotations["io.kubernetes.container.terminationMessagePath"]
	for _, m := range c.config.Mounts {
		if inside != "" && m.ContainerPath == inside && r.opts.Exists(m.HostPath) {
			c.output.message = r.opts.OpenFile(m.HostPath)
		}
	}
}

func (r *Runtime) openLog(c *container) {
	if c.logPath == "" {
		return
	}
	c.output.log, c.output.inFile = r.opts.OpenFile(c.logPath), 0
	if c.script.LogBytes > 0 {
		c.output.log.BeforeRead(func() { r.writeLog(c) })
	}
}

// writeLog adds to the log what has been written by now.
func (r *Runtime) writeLog(c *container) {
	o := &c.output
	if o.log == nil || c.script.LogBytes <= 0 {
		return
	}
	due := int64(r.now().Sub(c.StartedAt).Seconds() * float64(c.script.LogBytes) / lineBytes)
	more := due - o.lines
	if more <= 0 {
		return
	}
	o.lines, o.inFile = due, o.inFile+more
	o.log.Append(c.linesAt(min(more, linesInTail)), more*lineBytes)
}

// linesAt are the last lines so far, as the log has them.
func (c *container) linesAt(count int64) []byte {
	var tail bytes.Buffer
	for n := c.output.lines - count; n < c.output.lines; n++ {
		at := c.StartedAt.Add(time.Duration(n) * time.Second * lineBytes /
			time.Duration(c.script.LogBytes))
		line := at.UTC().Format(lineStart) + " stdout F " + c.line(n)
		tail.WriteString(line + "\n")
	}
	return tail.Bytes()
}

// line is one line of what a process writes.
func (c *container) line(n int64) string {
	text := fmt.Sprintf("line %d of %s #%d", n, c.Name, c.Attempt)
	return text + strings.Repeat(".", max(0, lineBytes-len("2006-01-02T15:04:05.000000000Z")-
		len(" stdout F \n")-len(text)))
}

// closeFiles writes what is left to be written when a process ends, and returns its message and
// the last lines of the log that it had open.
func (r *Runtime) closeFiles(c *container, bySelf bool) (message, logEnd string) {
	o := &c.output
	if o.log != nil {
		r.writeLog(c)
		o.log.BeforeRead(nil)
		for n := o.lines - min(o.inFile, linesInTail); n < o.lines; n++ {
			logEnd += c.line(n) + "\n"
		}
	}
	if bySelf && c.script.Message != "" {
		message = c.script.Message
		if o.message != nil {
			o.message.Write([]byte(message))
		}
	}
	return message, logEnd
}

// reopenLog has a container write to a new file of the name of its log.
func (r *Runtime) reopenLog(call *wire.Call, req *runtimeapi.ReopenContainerLogRequest) {
	c := r.containers[req.ContainerId]
	switch {
	case c == nil:
		call.Fail(noContainer(call, req.ContainerId))
	case c.State != running:
		call.Fail(world.Errorf(world.KindInternal, call.Name, "container is not running"))
	case r.opts.OpenFile != nil && !r.opts.Exists(path.Dir(c.logPath)):
		call.Fail(world.Errorf(world.KindInternal, call.Name,
			"failed to create logger: open %s: no such file or directory", c.logPath))
	default:
		if o := &c.output; o.log != nil {
			r.writeLog(c)
			o.log.BeforeRead(nil)
			r.openLog(c)
		}
		call.Reply(&runtimeapi.ReopenContainerLogResponse{})
	}
}
