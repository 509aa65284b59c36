// Package housekeeping finds directories and cgroups that no pod owns any more and removes them.
//
// A pod removes its own before it is forgotten; what housekeeping finds is what an agent left
// behind that was killed in between. It keeps: which of the parents is being listed, and what was
// found in it. It plans: a listing of each parent every period, then one removal at a time. It
// only removes what belongs to a pod that was unknown both when the listing was answered and when
// the removal begins, and only after all sources and the runtime have been seen; a pod that waits
// to be taken is not unknown. A cgroup, whose removal kills, waits until the runtime has been
// listed once more. A pod that comes meanwhile waits until the removal has ended (Sweep.Takes).
// Start reading at Sweep.Plan.
package housekeeping

import (
	"path"
	"strings"
	"time"

	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	period    = time.Minute
	timeout   = 2 * time.Minute
	lookAgain = time.Second // while the runtime has still to be listed
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
	UID     string     `json:"uid,omitempty"`   // of the pod whose directory or cgroup Op removes
	Found   []Found    `json:"found,omitempty"` // what may be orphans, in order
	Removed uint64     `json:"removed"`         // orphans removed
	// Unmounted is the directory below which nothing is mounted any more: the next to remove.
	Unmounted string    `json:"unmounted,omitempty"`
	NextAt    time.Time `json:"nextAt"`
	Problem   string    `json:"problem,omitempty"`
}

// Found is a directory or a cgroup that looks like a pod's.
type Found struct {
	Path   string `json:"path"`
	UID    string `json:"uid"`
	Cgroup bool   `json:"cgroup,omitempty"`
}

// View is what a sweep goes by.
type View struct {
	// Known says whether a pod is known or is to be, so that its directories are its own business;
	// Owned, whether a cgroup that is called by a UID is, or may be, that of such a pod.
	Known, Owned func(uid string) bool
	Cgroups      *cgroup.Layout
	AsOf         time.Time // when the runtime was listed last
}

func (v *View) spares(f *Found) bool {
	if f.Cgroup {
		return v.Owned(f.UID)
	}
	return v.Known(f.UID)
}

// Plan goes on with the sweep, and says when to be called again.
func (s *Sweep) Plan(v View, out *op.Out) time.Time {
	switch {
	case s.Op != 0:
		return time.Time{}
	case out.Now().Before(s.NextAt):
		return s.NextAt
	}
	for len(s.Found) > 0 {
		next := s.Found[0]
		if next.Cgroup && !v.spares(&next) && !v.AsOf.After(s.Asked) {
			return out.Now().Add(lookAgain)
		}
		if s.Found = s.Found[1:]; v.spares(&next) {
			s.Unmounted = "" // it may mount something
			continue
		}
		s.remove(&next, v, out)
		return time.Time{}
	}
	if s.Step >= len(s.parents(v)) {
		s.Step, s.NextAt = 0, out.Now().Add(period)
		return s.NextAt
	}
	s.Asked = out.Now()
	parent := s.parents(v)[s.Step]
	if s.Step < directories {
		s.Op = out.Ask(Owner, parent, timeout, &world.ListDir{Path: parent})
	} else {
		s.Op = out.Ask(Owner, parent, timeout,
			&world.ListCgroups{Path: parent, Systemd: v.Cgroups.Systemd})
	}
	return time.Time{}
}

func (s *Sweep) remove(orphan *Found, v View, out *op.Out) {
	s.UID = orphan.UID
	if !orphan.Cgroup && s.Unmounted != orphan.Path && path.Dir(orphan.Path) == s.PodsDir {
		s.Found = append([]Found{*orphan}, s.Found...)
		s.Op = out.Ask(Owner, orphan.Path, timeout, &world.Unmount{Path: orphan.Path})
		return
	}
	if orphan.Cgroup {
		out.Log(world.LevelInfo, "removing an orphaned cgroup", "path", orphan.Path)
		s.Op = out.Ask(Owner, orphan.Path, timeout,
			&world.RemoveCgroup{Path: orphan.Path, Systemd: v.Cgroups.Systemd})
		return
	}
	out.Log(world.LevelInfo, "removing an orphaned directory", "path", orphan.Path)
	s.Op = out.Ask(Owner, orphan.Path, timeout, &world.RemoveTree{Path: orphan.Path})
}

// directories is how many of the parents are directories; they come first.
const directories = 2

func (s *Sweep) parents(v View) []string {
	parents := []string{s.PodsDir, s.LogsDir}
	if v.Cgroups.PerPod && v.Cgroups.Settled {
		parents = append(parents, v.Cgroups.Parents()...)
	}
	return parents
}

// Takes says whether something is being removed that is, or may be, a pod's.
func (s *Sweep) Takes(uid string, cgroups *cgroup.Layout) bool {
	return s.UID != "" && (s.UID == uid || cgroups.Same(s.UID, uid))
}

// Answered takes the answer to what Plan asked for.
func (s *Sweep) Answered(rec op.Record, ev world.Event, v View) {
	s.Op, s.UID = 0, ""
	if rec.Call == "Unmount" {
		s.Unmounted = rec.Subject
		if ev.Err != nil {
			s.Problem, s.Unmounted = ev.Err.Error(), ""
			s.Found = s.Found[1:] // it will be found again
		}
		return
	}
	if rec.Call == "RemoveTree" || rec.Call == "RemoveCgroup" {
		s.Unmounted = ""
		if ev.Err != nil {
			s.Problem = ev.Err.Error() // it will be found again
		} else {
			s.Removed++
		}
		return
	}
	s.Step++
	if ev.Err != nil {
		if !ev.Err.Has(world.KindNotFound) { // nothing was ever made below it
			s.Problem = ev.Err.Error()
		}
		return
	}
	s.Problem = ""
	switch body := ev.Body.(type) {
	case *world.DirListed:
		s.findDirectories(rec.Subject, body, v)
	case *world.CgroupsListed:
		s.findCgroups(rec.Subject, body, v)
	}
}

func (s *Sweep) findDirectories(parent string, listed *world.DirListed, v View) {
	for _, entry := range listed.Entries {
		uid := entry.Name
		if parent == s.LogsDir {
			parts := strings.Split(entry.Name, "_")
			if len(parts) != 3 {
				continue // not a pod's
			}
			uid = parts[2]
		}
		found := Found{Path: path.Join(parent, entry.Name), UID: uid}
		if entry.Directory && !v.spares(&found) && !entry.ModTime.After(s.Asked.Add(-minAge)) {
			s.Found = append(s.Found, found)
		}
	}
}

func (s *Sweep) findCgroups(parent string, listed *world.CgroupsListed, v View) {
	for _, name := range listed.Names {
		uid, is := cgroup.UIDOf(name)
		found := Found{Path: path.Join(parent, name), UID: uid, Cgroup: true}
		if is && !v.spares(&found) {
			s.Found = append(s.Found, found)
		}
	}
}
