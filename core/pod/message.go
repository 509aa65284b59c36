package pod

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/logs"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Termination messages. Each run of a container has an empty file mounted, in which the container
// can write why it exits. The file is read once the container has exited, by the incarnation of the
// agent that sees the exit first, and again by every later one.

// messageBytesMax bounds the termination message of a container, as in the kubelet.
const messageBytesMax = 4096

// The bounds on how long the pod waits for a message that cannot be read. The read is retried
// afterwards as well, and the message is reported if it succeeds.
const (
	messageAttemptsMax = 3
	messageTimeout     = 10 * time.Second
)

// TerminationMessage is the termination message of a container that has exited, and the progress of
// reading it.
type TerminationMessage struct {
	Message    string        `json:"message,omitempty"`
	File       string        `json:"file,omitempty"`       // on the node; empty if none exists
	Fallback   bool          `json:"fallback,omitempty"`   // the log is read if the file is empty
	NextSource MessageSource `json:"nextSource,omitempty"` // the one to read
	Op         world.OpID    `json:"op,omitempty"`
	Failures   int           `json:"failures,omitempty"` // in a row
	NotBefore  time.Time     `json:"notBefore"`
}

// MessageSource is the source of a termination message; empty if none is left to read.
type MessageSource string

// The sources.
const (
	FromFile MessageSource = "File"
	FromLog  MessageSource = "Log"
)

// isPending reports whether the message is still being read.
func (s *TerminationMessage) isPending() bool {
	return s.NextSource != "" && s.Failures < messageAttemptsMax
}

// locateTerminationMessage sets the source of the termination message of a container that has
// exited, from its status in the runtime, because the container may have been created by another
// agent.
func (p *Pod) locateTerminationMessage(c *Container, status *runtimeapi.ContainerStatus,
	node *Node) {
	c.TerminationMessage = TerminationMessage{Fallback: c.ExitCode != 0 && !c.StartedAt.IsZero() &&
		status.Annotations[criconfig.AnnotationMessagePolicy] ==
			string(v1.TerminationMessageFallbackToLogsOnError)}
	inside := status.Annotations[criconfig.AnnotationMessagePath]
	if inside != "" {
		inside = path.Join("/", inside) // as it was mounted
	}
	for _, m := range status.Mounts {
		if inside == "" || m.ContainerPath != inside {
			continue
		}
		if file, isOwn := p.fileOfPod(m.HostPath, node); isOwn {
			c.TerminationMessage.File, c.TerminationMessage.NextSource = file, FromFile
			return
		}
		c.TerminationMessage.Message = "Error on reading termination log " +
			budget.Cut(m.HostPath, messageBytesMax) +
			": it is not in the directory of the pod"
		break
	}
	c.TerminationMessage.fallBackToLog()
}

// fileOfPod returns a file below the pod's directory that the runtime names by its path, and
// reports false for any other file. What precedes the pod's UID may be another path of the same
// directory: CRI-O resolves links.
func (p *Pod) fileOfPod(hostPath string, node *Node) (file string, isOwn bool) {
	_, below, isOwn := strings.Cut(hostPath, "/"+p.UID+"/")
	if !isOwn || below == "" || path.Clean("/"+below) != "/"+below {
		return "", false
	}
	return p.dir(node) + "/" + below, true
}

// fallBackToLog makes the log the next source if the container's terminationMessagePolicy allows
// it.
func (s *TerminationMessage) fallBackToLog() {
	s.NextSource = ""
	if s.Fallback {
		s.NextSource = FromLog
	}
}

// readTerminationMessages reads the termination messages of containers that have exited.
func (p *Pod) readTerminationMessages(env *Env, w *wakeTimer) {
	for i := range p.Containers {
		c := &p.Containers[i]
		message := &c.TerminationMessage
		if message.NextSource == "" || message.Op != 0 || w.waitUntil(message.NotBefore) {
			continue
		}
		request := &world.ReadTail{Path: message.File, BytesMax: messageBytesMax}
		if message.NextSource == FromLog {
			request = &world.ReadTail{Path: p.logPath(c, env.Node), BytesMax: logs.TailBytes}
		}
		message.Op = env.Effects.Issue(p.Key(), c.ID, messageTimeout, request)
	}
}

// handleMessageRead handles the completion of the read of a termination message. A file that does
// not exist is an empty message. A log that does not exist is one too, but only after retries: a
// log that is being rotated has no name for a moment.
func (p *Pod) handleMessageRead(r op.Record, ev world.Event) {
	c := p.containerByID(r.Subject)
	if c == nil {
		return
	}
	s := &c.TerminationMessage
	s.Op = 0
	missing := ev.Err.Has(world.KindNotFound)
	if ev.Err != nil && !missing ||
		missing && s.NextSource == FromLog && s.Failures < messageAttemptsMax {
		s.readFailed(ev.Err, ev.Time)
		return
	}
	s.Failures, s.Message = 0, ""
	if ev.Err == nil {
		tail := ev.Body.(*world.TailRead)
		if s.NextSource == FromLog {
			tail = &world.TailRead{Data: logs.Tail(tail.Data, tail.Truncated)}
		}
		s.Message = strings.ToValidUTF8(string(tail.Data), "\uFFFD")
	}
	if s.NextSource == FromFile && s.Message == "" {
		s.fallBackToLog()
		return
	}
	s.NextSource = ""
}

func (s *TerminationMessage) readFailed(err *world.Error, now time.Time) {
	s.Failures++
	s.NotBefore = now.Add(failureBackoff(s.Failures))
	message := budget.CutMessage(err.Message)
	s.Message = "Error on reading termination message from logs: " + message
	if s.NextSource == FromFile {
		s.Message = "Error on reading termination log " + s.File + ": " + message
	}
	if err.Has(world.KindInvalid) {
		s.NextSource = "" // not a regular file: no retry can succeed
	}
}

// ExitMessage returns the message of a container's exit: the runtime's, and the container's own
// termination message.
func (c *Container) ExitMessage() string {
	if c.Message == "" || c.TerminationMessage.Message == "" {
		return c.Message + c.TerminationMessage.Message
	}
	return c.Message + ": " + c.TerminationMessage.Message
}

// createMessageFile takes the next step towards the termination message file of the next run, and
// reports whether it has issued an operation. A file that an earlier run has left is truncated.
func (p *Pod) createMessageFile(container *v1.Container, env *Env) bool {
	_, number := p.nextRunNumbers(container.Name)
	dir := container.Name + "/"
	file := dir + strconv.Itoa(int(number))
	switch {
	case container.TerminationMessagePath == "" || slices.Contains(p.MessageFiles, file):
		return false
	case !slices.Contains(p.MessageFiles, dir):
		p.Op = env.Effects.Issue(p.Key(), dir, fsTimeout,
			&world.MakeDir{Path: env.Node.MessageDir(p.UID, container.Name), Mode: 0o755})
	default:
		p.Op = env.Effects.Issue(p.Key(), file, fsTimeout, &world.WriteFile{
			Path: env.Node.MessageFilePath(p.UID, container.Name, number), Mode: 0o666, Volatile: true})
	}
	return true
}

// forgetMessageFiles forgets the message files of a container, so that the file for its next run is
// created again.
func (p *Pod) forgetMessageFiles(name string) {
	p.MessageFiles = slices.DeleteFunc(p.MessageFiles, func(file string) bool {
		return strings.HasPrefix(file, name+"/")
	})
}
