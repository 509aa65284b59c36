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

const linkSuffix = ".log"

// LinkName returns the name of the link to a container's log. Log shippers find pod and container
// by it. A name that is too long for a directory is cut before its suffix (logSymlink in
// kuberuntime/legacy.go): it lacks a part of the ID, and two containers may have the same.
func LinkName(pod, namespace, container, id string) string {
	return cutName(pod+"_"+namespace+"_"+container+"-"+id) + linkSuffix
}

// cutName cuts a name without its suffix to the length that it has in a link.
func cutName(name string) string {
	return name[:min(len(name), world.NameBytesMax-len(linkSuffix))]
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
	Name      string `json:"name"`
	UID       string `json:"uid"`       // of the pod
	Container string `json:"container"` // its name
	Dangling  bool   `json:"dangling,omitempty"`
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
	for _, found := range ev.Body.(*world.LinksRead).Links {
		if link, isOwn := l.parseLink(found); isOwn && !isNeeded(link) {
			l.Candidates = append(l.Candidates, link)
		}
	}
}

// parseLink returns the pod and the container of a link, from the link's target. It reports false
// if no agent made the link: another target has another name.
func (l *Links) parseLink(found world.Link) (link Link, isOwn bool) {
	rest, ok := strings.CutPrefix(found.Target, l.LogsDir+"/")
	podDir, log, _ := strings.Cut(rest, "/")
	container, _, _ := strings.Cut(log, "/")
	pod := strings.Split(podDir, "_")
	name, isLog := strings.CutSuffix(found.Name, linkSuffix)
	if !ok || !isLog || len(pod) != 3 || path.Clean(found.Target) != found.Target {
		return Link{}, false
	}
	return Link{Name: found.Name, UID: pod[2], Container: container, Dangling: found.Dangling},
		strings.HasPrefix(name, cutName(pod[1]+"_"+pod[0]+"_"+container+"-"))
}
