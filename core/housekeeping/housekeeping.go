// Package housekeeping finds orphaned directories and cgroups of pods, and removes them.
//
// A pod removes its own directories and cgroups before the agent forgets it. Orphans are left
// behind by an agent that was killed in between. Facts: which parent directory is being listed, and
// the candidates found in it. Plan: a listing of each parent every period, then one removal at a
// time.
//
// A candidate is removed only if its pod is unknown both when the listing completes and when the
// removal starts, and only after all sources and the runtime have been listed. A pod that awaits
// admission counts as known. Removing a cgroup kills its processes, so it waits for another relist
// first. A pod that becomes known during a removal waits until the removal has completed
// (Cleanup.IsRemoving). Start reading at Cleanup.Plan.
package housekeeping

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/cgroup"
	"seedlet.dev/core/containergc"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	period     = time.Minute
	timeout    = 2 * time.Minute
	relistPoll = time.Second // while waiting for a relist
	// orphanAgeMin protects directories that a tool or another agent has just made.
	orphanAgeMin = 10 * time.Second
)

// Owner is the key of the operations and the timer.
var Owner = timer.Key{Component: "housekeeping"}

// Cleanup is the state of the search for orphans and of their removal.
type Cleanup struct {
	PodsDir string `json:"podsDir"` // its children are named by UID
	LogsDir string `json:"logsDir"` // its children are named NAMESPACE_NAME_UID

	Op          world.OpID  `json:"op,omitempty"`
	ListIssued  time.Time   `json:"listIssued"`
	ParentIndex int         `json:"parentIndex"`           // the next parent to list
	RemovingUID string      `json:"removingUID,omitempty"` // of the pod that Op removes from
	Candidates  []Candidate `json:"candidates,omitempty"`  // may be orphans; removed in order
	Removed     uint64      `json:"removed"`               // orphans removed so far
	// Unmounted is the directory that Unmount has just completed for, and that is removed next.
	Unmounted string    `json:"unmounted,omitempty"`
	NextAt    time.Time `json:"nextAt"`
	LastError string    `json:"lastError,omitempty"`
	// LogsFailing are the removals of directories of logs that fail, by path, and the list of them, by
	// the path of their parent.
	LogsFailing map[string]containergc.Failure `json:"logsFailing,omitempty"`
}

// Candidate is a directory or a cgroup that has the name of a pod's.
type Candidate struct {
	Path   string `json:"path"`
	UID    string `json:"uid"`
	Cgroup bool   `json:"cgroup,omitempty"`
}

// Env is what the cleanup needs to know about pods and the runtime.
type Env struct {
	// IsKnownPod reports whether a pod is known or awaits admission, so that the pod itself removes
	// its directories. MayOwnCgroup reports whether such a pod may own the cgroup that is named by a
	// UID.
	IsKnownPod, MayOwnCgroup func(uid string) bool
	// HasVolumes reports whether a driver has, or may have, a volume published in the directory of a
	// pod. Such a directory stays until the volume is unpublished.
	HasVolumes      func(uid string) bool
	Cgroups         *cgroup.Layout
	RuntimeListedAt time.Time // the time of the newest complete relist
}

func (env *Env) isOwned(f *Candidate) bool {
	if f.Cgroup {
		return env.MayOwnCgroup(f.UID)
	}
	return env.IsKnownPod(f.UID) || env.HasVolumes != nil && env.HasVolumes(f.UID)
}

// Plan continues the cleanup, and returns when to be called again.
func (s *Cleanup) Plan(env Env, effects *op.Effects) time.Time {
	switch {
	case s.Op != 0:
		return time.Time{}
	case effects.Now().Before(s.NextAt):
		return s.NextAt
	}
	for len(s.Candidates) > 0 {
		next := s.Candidates[0]
		effects.WorkOn(next.UID)
		if next.Cgroup && !env.isOwned(&next) && !env.RuntimeListedAt.After(s.ListIssued) {
			return effects.Now().Add(relistPoll)
		}
		if s.Candidates = s.Candidates[1:]; env.isOwned(&next) {
			s.Unmounted = "" // its pod may mount something again
			continue
		}
		s.remove(&next, env, effects)
		return time.Time{}
	}
	effects.WorkOn("")
	if s.ParentIndex >= len(s.parents(env)) {
		s.ParentIndex, s.NextAt = 0, effects.Now().Add(period)
		return s.NextAt
	}
	s.ListIssued = effects.Now()
	parent := s.parents(env)[s.ParentIndex]
	if s.ParentIndex < parentDirs {
		s.Op = effects.Issue(Owner, parent, timeout, &world.ListDir{Path: parent})
	} else {
		s.Op = effects.Issue(Owner, parent, timeout,
			&world.ListCgroups{Path: parent, Systemd: env.Cgroups.Systemd})
	}
	return time.Time{}
}

func (s *Cleanup) remove(orphan *Candidate, env Env, effects *op.Effects) {
	s.RemovingUID = orphan.UID
	if !orphan.Cgroup && s.Unmounted != orphan.Path && path.Dir(orphan.Path) == s.PodsDir {
		s.Candidates = append([]Candidate{*orphan}, s.Candidates...)
		s.Op = effects.Issue(Owner, orphan.Path, timeout, &world.Unmount{Path: orphan.Path})
		return
	}
	if orphan.Cgroup {
		effects.Log(world.LevelInfo, "Removing orphaned cgroup", "path", orphan.Path)
		s.Op = effects.Issue(Owner, orphan.Path, timeout,
			&world.RemoveCgroup{Path: orphan.Path, Systemd: env.Cgroups.Systemd})
		return
	}
	effects.Log(world.LevelInfo, "Removing orphaned directory", "path", orphan.Path)
	s.Op = effects.Issue(Owner, orphan.Path, timeout, &world.RemoveTree{Path: orphan.Path})
}

