package runtime

import (
	"path"
	"strconv"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// Logs and termination messages of containers. A log grows with the time. To avoid an event for
// every line, the lines that are due are appended only when the file is read.

// File is an open file. It stays the same file when it is renamed or removed.
type File interface {
	// Append grows the file by size bytes, of which tail are the last.
	Append(tail []byte, size int64)
	// Write replaces the content.
	Write(data []byte)
	// Resize sets the size of the file, with any content.
	Resize(size int64)
	// BeforeRead sets a function that runs before every read of the file; nil removes it.
	BeforeRead(do func())
}

// output holds the open files of a process and how much it has written.
type output struct {
	log         File // nil: no log
	lines       int64
	linesInFile int64 // that this process has written to the file that is open now
	message     File  // nil: the termination message is lost
}

// All lines of a log have the same length.
const (
	lineBytes      = 128
	lineTimeLayout = "2006-01-02T15:04:05.000000000Z07:00"
	lineStream     = " stdout F "
	linesInTail    = 100 // the number of lines that are stored with their text
)

// openFiles opens the files that a new process writes to. The termination message goes to the file
// that is mounted at the path in the kubelet's annotation. If that file does not exist containerd
// mounts a directory, and the message is lost.
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
	c.output.log, c.output.linesInFile = r.opts.OpenFile(c.logPath), 0
	if c.script.LogBytesPerSecond > 0 {
		c.output.log.BeforeRead(func() { r.catchUpLog(c) })
	}
}

// catchUpLog appends the lines that are due to the log.
func (r *Runtime) catchUpLog(c *container) {
	o := &c.output
	if o.log == nil || c.script.LogBytesPerSecond <= 0 {
		return
	}
	due := int64(r.now().Sub(c.StartedAt).Seconds() * float64(c.script.LogBytesPerSecond) / lineBytes)
	more := due - o.lines
	if more <= 0 {
		return
	}
	o.lines, o.linesInFile = due, o.linesInFile+more
	o.log.Append(c.lastLines(min(more, linesInTail)), more*lineBytes)
}

// lastLines returns the last lines so far, in the format of the log file.
func (c *container) lastLines(count int64) []byte {
	tail := make([]byte, 0, count*lineBytes)
	for n := c.output.lines - count; n < c.output.lines; n++ {
		at := c.StartedAt.Add(time.Duration(n) * time.Second * lineBytes /
			time.Duration(c.script.LogBytesPerSecond))
		tail = append(at.UTC().AppendFormat(tail, lineTimeLayout), lineStream...)
		tail = append(c.appendLine(tail, n), '\n')
	}
	return tail
}

// appendLine appends the text of one log line.
func (c *container) appendLine(to []byte, n int64) []byte {
	end := len(to) + lineBytes - len("2006-01-02T15:04:05.000000000Z") - len(lineStream) - len("\n")
	to = strconv.AppendInt(append(to, "line "...), n, 10)
	to = append(append(append(to, " of "...), c.Name...), " #"...)
	to = strconv.AppendUint(to, uint64(c.Attempt), 10)
	for len(to) < end {
		to = append(to, '.')
	}
	return to
}

// closeFiles writes the lines that are due when a process ends. It returns the termination message
// and the last lines of the open log file.
func (r *Runtime) closeFiles(c *container, byItself bool) (message, logEnd string) {
	o := &c.output
	if o.log != nil {
		r.catchUpLog(c)
		o.log.BeforeRead(nil)
		var end []byte
		for n := o.lines - min(o.linesInFile, linesInTail); n < o.lines; n++ {
			end = append(c.appendLine(end, n), '\n')
		}
		logEnd = string(end)
	}
	if byItself && c.script.Message != "" {
		message = c.script.Message
		if o.message != nil {
			o.message.Write([]byte(message))
		}
	}
	return message, logEnd
}

// reopenLog makes a container write to a new file at its log path.
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
			r.catchUpLog(c)
			o.log.BeforeRead(nil)
			r.openLog(c)
		}
		call.Reply(&runtimeapi.ReopenContainerLogResponse{})
	}
}
