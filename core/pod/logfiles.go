package pod

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"seedlet.dev/core/logs"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// What a run of a container has on the disk besides its volumes: its log and what was rotated of
// it, the link to the log, and the file of its message. They go before the record of the run
// does, so that an agent that is killed halfway knows that there is something left to remove.

// Link is the link to a log, by which log shippers find it.
type Link struct {
	Made      bool       `json:"made,omitempty"` // by this life of the agent
	Op        world.OpID `json:"op,omitempty"`
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
}

// Leavings is how far what a run has left on the disk has been removed.
type Leavings struct {
	Op       world.OpID `json:"op,omitempty"`
	Unlinked bool       `json:"unlinked,omitempty"`
	Bare     bool       `json:"bare,omitempty"`  // no log of it was in its directory any more
	Files    []string   `json:"files,omitempty"` // that are still to be removed
}

// leftOf begins the subject of the operations that remove what a container has left.
const leftOf = "left of "

// linkTimeout is short: nothing waits for a link but the removal of what it points to.
const linkTimeout = 10 * time.Second

func (p *Pod) logPath(c *Container, node *Node) string {
	return p.logDir(node) + "/" + c.Name + "/" + c.logName()
}

func (c *Container) logName() string { return strconv.Itoa(int(c.Restarts)) + ".log" }

func (p *Pod) linkPath(c *Container, node *Node) string {
	return logs.LinkPath(node.LinksDir, p.Name, p.Namespace, c.Name, c.ID)
}

// linkLogs makes the link of every container that runs. One that is there is made again by a new
// life of the agent, which changes nothing.
func (p *Pod) linkLogs(env *Env, w *waits) {
	for i := range p.Containers {
		c := &p.Containers[i]
		if c.State != Running || c.Link.Made || c.Link.Op != 0 || p.Stage != Syncing ||
			w.pending(c.Link.NotBefore) {
			continue
		}
		c.Link.Op = env.Out.Ask(p.Key(), c.ID, linkTimeout, &world.MakeLink{
			Path: p.linkPath(c, env.Node), Target: p.logPath(c, env.Node)})
	}
}

func (p *Pod) linked(r op.Record, ev world.Event) {
	c := p.container(r.Subject)
	if c == nil {
		return
	}
	if c.Link.Op = 0; ev.Err != nil {
		c.Link.Failures++
		c.Link.NotBefore = ev.Time.Add(waitAfter(c.Link.Failures))
		return
	}
	c.Link.Made = true
}

// clear removes what a container has left, and reports whether there is still something to do. Of
// a pod that nobody wants the directories go as a whole.
//
// The directory is listed again after something in it was removed: a log that was being rotated has
// another name by then.
func (p *Pod) clear(c *Container, env *Env) bool {
	l := &c.Left
	switch {
	case c.State == Created || p.twin(c):
		return false
	case l.Op != 0 || c.Link.Op != 0:
		return true
	case !l.Unlinked:
		l.Op = env.Out.Ask(p.Key(), leftOf+c.ID, fsTimeout,
			&world.RemoveTree{Path: p.linkPath(c, env.Node)})
	case p.Gone:
		return false
	case len(l.Files) > 0:
		l.Op = env.Out.Ask(p.Key(), leftOf+c.ID, fsTimeout,
			&world.RemoveTree{Path: l.Files[0]})
	case !l.Bare:
		l.Op = env.Out.Ask(p.Key(), leftOf+c.ID, fsTimeout,
			&world.ListDir{Path: p.logDir(env.Node) + "/" + c.Name})
	default:
		return false
	}
	return true
}

// twin says whether another record has the number of a run, and with it its files.
func (p *Pod) twin(c *Container) bool {
	return slices.ContainsFunc(p.Containers, func(o Container) bool {
		return o.Name == c.Name && o.Restarts == c.Restarts && o.ID != c.ID
	})
}

// cleared takes the answer to one of clear's operations; false if it is not about one.
func (p *Pod) cleared(r op.Record, ev world.Event, node *Node) bool {
	id, is := strings.CutPrefix(r.Subject, leftOf)
	c := p.container(id)
	if !is || c == nil {
		return is
	}
	l := &c.Left
	l.Op = 0
	switch {
	case ev.Err != nil && !(r.Call == "ListDir" && ev.Err.Has(world.KindNotFound)):
		c.Failures++
		c.NotBefore = ev.Time.Add(waitAfter(c.Failures))
		return true
	case r.Call == "ListDir":
		if ev.Err == nil {
			l.Files = p.filesOf(c, ev.Body.(*world.DirListed), node)
		}
		if l.Bare = len(l.Files) == 0; l.Bare {
			l.Files = []string{p.messageFile(c.Name, c.Restarts, node)}
		}
	case !l.Unlinked:
		l.Unlinked = true
	default:
		l.Files = l.Files[1:]
	}
	c.Failures = 0
	return true
}

// filesOf are the log of a run and what was rotated of it.
func (p *Pod) filesOf(c *Container, list *world.DirListed, node *Node) []string {
	var files []string
	log := p.logPath(c, node)
	for _, e := range list.Entries {
		visible := strings.TrimPrefix(e.Name, ".") // the beginning of a compressed one is not
		if e.Name == c.logName() || strings.HasPrefix(visible, c.logName()+".") {
			files = append(files, strings.TrimSuffix(log, c.logName())+e.Name)
		}
	}
	return files
}

// NextLog is the log of the first container after the given one that runs, by name; false if
// there is none.
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

// KeepsLink says whether the link to a container's log is to stay: that of one that runs does even
// if it leads nowhere, because its log is being rotated.
func (p *Pod) KeepsLink(id string, dangling bool) bool {
	c := p.container(id)
	return c != nil && (c.live() || !dangling)
}

// Runs says whether a container of the pod runs.
func (p *Pod) Runs(id string) bool {
	c := p.container(id)
	return c != nil && c.live()
}
