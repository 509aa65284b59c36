package pod

import (
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// RemovedRun holds the facts about the newest run of a container whose record is no longer in the
// runtime: an administrator may remove it with the runtime's own tools. The attempt and restart
// count of later runs continue from it. If only the API server, or the name of a log, tells of it,
// it has no hash, and its restart count is its attempt.
type RemovedRun struct {
	Name      string        `json:"name"`
	Attempt   uint32        `json:"attempt"`
	Restarts  int32         `json:"restarts"`
	Hash      string        `json:"hash"`      // of the spec that it was created from
	Backoff   time.Duration `json:"backoff"`   // before the restart that follows its exit
	RestartAt time.Time     `json:"restartAt"` // the end of the back-off; zero if no exit was known
	// Exited is the run itself: one that is not restarted stays the last one. Lost is set if it is not
	// known how it has ended.
	Exited *Container `json:"exited,omitempty"`
	Lost   bool       `json:"lost,omitempty"`
}

// RemovedRun returns the removed run of a container; nil if the runtime has the records of all runs
// that the agent knows.
func (p *Pod) RemovedRun(name string) *RemovedRun {
	i := slices.IndexFunc(p.RemovedRuns, func(r RemovedRun) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &p.RemovedRuns[i]
}

// addRemovedRun returns the removed run of a container, an empty one if there was none.
func (p *Pod) addRemovedRun(name string) *RemovedRun {
	if p.RemovedRun(name) == nil {
		p.RemovedRuns = append(p.RemovedRuns, RemovedRun{Name: name})
	}
	return p.RemovedRun(name)
}

// rememberRemovedRun keeps the counts and the back-off of a run that is about to be dropped, if it
// was started.
func (p *Pod) rememberRemovedRun(c *Container) {
	if c.State == Created {
		return
	}
	removed := p.addRemovedRun(c.Name)
	if removed.Hash == "" || c.Attempt >= removed.Attempt {
		*removed = RemovedRun{Name: c.Name, Attempt: c.Attempt, Restarts: c.Restarts, Hash: c.Hash,
			Backoff: c.RestartBackoff()}
		exited := *c
		if exited.Op, exited.InspectOp, exited.Probers = 0, 0, nil; c.HasKnownExit() {
			removed.RestartAt = c.restartAt()
		} else {
			exited.lose()
			removed.Lost = true
		}
		removed.Exited = &exited
	}
}

// The exit of a run whose record was removed before its exit was known: its work may be half done,
// so it counts as killed (convertToAPIContainerStatuses and TerminatePod of the kubelet).
const (
	reasonStatusUnknown = "ContainerStatusUnknown"
	messageLost         = "The container could not be located when the pod was terminated"
	exitCodeLost        = 137
)

// lose sets the exit of a run to one that is not known.
func (c *Container) lose() {
	c.State, c.Inspected, c.TerminationMessage = Exited, Exited, TerminationMessage{}
	c.ExitCode, c.Reason, c.Message = exitCodeLost, reasonStatusUnknown, messageLost
}

// LastRun returns the newest run of a container. If its record was removed, the run counts only if
// its restart policy has it stay as it is: that of an app container, or of an init container that
// has failed, for which the pod does. Such a container does not run again for the loss of its
// record: its work would be done twice, and the API server refuses a status that takes an exit back
// (ValidateContainerStateTransition).
func (p *Pod) LastRun(name string) *Container {
	c, removed := p.NewestRun(name), p.RemovedRun(name)
	if !removed.IsNewerThan(c) || removed.Exited == nil || p.needsAnotherRun(removed.Exited) {
		return c
	}
	switch p.roleOf(name) {
	case App:
		return removed.Exited
	case Init:
		if removed.Exited.hasFailed(Init) && !(removed.Lost && p.isInitDone(name)) {
			return removed.Exited
		}
	}
	return c
}

// isInitDone reports whether an init container has completed in the current sandbox, by those after
// it, whatever is known of its own run.
func (p *Pod) isInitDone(name string) bool {
	i := slices.IndexFunc(p.Spec.Spec.InitContainers, func(c v1.Container) bool {
		return c.Name == name
	})
	return p.IsInitialized() || i < p.InitsDone()
}

// restoreRemovedRuns notes the runs that the API server has, of which the runtime has no record any
// more, as after a reset of it: the agent that saw them, or their exits, may be another one. A run
// that has not ended by its status was lost. Only those count that no other run is to follow.
func (p *Pod) restoreRemovedRuns() {
	if p.IsStatic() {
		return
	}
	for i := range p.Spec.Spec.InitContainers {
		p.restoreRemovedRun(p.Spec.Spec.InitContainers[i].Name)
	}
	for i := range p.Spec.Spec.Containers {
		p.restoreRemovedRun(p.Spec.Spec.Containers[i].Name)
	}
}

func (p *Pod) restoreRemovedRun(name string) {
	reported, removed := p.indexed(name).reported, p.RemovedRun(name)
	if reported == nil || removed != nil && !removed.Lost || p.NewestRun(name) != nil {
		return
	}
	last := runOfStatus(reported)
	if last.Round = p.Round.Number; p.isBetweenReportedRounds() {
		last.Round-- // it may be one of the round before
	}
	if removed != nil {
		if reported.State.Terminated != nil && removed.Exited.ID == last.ID {
			last.Run = removed.Exited.Run
			removed.Exited, removed.Lost = &last, false
		}
		return
	}
	if role := p.roleOf(name); (role == App || role == Init) && !p.needsAnotherRun(&last) {
		p.RemovedRuns = append(p.RemovedRuns, RemovedRun{Name: name, Attempt: last.Attempt,
			Restarts: last.Restarts, Exited: &last, Lost: reported.State.Running != nil})
	}
}

// isBetweenReportedRounds reports whether the API server has that all containers restart.
func (p *Pod) isBetweenReportedRounds() bool {
	return slices.ContainsFunc(p.Spec.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.AllContainersRestarting && c.Status == v1.ConditionTrue
	})
}

// runOfStatus returns the run that a status is of. If it runs, its exit is not known.
func runOfStatus(s *v1.ContainerStatus) Container {
	_, id, _ := strings.Cut(s.ContainerID, "://")
	c := Container{Name: s.Name, ID: id, Image: s.Image, ImageID: s.ImageID,
		State: Exited, Inspected: Exited,
		Run: criconfig.Run{Attempt: uint32(max(s.RestartCount, 0)), Restarts: s.RestartCount}}
	if running := s.State.Running; running != nil {
		c.StartedAt = running.StartedAt.UTC()
		c.lose()
	}
	if end := s.State.Terminated; end != nil {
		c.StartedAt, c.FinishedAt = end.StartedAt.UTC(), end.FinishedAt.UTC()
		c.ExitCode, c.Reason, c.Message = end.ExitCode, end.Reason, end.Message
	}
	return c
}

// isRemoved reports whether a run is one whose record was removed.
func (p *Pod) isRemoved(c *Container) bool {
	removed := p.RemovedRun(c.Name)
	return removed != nil && removed.Exited == c
}

// removedRunBackoffEnd returns when the back-off after a removed run of an app container ends; zero
// if the container does not have to wait for it.
func (p *Pod) removedRunBackoffEnd(name string) time.Time {
	removed, c := p.RemovedRun(name), p.NewestRun(name)
	if !removed.IsNewerThan(c) ||
		!p.matchesSpec(&Container{Name: name, Run: criconfig.Run{Hash: removed.Hash}}) {
		return time.Time{}
	}
	return removed.RestartAt
}

// listLogs lists the logs of a container that an earlier agent may have run, if the runtime has no
// run of it; it reports whether it has issued the operation. The runtime may have lost its state,
// as in a reboot, the pod's directory may be gone, and the status at the API server may be older
// than the newest log (the kubelet's calcRestartCountByLogDir). The UID of a static pod follows
// from its manifest, so a pod that is new to the node may have the logs of an earlier one.
func (p *Pod) listLogs(name string, env *Env) bool {
	_, reported := p.ReportedRestarts(name)
	mayHaveRun := p.Record.LookedFor || reported || p.IsStatic()
	removed := p.RemovedRun(name)
	if !mayHaveRun || p.NewestRun(name) != nil || removed != nil && removed.Hash != "" ||
		slices.Contains(p.LogsListed, name) {
		return false
	}
	p.Op = env.Effects.Issue(p.Key(), name, fsTimeout,
		&world.ListDir{Path: p.logDir(env.Node) + "/" + name})
	return true
}

// handleLogList handles the completion of listLogs. The newest log is that of a removed run, so
// that the next run does not write to it. A directory that cannot be listed counts as empty, as in
// the kubelet: it must not keep the container from starting.
func (p *Pod) handleLogList(id world.OpID, r op.Record, ev world.Event, env *Env) {
	list, _ := ev.Body.(*world.DirListed)
	if ev.Err != nil && !r.Refused {
		if !ev.Err.Has(world.KindNotFound) {
			env.Effects.Log(world.LevelWarning,
				"the logs of earlier runs cannot be listed and count as none", "pod", p.FullName(),
				"containerName", r.Subject, "err", ev.Err.Error())
		}
		ev.Err, list = nil, &world.DirListed{}
	}
	if p.handleCreation(id, r, ev, env); ev.Err != nil {
		return
	}
	p.LogsListed = append(p.LogsListed, r.Subject)
	newest := newestLog(list)
	if newest < 0 || p.NewestRun(r.Subject) != nil {
		return
	}
	removed := p.addRemovedRun(r.Subject)
	removed.Attempt = max(removed.Attempt, uint32(newest))
	removed.Restarts = max(removed.Restarts, newest)
}

// restartsMaxLogged bounds the restart counts that names of logs tell: those of later runs must fit
// into an int32.
const restartsMaxLogged = 1<<30 - 1

// newestLog returns the highest restart count that a log or a rotated log is named after; -1 if
// there is none.
func newestLog(list *world.DirListed) int32 {
	newest := int32(-1)
	for _, entry := range list.Entries {
		n, isLog := criconfig.ParseLogName(entry.Name)
		if isLog && !entry.Directory && n <= restartsMaxLogged {
			newest = max(newest, n)
		}
	}
	return newest
}

// IsNewerThan reports whether the removed run is newer than run c; c may be nil.
func (r *RemovedRun) IsNewerThan(c *Container) bool {
	return r != nil && (c == nil || r.Attempt > c.Attempt)
}

// nextBackoff returns the back-off that the next run of a container is created with.
func (p *Pod) nextBackoff(name string, maximum time.Duration) time.Duration {
	last := p.NewestRun(name)
	if removed := p.RemovedRun(name); removed.IsNewerThan(last) {
		// A removed run counts as one that has exited too early to reset the back-off.
		last = &Container{Name: name,
			Run: criconfig.Run{Hash: removed.Hash, Backoff: removed.Backoff}}
	}
	if last != nil && p.isOutdated(last) {
		return 0 // the change of the spec may have fixed the failure
	}
	return backoffAfter(last, maximum)
}

// nextRunNumbers returns the attempt and the restart count of the next run of a container.
func (p *Pod) nextRunNumbers(name string) (attempt uint32, restarts int32) {
	if c := p.NewestRun(name); c != nil {
		attempt, restarts = c.Attempt+1, c.Restarts+1
	}
	if removed := p.RemovedRun(name); removed != nil {
		attempt, restarts = max(attempt, removed.Attempt+1), max(restarts, removed.Restarts+1)
	}
	if reported, known := p.ReportedRestarts(name); known {
		restarts = max(restarts, reported+1)
	}
	return attempt, restarts
}
