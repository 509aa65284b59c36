// Package begun knows which pods an earlier agent has begun: those that have a directory.
//
// A pod that was taken once is not asked again whether there is room for it, and if it has ended
// for good that is in its directory. The runtime may have nothing of it yet, and the API server may
// not have heard of either. It keeps: what was found in the directory of the pods. It plans: one
// listing of that, when the agent begins. Start reading at Pods.Plan.
package begun

import (
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	timeout      = 2 * time.Minute
	failureFirst = time.Second
	failureMost  = 30 * time.Second
)

// Owner is who the listing belongs to.
var Owner = timer.Key{Component: "begun"}

// Pods are those that were begun before this agent.
type Pods struct {
	Dir    string          `json:"dir"`            // children are named UID
	Listed bool            `json:"listed"`         // it is known which they are
	UIDs   map[string]bool `json:"uids,omitempty"` // until all that are wanted are known

	Op        world.OpID `json:"op,omitempty"`
	Failures  int        `json:"failures,omitempty"`
	NotBefore time.Time  `json:"notBefore"`
}

// Plan lists the directory, until that has succeeded once, and says when to be called again.
func (p *Pods) Plan(out *op.Out) time.Time {
	switch {
	case p.Listed || p.Op != 0:
		return time.Time{}
	case out.Now().Before(p.NotBefore):
		return p.NotBefore
	}
	p.Op = out.Ask(Owner, p.Dir, timeout, &world.ListDir{Path: p.Dir})
	return time.Time{}
}

// Answered takes the listing. If there is no directory, no pod was ever begun.
func (p *Pods) Answered(ev world.Event, out *op.Out) {
	p.Op = 0
	if ev.Err != nil && !ev.Err.Has(world.KindNotFound) {
		p.Failures++
		p.NotBefore = ev.Time.Add(timer.Backoff(p.Failures, failureFirst, failureMost))
		if p.Failures == 1 {
			out.Log(world.LevelWarning, "the directory of the pods cannot be listed: no new pod is "+
				"taken", "path", p.Dir, "error", ev.Err.Error())
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

// May says whether a pod may have been begun before.
func (p *Pods) May(uid string) bool { return !p.Listed || p.UIDs[uid] }
