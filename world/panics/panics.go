// Package panics is the record of the pods over which the agent has panicked: the rules of how long
// the next agent sets such a pod aside. Where the record lies is a matter of realworld/breaker and
// of the simulator; both use these rules.
//
// A pod is set aside for 10 seconds after its first panic, and twice as long after each further one
// in a row, up to 5 minutes: the back-off of a container that crashes. A pod over which the agent
// has not panicked for 10 minutes after its last back-off starts from one again.
//
// Times are those of the machine's date, which may have been changed: a pod is never set aside for
// longer than its back-off. Start reading at Open.
package panics

import (
	"slices"
	"time"

	"seedlet.dev/world"
)

const (
	backoffFirst = 10 * time.Second
	backoffMax   = 5 * time.Minute
	quietTime    = 10 * time.Minute // after a back-off, until panics are counted from one again

	// entriesMax bounds the pods in the record: the oldest are dropped. Each costs one process.
	entriesMax = 64
	placeMax   = 256
	countMax   = 1000
)

// Entry is one pod over which the agent has panicked.
type Entry struct {
	UID    string    `json:"uid"`
	Panics int       `json:"panics"` // in a row
	Last   time.Time `json:"last"`
	Place  string    `json:"place,omitempty"` // the function and line of the last panic
	// Silent is set if the last panic was while the pod was set aside.
	Silent bool `json:"silent,omitempty"`
}

// Record is what one agent knows of the panics, its own and those of the agents before.
type Record struct {
	entries  []Entry // the oldest first
	setAside map[string]bool
}

// Open returns the record of an agent that starts. Entries that make no sense are left out, and
// those that are forgotten.
func Open(entries []Entry, now time.Time) *Record {
	r := &Record{setAside: map[string]bool{}}
	seen := map[string]bool{}
	for _, e := range entries {
		if e.Panics < 1 || e.Last.IsZero() || seen[e.UID] || len(r.entries) == entriesMax {
			continue
		}
		seen[e.UID] = true
		e.Panics = min(e.Panics, countMax)
		if e.Last.After(now) {
			e.Last = now // the date was changed
		}
		if !e.isForgotten(now) {
			r.entries = append(r.entries, e)
			r.setAside[e.UID] = e.remaining(now) > 0
		}
	}
	return r
}

// Entries returns what the next agent opens.
func (r *Record) Entries() []Entry { return r.entries }

// SetAside returns the pods with panics, for the boot event.
func (r *Record) SetAside(now time.Time) []world.PodSetAside {
	var pods []world.PodSetAside
	for _, e := range r.entries {
		pods = append(pods, world.PodSetAside{UID: e.UID, Panics: e.Panics, Silent: e.Silent,
			Remaining: e.remaining(now)})
	}
	return pods
}

// Note records a panic over a pod, and returns how often the agent has panicked over it in a row.
func (r *Record) Note(uid, place string, now time.Time) int {
	e := Entry{UID: uid}
	if i := slices.IndexFunc(r.entries, func(o Entry) bool { return o.UID == uid }); i >= 0 {
		e = r.entries[i]
		r.entries = slices.Delete(r.entries, i, i+1)
		if e.isForgotten(now) {
			e.Panics = 0
		}
	}
	e.Silent = r.setAside[uid] && e.Panics > 0 && e.remaining(now) > 0
	e.Panics, e.Last, e.Place = min(e.Panics+1, countMax), now.UTC(), place[:min(len(place), placeMax)]
	r.entries = append(r.entries, e)
	if len(r.entries) > entriesMax {
		r.entries = r.entries[len(r.entries)-entriesMax:]
	}
	return e.Panics
}

// backoff returns for how long the pod is set aside after its last panic.
func (e *Entry) backoff() time.Duration {
	backoff := backoffFirst
	for range e.Panics - 1 {
		if backoff *= 2; backoff >= backoffMax {
			return backoffMax
		}
	}
	return backoff
}

// remaining returns for how much longer the pod is set aside.
func (e *Entry) remaining(now time.Time) time.Duration {
	return min(max(e.Last.Add(e.backoff()).Sub(now), 0), e.backoff())
}

// isForgotten reports whether panics over the pod are counted from one again.
func (e *Entry) isForgotten(now time.Time) bool {
	return !now.Before(e.Last.Add(e.backoff() + quietTime))
}
