// Package poddirs knows the pods that an earlier agent started: those that have a directory.
//
// An agent makes the directory of a pod first. A pod that has one was admitted before, so it is not
// checked for resources again; if it has reached a terminal phase, the record in its directory says
// so. Neither the runtime nor the API server need have anything of the pod yet.
//
// Facts: the names found in the directory of all pods. Plan: one listing of that directory when the
// agent starts. Start reading at Listing.Plan.
package poddirs

import (
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	listTimeout    = 2 * time.Minute
	backoffInitial = time.Second
	backoffMax     = 30 * time.Second
)

// Owner is the key of the listing's operation and timer. The name of the component is an older one:
// timers that are due at the same time are planned in the order of these names.
var Owner = timer.Key{Component: "begun"}

// Listing is the listing of the pods' directories as the agent found them when it started.
type Listing struct {
	Dir    string          `json:"dir"`            // its children are named by UID
	Listed bool            `json:"listed"`         // the listing has succeeded
	UIDs   map[string]bool `json:"uids,omitempty"` // dropped once the pod is known or not desired

	Op        world.OpID `json:"op,omitempty"`
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
}

// Plan lists the directory until that has succeeded once, and returns when to be called again.
func (p *Listing) Plan(effects *op.Effects) time.Time {
	switch {
	case p.Listed || p.Op != 0:
		return time.Time{}
	case effects.Now().Before(p.NotBefore):
		return p.NotBefore
	}
	p.Op = effects.Issue(Owner, p.Dir, listTimeout, &world.ListDir{Path: p.Dir})
	return time.Time{}
}

// HandleCompletion handles the listing. If the directory does not exist, no pod was ever started.
func (p *Listing) HandleCompletion(ev world.Event, effects *op.Effects) {
	p.Op = 0
	if ev.Err != nil && !ev.Err.Has(world.KindNotFound) {
		p.Failures++
		p.NotBefore = ev.Time.Add(timer.Backoff(p.Failures, backoffInitial, backoffMax))
		if p.Failures == 1 {
			effects.Log(world.LevelWarning, "Failed to list the pods' directories: new pods wait",
				"path", p.Dir, "err", ev.Err.Error())
		}
		return
	}
	p.Listed, p.Failures, p.UIDs = true, 0, map[string]bool{}
	if listed, ok := ev.Body.(*world.DirListed); ok {
		for _, entry := range listed.Entries {
			if entry.Directory {
				p.UIDs[entry.Name] = true
			}
		}
	}
}

// Add adds a pod that has a directory, after the others have been dropped.
func (p *Listing) Add(uid string) {
	if p.UIDs == nil {
		p.UIDs = map[string]bool{}
	}
	p.UIDs[uid] = true
}

// MayHaveStarted reports whether an earlier agent may have started the pod. Before the listing
// every pod may have been started.
func (p *Listing) MayHaveStarted(uid string) bool { return !p.Listed || p.UIDs[uid] }
