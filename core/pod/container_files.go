package pod

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/containergc"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/logs"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// The files of a container's run besides its volumes: its log and the rotated logs, the link to the
// log, and the file of its termination message. They are removed before the record of the run, so
// that an agent that was killed halfway knows that there are files to remove.

// Link is the symbolic link to a log, by which log collectors find it.
type Link struct {
	Created   bool       `json:"created,omitempty"` // by this incarnation of the agent
	Op        world.OpID `json:"op,omitempty"`
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
}

// FileCleanup is the progress of the removal of a run's files.
type FileCleanup struct {
	Op          world.OpID `json:"op,omitempty"`
	LinkRemoved bool       `json:"linkRemoved,omitempty"`
	LogsRemoved bool       `json:"logsRemoved,omitempty"` // the directory has no log of the run
	Files       []string   `json:"files,omitempty"`       // still to be removed
	Lists       int        `json:"lists,omitempty"`       // of the directory, with logs of the run
}

// cleanupSubject begins the subject of the operations that remove a run's files.
const cleanupSubject = "left of "

// linkTimeout is short because only the removal of the log waits for the creation of its link.
const linkTimeout = 10 * time.Second

func (p *Pod) logPath(c *Container, node *Node) string {
	return p.logDir(node) + "/" + c.Name + "/" + c.logName()
}

func (c *Container) logName() string { return criconfig.LogName(c.Restarts) }

func (p *Pod) linkPath(c *Container, node *Node) string {
	return node.LogLinksDir + "/" + p.linkName(c)
}

func (p *Pod) linkName(c *Container) string {
	return logs.LinkName(p.Name, p.Namespace, c.Name, c.ID)
}

// linkLogs creates the link of every running container. A new incarnation of the agent creates an
// existing link again, which changes nothing.
func (p *Pod) linkLogs(env *Env, w *wakeTimer) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.State != Running || c.Link.Created || c.Link.Op != 0 || p.Stage != Syncing ||
			w.waitUntil(c.Link.NotBefore) {
			continue
		}
		c.Link.Op = env.Effects.Issue(p.Key(), c.ID, linkTimeout, &world.MakeLink{
			Path: p.linkPath(c, env.Node), Target: p.logPath(c, env.Node)})
	}
}

func (p *Pod) handleLinkCompletion(r op.Record, ev world.Event) {
	c := p.containerByID(r.Subject)
	if c == nil {
		return
	}
	if c.Link.Op = 0; ev.Err != nil {
		c.Link.Failures++
		c.Link.NotBefore = ev.Time.Add(failureBackoff(c.Link.Failures))
		return
	}
	c.Link.Created = true
}

// removeContainerFiles removes the files of a container's run, and reports whether that goes on.
// The directories of a pod that is no longer desired are removed as a whole (removeDirs).
//
// The log directory is listed again after files in it were removed, because a log that was being
// rotated meanwhile has another name then. If files appear again and again there is a growing wait
// between the lists.
func (p *Pod) removeContainerFiles(c *Container, env *Env) bool {
	cleanup := &c.Cleanup
	switch {
	case c.State == Created || p.sharesFiles(c):
		return false
	case cleanup.Op != 0 || c.Link.Op != 0:
		return true
	case !cleanup.LinkRemoved:
		cleanup.Op = env.Effects.Issue(p.Key(), cleanupSubject+c.ID, fsTimeout,
			&world.RemoveTree{Path: p.linkPath(c, env.Node)})
	case p.NoLongerDesired:
		return false
	case len(cleanup.Files) > 0:
		cleanup.Op = env.Effects.Issue(p.Key(), cleanupSubject+c.ID, fsTimeout,
			&world.RemoveTree{Path: cleanup.Files[0]})
	case !cleanup.LogsRemoved:
		cleanup.Op = env.Effects.Issue(p.Key(), cleanupSubject+c.ID, fsTimeout,
			&world.ListDir{Path: p.logDir(env.Node) + "/" + c.Name})
	default:
		return false
	}
	return true
}