// parentDirs is the number of parents that are directories; the parents of cgroups follow them.
const parentDirs = 2

func (s *Cleanup) parents(env Env) []string {
	parents := []string{s.PodsDir, s.LogsDir}
	if env.Cgroups.PerPod && env.Cgroups.DriverKnown {
		parents = append(parents, env.Cgroups.QOSParents()...)
	}
	return parents
}

// IsRemoving reports whether a directory or cgroup is being removed that may belong to a pod.
func (s *Cleanup) IsRemoving(uid string, cgroups *cgroup.Layout) bool {
	return s.RemovingUID != "" && (s.RemovingUID == uid || cgroups.MayShareCgroup(s.RemovingUID, uid))
}

// HandleCompletion handles the completion of an operation that Plan issued.
func (s *Cleanup) HandleCompletion(record op.Record, ev world.Event, env Env,
	effects *op.Effects) {
	s.Op, s.RemovingUID = 0, ""
	if record.Call == "Unmount" {
		s.Unmounted = record.Subject
		if ev.Err != nil {
			s.LastError, s.Unmounted = ev.Err.Error(), ""
			s.Candidates = s.Candidates[1:] // the next listing finds it again
		}
		return
	}
	s.noteLogsFailure(record, ev)
	if record.Call == "RemoveTree" || record.Call == "RemoveCgroup" {
		s.Unmounted = ""
		if ev.Err != nil {
			s.LastError = ev.Err.Error() // the next listing finds it again
		} else {
			s.Removed++
		}
		return
	}
	s.ParentIndex++
	if ev.Err != nil {
		if !ev.Err.Has(world.KindNotFound) { // a missing parent has no orphans
			s.LastError = ev.Err.Error()
		}
		return
	}
	s.LastError = ""
	switch body := ev.Body.(type) {
	case *world.DirListed:
		s.findDirectories(record.Subject, body, env, effects)
	case *world.CgroupsListed:
		s.findCgroups(record.Subject, body, env, effects)
	}
}

// noteLogsFailure records whether a list of the directories of logs, or the removal of one, fails.
func (s *Cleanup) noteLogsFailure(record op.Record, ev world.Event) {
	isList, isRemoval := record.Subject == s.LogsDir, path.Dir(record.Subject) == s.LogsDir
	switch {
	case !isList && !isRemoval || record.Refused:
	case ev.Err == nil || ev.Err.Has(world.KindNotFound):
		delete(s.LogsFailing, record.Subject)
	default:
		if s.LogsFailing == nil {
			s.LogsFailing = map[string]containergc.Failure{}
		}
		message := "failed to remove pod logs directory %q: %s"
		if isList {
			message = "failed to read podLogsDirectory %q: %s"
		}
		f := s.LogsFailing[record.Subject]
		f.Note(ev.Time, fmt.Sprintf(message, record.Subject,
			budget.CutMessage(ev.Err.Message)))
		s.LogsFailing[record.Subject] = f
	}
}

// dropGone forgets the removals of directories that the newest list of logs does not have.
func (s *Cleanup) dropGone(listed *world.DirListed) {
	present := map[string]bool{}
	for _, entry := range listed.Entries {
		present[path.Join(s.LogsDir, entry.Name)] = true
	}
	maps.DeleteFunc(s.LogsFailing, func(dir string, _ containergc.Failure) bool {
		return !present[dir]
	})
}

// Failures returns what fails, by path.
func (s *Cleanup) Failures() []containergc.Failure {
	var failures []containergc.Failure
	for _, dir := range slices.Sorted(maps.Keys(s.LogsFailing)) {
		failures = append(failures, s.LogsFailing[dir])
	}
	return failures
}

func (s *Cleanup) findDirectories(parent string, listed *world.DirListed, env Env,
	effects *op.Effects) {
	if parent == s.LogsDir {
		s.dropGone(listed)
	}
	for _, entry := range listed.Entries {
		uid := entry.Name
		if parent == s.LogsDir {
			parts := strings.Split(entry.Name, "_")
			if len(parts) != 3 {
				continue // not a pod's
			}
			uid = parts[2]
		}
		effects.WorkOn(uid)
		candidate := Candidate{Path: path.Join(parent, entry.Name), UID: uid}
		isOld := !entry.ModTime.After(s.ListIssued.Add(-orphanAgeMin))
		if entry.Directory && !env.isOwned(&candidate) && isOld {
			s.Candidates = append(s.Candidates, candidate)
		}
	}
}

func (s *Cleanup) findCgroups(parent string, listed *world.CgroupsListed, env Env,
	effects *op.Effects) {
	for _, name := range listed.Names {
		uid, isPod := cgroup.UIDOf(name)
		effects.WorkOn(uid)
		candidate := Candidate{Path: path.Join(parent, name), UID: uid, Cgroup: true}
		if isPod && !env.isOwned(&candidate) {
			s.Candidates = append(s.Candidates, candidate)
		}
	}
}
