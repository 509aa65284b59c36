package logs

import (
	"path"
	"strings"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// LinksOwner is the owner of the operations of Links.
var LinksOwner = timer.Key{Component: "logs", Name: "links"}

const linksPeriod = time.Minute

// LinkPath returns the path of the link to a container's log. Log shippers find pod and container
// by the name of the link.
func LinkPath(dir, pod, namespace, container, id string) string {
	return dir + "/" + pod + "_" + namespace + "_" + container + "-" + id + ".log"
}

// Links removes links to logs that do not exist, and links of containers that no longer exist. The
// link of a container is removed before its record is; the links found here are leftovers of an
// operation that took effect late, or of a log that was removed by other means.
type Links struct {
	Dir     string `json:"dir"`     // of the links
	LogsDir string `json:"logsDir"` // links with targets elsewhere belong to other programs

	Op         world.OpID `json:"op,omitempty"`
	Candidates []Link     `json:"candidates,omitempty"` // to remove, unless needed by then
	Removed    uint64     `json:"removed"`
	NextAt     time.Time  `json:"nextAt"`
	Problem    string     `json:"problem,omitempty"`
}

// Link is a link to a log, with the pod and the container of the log.
type Link struct {
	Name     string `json:"name"`
	UID      string `json:"uid"` // of the pod
	ID       string `json:"id"`  // of the container
	Dangling bool   `json:"dangling,omitempty"`
}

// IsLinkNeeded reports whether a link has to exist, as far as the agent knows.
type IsLinkNeeded func(Link) bool

// Plan issues the next operation, and returns when to plan again.
func (l *Links) Plan(isNeeded IsLinkNeeded, effects *op.Effects) time.Time {
	if l.Op != 0 {
		return time.Time{}
	}
	for len(l.Candidates) > 0 {
		link := l.Candidates[0]
		if l.Candidates = l.Candidates[1:]; isNeeded(link) {
			continue
		}
		l.Op = effects.Issue(LinksOwner, link.Name, fsTimeout,
			&world.RemoveTree{Path: l.Dir + "/" + link.Name})
		return time.Time{}
	}
	if effects.Now().Before(l.NextAt) {
		return l.NextAt
	}
	l.NextAt = effects.Now().Add(linksPeriod)
	l.Op = effects.Issue(LinksOwner, "", fsTimeout, &world.ReadLinks{Path: l.Dir})
	return time.Time{}
}

// HandleCompletion applies the completion of an operation.
func (l *Links) HandleCompletion(rec op.Record, ev world.Event, isNeeded IsLinkNeeded) {
	l.Op = 0
	if ev.Err != nil {
		if !ev.Err.Has(world.KindNotFound) { // the directory does not exist before the first link
			l.Problem = ev.Err.Error()
		}
		l.Candidates = nil // the next listing finds the remaining links
		return
	}
	l.Problem = ""
	if rec.Call == "RemoveTree" {
		l.Removed++
		return
	}
	for _, link := range ev.Body.(*world.LinksRead).Links {
		uid, id := l.parseLink(link)
		if found := (Link{link.Name, uid, id, link.Dangling}); id != "" && !isNeeded(found) {
			l.Candidates = append(l.Candidates, found)
		}
	}
}

// parseLink returns the pod and the container of a link, from the link's target and name; empty if
// no agent made the link.
func (l *Links) parseLink(link world.Link) (uid, id string) {
	rest, ok := strings.CutPrefix(link.Target, l.LogsDir+"/")
	parts := strings.Split(strings.SplitN(rest, "/", 2)[0], "_")
	name, isLog := strings.CutSuffix(link.Name, ".log")
	i := strings.LastIndexByte(name, '-')
	if !ok || !isLog || i < 0 || len(parts) != 3 || path.Clean(link.Target) != link.Target {
		return "", ""
	}
	return parts[2], name[i+1:]
}
