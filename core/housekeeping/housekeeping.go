// Package housekeeping finds directories that no pod owns any more and removes them.
//
// A pod removes its own directories before it is forgotten; what housekeeping finds is what an
// agent left behind that was killed in between. It keeps: which of the two parent directories is
// being listed, and what was found in it. It plans: a listing of each parent every period, then
// one removal at a time. It only removes a directory whose pod was unknown both when the listing
// was answered and when the removal begins, and only after all sources and the runtime have been
// seen. A pod that comes meanwhile waits until the removal has ended (Sweep.UID). Start reading
// at Sweep.Plan.
package housekeeping

import (
	"path"
	"strings"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	period    = time.Minute
	fsTimeout = 2 * time.Minute
	// minAge spares directories that someone else, a tool or another agent, has just made.
	minAge = 10 * time.Second
)

// Owner is who the operations belong to.
var Owner = timer.Key{Component: "housekeeping"}

// Sweep is one round over the parents of pods' directories.
type Sweep struct {
	PodsDir string `json:"podsDir"` // children are named UID
	LogsDir string `json:"logsDir"` // children are named NAMESPACE_NAME_UID

	Op      world.OpID `json:"op,omitempty"`
	Asked   time.Time  `json:"asked"`
	Step    int        `json:"step"`            // which parent is next
	UID     string     `json:"uid,omitempty"`   // of the pod whose directory Op removes
	Found   []Found    `json:"found,omitempty"` // directories that may be orphans, in order
	Removed uint64     `json:"removed"`         // orphans removed
	// Unmounted is the directory below which nothing is mounted any more: the next to remove.
	Unmounted string    `json:"unmounted,omitempty"`
	NextAt    time.Time `json:"nextAt"`
	Problem   string    `json:"problem,omitempty"`
}

// Found is a directory that looks like a pod's.
type Found struct {
	Path string `json:"path"`
	UID  string `json:"uid"`
}

// Known says whether the agent knows a pod, so that its directories are its own business.
type Known func(uid string) bool

// Plan goes on with the sweep, and says when to be called again.
func (s *Sweep) Plan(known Known, out *op.Out) time.Time {
	switch {
	case s.Op != 0:
		return time.Time{}
	case out.Now().Before(s.NextAt):
		return s.NextAt
	}
	for len(s.Found) > 0 {
		next := s.Found[0]
		if s.Found = s.Found[1:]; known(next.UID) {
			s.Unmounted = "" // it may mount something
			continue
		}
		s.UID = next.UID
		if s.Unmounted != next.Path && path.Dir(next.Path) == s.PodsDir {
			s.Found = append([]Found{next}, s.Found...)
			s.Op = out.Ask(Owner, next.Path, fsTimeout, &world.Unmount{Path: next.Path})
			return time.Time{}
		}
		out.Log(world.LevelInfo, "removing an orphaned directory", "path", next.Path)
		s.Op = out.Ask(Owner, next.Path, fsTimeout, &world.RemoveTree{Path: next.Path})
		return time.Time{}
	}
	if s.Step == 2 {
		s.Step, s.NextAt = 0, out.Now().Add(period)
		return s.NextAt
	}
	s.Asked = out.Now()
	s.Op = out.Ask(Owner, "", fsTimeout, &world.ListDir{Path: s.parent()})
	return time.Time{}
}

func (s *Sweep) parent() string {
	if s.Step == 0 {
		return s.PodsDir
	}
	return s.LogsDir
}

// Answered takes the answer to what Plan asked for.
func (s *Sweep) Answered(rec op.Record, ev world.Event, known Known) {
	s.Op, s.UID = 0, ""
	if rec.Call == "Unmount" {
		s.Unmounted = rec.Subject
		if ev.Err != nil {
			s.Problem, s.Unmounted = ev.Err.Error(), ""
			s.Found = s.Found[1:] // it will be found again
		}
		return
	}
	if rec.Call == "RemoveTree" {
		s.Unmounted = ""
		if ev.Err != nil {
			s.Problem = ev.Err.Error() // it will be found again
		} else {
			s.Removed++
		}
		return
	}
	parent := s.parent()
	s.Step++
	if ev.Err != nil {
		if !ev.Err.Has(world.KindNotFound) { // nothing was ever made below it
			s.Problem = ev.Err.Error()
		}
		return
	}
	s.Problem = ""
	for _, entry := range ev.Body.(*world.DirListed).Entries {
		uid := entry.Name
		if parent == s.LogsDir {
			parts := strings.Split(entry.Name, "_")
			if len(parts) != 3 {
				continue // not a pod's
			}
			uid = parts[2]
		}
		if !entry.Directory || known(uid) || entry.ModTime.After(s.Asked.Add(-minAge)) {
			continue
		}
		s.Found = append(s.Found, Found{Path: path.Join(parent, entry.Name), UID: uid})
	}
}
