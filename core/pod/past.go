package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Past is the newest run of a container whose record has gone from the runtime: somebody may remove
// it with the runtime's own tools. The runs after it count on from there, as long as this agent
// lives.
type Past struct {
	Name     string        `json:"name"`
	Attempt  uint32        `json:"attempt"`
	Restarts int32         `json:"restarts"`
	Hash     string        `json:"hash"`  // identity of the spec it was created from
	Wait     time.Duration `json:"wait"`  // the back-off after it
	Until    time.Time     `json:"until"` // when that is over, if it had ended
}

// past is nil if all that is known of a container still has its record.
func (p *Pod) past(name string) *Past {
	i := slices.IndexFunc(p.Past, func(past Past) bool { return past.Name == name })
	if i < 0 {
		return nil
	}
	return &p.Past[i]
}

// rememberRun keeps the count of a run that is about to be forgotten, if it ever began.
func (p *Pod) rememberRun(c *Container) {
	if c.State == Created {
		return
	}
	past := p.past(c.Name)
	if past == nil {
		p.Past = append(p.Past, Past{Name: c.Name})
		past = &p.Past[len(p.Past)-1]
	}
	if past.Hash == "" || c.Attempt >= past.Attempt {
		*past = Past{Name: c.Name, Attempt: c.Attempt, Restarts: c.Restarts, Hash: c.Hash,
			Wait: c.wait()}
		if c.ended() {
			past.Until = c.restartAt()
		}
	}
}

// backingOff is until when an app container has to wait because of a run that has gone; zero if it
// has not.
func (p *Pod) backingOff(name string) time.Time {
	past, c := p.past(name), p.newest(name)
	if !past.newer(c) || !p.matches(&Container{Name: name, Hash: past.Hash}) {
		return time.Time{}
	}
	return past.Until
}

// newer reports whether the run that has gone is newer than one that has not.
func (past *Past) newer(c *Container) bool {
	return past != nil && (c == nil || past.Attempt > c.Attempt)
}

// nextBackoff is the back-off that the next run of a container is created with.
func (p *Pod) nextBackoff(name string, maximum time.Duration) time.Duration {
	last := p.newest(name)
	if past := p.past(name); past.newer(last) {
		// It counts as one that has ended, and did not run for long enough to begin anew.
		last = &Container{Name: name, Hash: past.Hash, Backoff: past.Wait}
	}
	if last != nil && !p.matches(last) {
		return 0 // what has changed may be what was wrong
	}
	return backoffAfter(last, maximum)
}

// counts are the numbers of the next run of a container.
func (p *Pod) counts(name string) (attempt uint32, restarts int32) {
	if c := p.newest(name); c != nil {
		attempt, restarts = c.Attempt+1, c.Restarts+1
	}
	if past := p.past(name); past != nil {
		attempt, restarts = max(attempt, past.Attempt+1), max(restarts, past.Restarts+1)
	}
	if told, ran := p.counted(name); ran {
		restarts = max(restarts, told+1)
	}
	return attempt, restarts
}

// counted is the count of the newest run of a container that the API server was told of, and
// whether there was one. The runtime may have lost the records of all of them, as in a reboot.
func (p *Pod) counted(name string) (restarts int32, ran bool) {
	status := &p.Spec.Status
	for _, list := range [][]v1.ContainerStatus{status.InitContainerStatuses,
		status.ContainerStatuses} {
		for i := range list {
			if list[i].Name == name && (list[i].ContainerID != "" || list[i].RestartCount > 0) {
				return list[i].RestartCount, true
			}
		}
	}
	return 0, false
}
