package logs

import (
	"path"
	"strings"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// LinksOwner is who the operations of the search for dangling links belong to.
var LinksOwner = timer.Key{Component: "logs", Name: "links"}

const linksPeriod = time.Minute

// LinkPath is where the link to a log is, by which log shippers find the pod and the container.
func LinkPath(dir, pod, namespace, container, id string) string {
	return dir + "/" + pod + "_" + namespace + "_" + container + "-" + id + ".log"
}

// Links is the search for links that lead nowhere, or were made for a container that has gone. A
// container's link is removed before its record is; what is found here was left by an operation
// that took effect late, or by whoever removed a log.
type Links struct {
	Dir     string `json:"dir"`     // of the links
	LogsDir string `json:"logsDir"` // what else a link points to is not this agent's

	Op      world.OpID `json:"op,omitempty"`
	Found   []Link     `json:"found,omitempty"` // that may have to go
	Removed uint64     `json:"removed"`
	NextAt  time.Time  `json:"nextAt"`
	Problem string     `json:"problem,omitempty"`
}

// Link is a link to a log, and what it is about.
type Link struct {
	Name     string `json:"name"`
	UID      string `json:"uid"` // of the pod
	ID       string `json:"id"`  // of the container
	Dangling bool   `json:"dangling,omitempty"`
}

// Keep says whether a link is one that should be there, as far as the agent knows.
type Keep func(Link) bool

// Plan goes on with the search, and says when to be called again.
func (l *Links) Plan(keep Keep, out *op.Out) time.Time {
	if l.Op != 0 {
		return time.Time{}
	}
	for len(l.Found) > 0 {
		link := l.Found[0]
		if l.Found = l.Found[1:]; keep(link) {
			continue
		}
		l.Op = out.Ask(LinksOwner, link.Name, fsTimeout,
			&world.RemoveTree{Path: l.Dir + "/" + link.Name})
		return time.Time{}
	}
	if out.Now().Before(l.NextAt) {
		return l.NextAt
	}
	l.NextAt = out.Now().Add(linksPeriod)
	l.Op = out.Ask(LinksOwner, "", fsTimeout, &world.ReadLinks{Path: l.Dir})
	return time.Time{}
}

// Answered takes the answer to what Plan asked for.
func (l *Links) Answered(rec op.Record, ev world.Event, keep Keep) {
	l.Op = 0
	if ev.Err != nil {
		if !ev.Err.Has(world.KindNotFound) { // no link was ever made
			l.Problem = ev.Err.Error()
		}
		l.Found = nil // what is left of them will be found again
		return
	}
	l.Problem = ""
	if rec.Call == "RemoveTree" {
		l.Removed++
		return
	}
	for _, link := range ev.Body.(*world.LinksRead).Links {
		uid, id := l.meaning(link)
		if found := (Link{link.Name, uid, id, link.Dangling}); id != "" && !keep(found) {
			l.Found = append(l.Found, found)
		}
	}
}

// meaning is the pod and the container that a link is about, by where it points to and by its
// name; empty if it was not made by an agent.
func (l *Links) meaning(link world.Link) (uid, id string) {
	rest, is := strings.CutPrefix(link.Target, l.LogsDir+"/")
	parts := strings.Split(strings.SplitN(rest, "/", 2)[0], "_")
	name, isLog := strings.CutSuffix(link.Name, ".log")
	i := strings.LastIndexByte(name, '-')
	if !is || !isLog || i < 0 || len(parts) != 3 || path.Clean(link.Target) != link.Target {
		return "", ""
	}
	return parts[2], name[i+1:]
}
