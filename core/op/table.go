// Package op holds the operations in flight, and collects the effects of a step.
//
// Every effect that has a completion has a record here: the owner, the call, when it was issued and
// its deadline. The completion removes the record. A completion without a record is dropped and
// counted. A record whose deadline passes expires: the outcome of the operation is unknown, and the
// owner must observe again before it acts.
//
// The table is bounded, and so is what one owner may have in it: see InFlightMax and
// budget.OperationsMax. An operation over a bound is refused. It is not issued to the port and has
// no effect, but it has an ID and a record like any other. It completes with KindExhausted after
// RefusalDelay, so that its owner handles the refusal as any other failure, as an event of its own.
// Start reading at Table.
package op

import (
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Bounds of the operations in flight. What tenants write decides how many operations are issued for
// them, so a bound that is reached is no broken invariant.
const (
	// InFlightMax bounds the table: a node of 110 pods has a few operations per container at most.
	InFlightMax = 16384
	// ReservedMax is the part of the table that is left to the agent's own operations, such as
	// heartbeats and relists, and to those that release something, such as stops and removals.
	ReservedMax = 4096
	// RefusalDelay is when a refused operation completes. It keeps an owner without a back-off from
	// asking again in the same step.
	RefusalDelay = time.Second
)

// tenantComponents are the components whose operations follow from what tenants write. The
// components themselves import this package.
var tenantComponents = map[string]bool{
	podComponent: true, "image": true, "object": true, "status": true, "mirror": true, "csi": true,
	"volumestats": true, "scsi": true,
}

// releasingCalls are the calls that release something that a pod has. They make room for others,
// and each sandbox, container or directory has one of them at a time at most.
var releasingCalls = map[string]bool{
	"StopContainer": true, "StopPodSandbox": true, "RemoveContainer": true, "RemovePodSandbox": true,
	"Unmount": true, "RemoveTree": true, "RemoveCgroup": true, "UnpublishVolume": true,
	"ReleaseDevice": true,
	"UnstageVolume": true, "RemoveSCSIDisks": true,
}

// Owner is the component, and the item within it, that handles the completion of an operation.
type Owner = timer.Key

// Record is one operation in flight.
type Record struct {
	Owner    Owner     `json:"owner"`
	Call     string    `json:"call"`              // such as "StopContainer"
	Subject  string    `json:"subject,omitempty"` // the item within the owner, such as a container ID
	IssuedAt time.Time `json:"issuedAt"`
	Deadline time.Time `json:"deadline"`
	// Refused is set for an operation over a bound: Deadline is when it completes as refused.
	Refused bool `json:"refused,omitempty"`
}

// Table holds the operations in flight. The zero value is ready.
type Table struct {
	LastID    world.OpID                `json:"lastID"` // the newest ID
	Records   map[world.OpID]Record     `json:"records"`
	Deadlines timer.Queue[timer.Number] `json:"deadlines"`
	HighWater int                       `json:"highWater"`
	Dropped   uint64                    `json:"dropped"` // completions without a record
	Expired   uint64                    `json:"expired"` // operations whose deadline passed
	Refused   uint64                    `json:"refused"` // operations over a bound
	// InFlight and InFlightByOwner count the records of operations that were not refused.
	InFlight        int           `json:"inFlight"`
	InFlightByOwner map[Owner]int `json:"inFlightByOwner,omitempty"`
}

// count adds to the operations in flight of an owner.
func (t *Table) count(r Record, by int) {
	if r.Refused {
		return
	}
	if t.InFlightByOwner == nil {
		t.InFlightByOwner = map[Owner]int{}
	}
	t.InFlight += by
	if t.InFlightByOwner[r.Owner] += by; t.InFlightByOwner[r.Owner] == 0 {
		delete(t.InFlightByOwner, r.Owner)
	}
}

// InFlightOfOne returns how many operations the owner with the most of them has in flight.
func (t *Table) InFlightOfOne() int {
	most := 0
	for _, n := range t.InFlightByOwner { //ordered: a maximum
		most = max(most, n)
	}
	return most
}

// isOverBound reports whether an operation has to be refused. The bound of one owner shrinks with
// what all others leave of the table, so that owners that come first leave a part to those that
// come later, as in the lanes of world/loop.
func (t *Table) isOverBound(r Record) bool {
	switch {
	case t.InFlight >= InFlightMax:
		return true
	case !tenantComponents[r.Owner.Component] || releasingCalls[r.Call]:
		return false
	}
	const shared = InFlightMax - ReservedMax
	own := t.InFlightByOwner[r.Owner]
	left := shared - (t.InFlight - own) // by all others
	return t.InFlight >= shared || own >= max(1, budget.OperationsMax*left/shared)
}

// add adds a record, and reports whether the operation may be issued. If not, the record is that of
// a refused operation.
func (t *Table) add(r Record) (world.OpID, bool) {
	if r.Refused = t.isOverBound(r); r.Refused {
		t.Refused++
		r.Deadline = r.IssuedAt.Add(RefusalDelay)
	}
	if t.Records == nil {
		t.Records = map[world.OpID]Record{}
	}
	t.LastID++
	t.Records[t.LastID] = r
	t.Deadlines.Set(timer.Number(t.LastID), r.Deadline)
	t.count(r, 1)
	t.HighWater = max(t.HighWater, t.InFlight)
	return t.LastID, !r.Refused
}

// Complete removes the record of an operation whose completion arrived. If there is none, it counts
// the completion as dropped and returns false.
func (t *Table) Complete(id world.OpID) (Record, bool) {
	r, ok := t.Records[id]
	if !ok || r.Refused {
		t.Dropped++
		return Record{}, false
	}
	t.Remove(id)
	return r, true
}

// Remove removes the record of an operation whose outcome no longer matters; its completion will be
// dropped. An ID without a record is ignored.
func (t *Table) Remove(id world.OpID) {
	if r, ok := t.Records[id]; ok {
		t.count(r, -1)
	}
	delete(t.Records, id)
	t.Deadlines.Clear(timer.Number(id))
}

// Expire removes one record whose deadline has passed, and returns false if there is none. The
// error is why: the operation was refused, or its outcome is unknown.
func (t *Table) Expire(now time.Time) (world.OpID, Record, *world.Error, bool) {
	n, ok := t.Deadlines.Pop(now)
	if !ok {
		return 0, Record{}, nil, false
	}
	id := world.OpID(n)
	r := t.Records[id]
	t.Remove(id)
	if r.Refused {
		return id, r, world.Errorf(world.KindExhausted, r.Call,
			"as many operations in flight as one pod may have: %d, and less if those of all reach %d",
			budget.OperationsMax, InFlightMax-ReservedMax), true
	}
	t.Expired++
	return id, r, world.Errorf(world.KindTimeout, r.Call, "no answer in %s",
		r.Deadline.Sub(r.IssuedAt)), true
}