// sharesFiles reports whether another container has the same name and restart count, and therefore
// the same files.
func (p *Pod) sharesFiles(c *Container) bool {
	return slices.ContainsFunc(p.Containers, func(o Container) bool {
		return o.Name == c.Name && o.Restarts == c.Restarts && o.ID != c.ID
	})
}

// handleFileCleanup handles the completion of an operation of removeContainerFiles; it reports
// false for any other operation.
func (p *Pod) handleFileCleanup(r op.Record, ev world.Event, node *Node) bool {
	id, ok := strings.CutPrefix(r.Subject, cleanupSubject)
	c := p.containerByID(id)
	if !ok || c == nil {
		return ok
	}
	cleanup := &c.Cleanup
	cleanup.Op = 0
	switch {
	case ev.Err != nil && !(r.Call == "ListDir" && ev.Err.Has(world.KindNotFound)):
		c.Failures++
		c.NotBefore = ev.Time.Add(failureBackoff(c.Failures))
		if !r.Refused {
			c.Removal.Note(ev.Time, fmt.Sprintf("failed to remove the log of container %q: %s", c.ID,
				budget.CutMessage(ev.Err.Message)))
		}
		return true
	case r.Call == "ListDir":
		if ev.Err == nil {
			cleanup.Files = p.runLogFiles(c, ev.Body.(*world.DirListed), node)
		}
		if cleanup.LogsRemoved = len(cleanup.Files) == 0; cleanup.LogsRemoved {
			cleanup.Files = []string{node.MessageFilePath(p.UID, c.Name, c.Restarts)}
		} else if cleanup.Lists++; cleanup.Lists > 2 {
			c.NotBefore = ev.Time.Add(failureBackoff(cleanup.Lists - 2))
		}
	case !cleanup.LinkRemoved:
		cleanup.LinkRemoved = true
		p.relinkOthers(c)
	default:
		cleanup.Files = cleanup.Files[1:]
	}
	c.Failures, c.Removal = 0, containergc.Failure{}
	return true
}

// relinkOthers records, after the removal of a container's link, that the other containers whose
// links have the same name lack theirs. Only names that were cut are not unique.
func (p *Pod) relinkOthers(removed *Container) {
	name := p.linkName(removed)
	if len(name) < world.NameBytesMax {
		return
	}
	for i := range p.Containers {
		if c := &p.Containers[i]; c.Link.Created && p.linkName(c) == name {
			c.Link.Created = false
		}
	}
}

// runLogFiles returns the log of a run and its rotated logs.
func (p *Pod) runLogFiles(c *Container, list *world.DirListed, node *Node) []string {
	var files []string
	log := p.logPath(c, node)
	for _, e := range list.Entries {
		if restarts, isLog := criconfig.ParseLogName(e.Name); isLog && restarts == c.Restarts {
			files = append(files, strings.TrimSuffix(log, c.logName())+e.Name)
		}
	}
	return files
}

// NextLog returns the log of the first running container, by name, after the given one. It reports
// false if no such container exists.
func (p *Pod) NextLog(after string, node *Node) (logs.Target, bool) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.Name > after && c.State == Running {
			return logs.Target{
				Cursor: logs.Cursor{UID: p.UID, Container: c.Name},
				ID:     c.ID, Path: p.logPath(c, node),
			}, true
		}
	}
	return logs.Target{}, false
}

// NeedsLink reports whether a link to a container's log must stay. The link of a live container
// stays even if it dangles, because its log is being rotated.
func (p *Pod) NeedsLink(link logs.Link) bool {
	runs := p.runsOf(link.Container)
	for i := range runs {
		if c := &runs[i]; (c.isLive() || !link.Dangling) && p.linkName(c) == link.Name {
			return true
		}
	}
	return false
}

// HasLiveContainer reports whether a container of the pod is live.
func (p *Pod) HasLiveContainer(id string) bool {
	c := p.containerByID(id)
	return c != nil && c.isLive()
}
