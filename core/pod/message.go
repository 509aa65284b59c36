package pod

import (
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/logs"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Termination messages: each run of a container has an empty file mounted in which it can say why
// it ended. What is in it is read once the container has exited, by whichever life of the agent
// sees that first, and again by every later one.

// The kubelet's bounds on termination messages, in bytes.
const (
	messageMax    = 4096
	messageMaxPod = 12 << 10
)

const (
	annotationMessagePath   = "io.kubernetes.container.terminationMessagePath"
	annotationMessagePolicy = "io.kubernetes.container.terminationMessagePolicy"
)

// A message that cannot be read holds the pod up for no longer than this. It is tried again all
// the same, and shown if it is read after all.
const (
	messageTries   = 3
	messageTimeout = 10 * time.Second
)

// Said is what a container that has exited has said about its end, and how far that was read.
type Said struct {
	Message   string     `json:"message,omitempty"`
	File      string     `json:"file,omitempty"`     // on the node; empty: it had none
	Fallback  bool       `json:"fallback,omitempty"` // its log speaks if the file says nothing
	Next      Source     `json:"next,omitempty"`     // what is to be read
	Op        world.OpID `json:"op,omitempty"`
	Failures  int        `json:"failures,omitempty"` // in a row
	NotBefore time.Time  `json:"notBefore"`
}

// Source is where a message may be; empty for nowhere any more.
type Source string

// The sources.
const (
	InFile Source = "File"
	InLog  Source = "Log"
)

// awaited says whether the message may still be about to be known.
func (s *Said) awaited() bool { return s.Next != "" && s.Failures < messageTries }

// endSeen takes from the runtime where the message of a container that has exited is. It is the
// runtime that knows: the container may be another agent's.
func (c *Container) endSeen(status *runtimeapi.ContainerStatus) {
	c.Said = Said{Fallback: c.ExitCode != 0 && !c.StartedAt.IsZero() &&
		status.Annotations[annotationMessagePolicy] ==
			string(v1.TerminationMessageFallbackToLogsOnError)}
	inside := status.Annotations[annotationMessagePath]
	for _, m := range status.Mounts {
		if inside != "" && m.ContainerPath == inside {
			c.Said.File, c.Said.Next = m.HostPath, InFile
			return
		}
	}
	c.Said.fallBack()
}

// fallBack goes on with the log, if that may speak.
func (s *Said) fallBack() {
	s.Next = ""
	if s.Fallback {
		s.Next = InLog
	}
}

// readMessages reads what containers that have exited have said.
func (p *Pod) readMessages(env *Env, w *waits) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Said.Next == "" || c.Said.Op != 0 || w.pending(c.Said.NotBefore) {
			continue
		}
		ask := &world.ReadTail{Path: c.Said.File, BytesMax: messageMax}
		if c.Said.Next == InLog {
			ask = &world.ReadTail{Path: p.logPath(c, env.Node), BytesMax: logs.TailBytes}
		}
		c.Said.Op = env.Out.Ask(p.Key(), c.ID, messageTimeout, ask)
	}
}

// messageRead takes what was read. A file that is not there says nothing; nor does a log, but it
// may only be without its name for a moment, because it is being rotated.
func (p *Pod) messageRead(r op.Record, ev world.Event) {
	c := p.container(r.Subject)
	if c == nil {
		return
	}
	s := &c.Said
	s.Op = 0
	missing := ev.Err.Has(world.KindNotFound)
	if ev.Err != nil && !missing || missing && s.Next == InLog && s.Failures < messageTries {
		s.failed(ev.Err, ev.Time)
		return
	}
	s.Failures, s.Message = 0, ""
	if ev.Err == nil {
		tail := ev.Body.(*world.TailRead)
		if s.Next == InLog {
			tail = &world.TailRead{Data: logs.Tail(tail.Data, tail.Truncated)}
		}
		s.Message = strings.ToValidUTF8(string(tail.Data), "\uFFFD")
	}
	if s.Next == InFile && s.Message == "" {
		s.fallBack()
		return
	}
	s.Next = ""
}

func (s *Said) failed(err *world.Error, now time.Time) {
	s.Failures++
	s.NotBefore = now.Add(waitAfter(s.Failures))
	s.Message = "Error on reading termination message from logs: " + err.Message
	if s.Next == InFile {
		s.Message = "Error on reading termination log " + s.File + ": " + err.Message
	}
	if err.Has(world.KindInvalid) {
		s.Next = "" // it is no file, and never will be
	}
}

// lastWords are what the runtime has to say about the end of a container, and the container.
func (c *Container) lastWords() string {
	if c.Message == "" || c.Said.Message == "" {
		return c.Message + c.Said.Message
	}
	return c.Message + ": " + c.Said.Message
}

// limitMessages cuts the messages of a pod to their share of what a pod may show in all.
func limitMessages(pod *v1.Pod) {
	containers := len(pod.Spec.InitContainers) + len(pod.Spec.Containers)
	for _, list := range [][]v1.ContainerStatus{
		pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses,
	} {
		for i := range list {
			for _, state := range []*v1.ContainerState{
				&list[i].State, &list[i].LastTerminationState,
			} {
				if t := state.Terminated; t != nil {
					t.Message = cut(t.Message, messageMaxPod/containers)
				}
			}
		}
	}
}

// cut shortens a text to so many bytes, between two characters.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "")
}

func (p *Pod) messageDir(name string, node *Node) string {
	return p.dir(node) + "/containers/" + name
}

// messageFile is where a run of a container says why it ended. Its name follows from the number
// of the run, so that the same request is made however often it is made.
func (p *Pod) messageFile(name string, number int32, node *Node) string {
	return p.messageDir(name, node) + "/" + strconv.Itoa(int(number))
}

// makeMessageFile takes the next step on the way to the file for the next run, and reports whether
// there was one to take. A file that an earlier run has left is made empty.
func (p *Pod) makeMessageFile(want *v1.Container, env *Env) bool {
	_, number := p.counts(want.Name)
	dir := want.Name + "/"
	file := dir + strconv.Itoa(int(number))
	switch {
	case want.TerminationMessagePath == "" || slices.Contains(p.MessageFiles, file):
		return false
	case !slices.Contains(p.MessageFiles, dir):
		p.Op = env.Out.Ask(p.Key(), dir, fsTimeout,
			&world.MakeDir{Path: p.messageDir(want.Name, env.Node), Mode: 0o755})
	default:
		p.Op = env.Out.Ask(p.Key(), file, fsTimeout, &world.WriteFile{
			Path: p.messageFile(want.Name, number, env.Node), Mode: 0o666, Volatile: true})
	}
	return true
}

// forgetMessageFiles has the file for the next run of a container made anew.
func (p *Pod) forgetMessageFiles(name string) {
	p.MessageFiles = slices.DeleteFunc(p.MessageFiles, func(file string) bool {
		return strings.HasPrefix(file, name+"/")
	})
}

// messageMount is the file as the container finds it.
func (p *Pod) messageMount(want *v1.Container, run *Container, node *Node) []*runtimeapi.Mount {
	if want.TerminationMessagePath == "" {
		return nil
	}
	return []*runtimeapi.Mount{{
		ContainerPath:  want.TerminationMessagePath,
		HostPath:       p.messageFile(want.Name, run.Restarts, node),
		SelinuxRelabel: true, // nobody else has a file of this run
	}}
}
