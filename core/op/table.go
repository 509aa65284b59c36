// Package op keeps the operations in flight as records, and hands out effects.
//
// Every effect that expects an answer has a record here: who asked, for what, when, and until
// when it may take. A completion settles the record; one that nobody waits for any more is
// dropped and counted. A record whose deadline passes is expired: its outcome is unknown, and
// the owner must observe again before it acts. Start reading at Table.
package op

import (
	"fmt"
	"time"

	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// InFlightMax bounds the table. A node of 110 pods has a few operations per container at most;
// reaching the bound means that operations leak, which is a broken invariant.
const InFlightMax = 16384

// Owner is the component, and the thing within it, that waits for an operation.
type Owner = timer.Key

// Record is one operation in flight.
type Record struct {
	Owner    Owner     `json:"owner"`
	Call     string    `json:"call"`              // as in "StopContainer"
	Subject  string    `json:"subject,omitempty"` // what within the owner, as a container's id
	Began    time.Time `json:"began"`
	Deadline time.Time `json:"deadline"`
}

// Table is the operations in flight. The zero value is ready.
type Table struct {
	Last      world.OpID                `json:"last"` // the newest id handed out
	Records   map[world.OpID]Record     `json:"records"`
	Deadlines timer.Queue[timer.Number] `json:"deadlines"`
	HighWater int                       `json:"highWater"`
	Dropped   uint64                    `json:"dropped"` // completions nobody waited for
	Expired   uint64                    `json:"expired"` // operations whose deadline passed
}

func (t *Table) begin(r Record) world.OpID {
	if len(t.Records) >= InFlightMax {
		panic(fmt.Sprintf("op: %d operations in flight, beginning %s", len(t.Records), r.Call))
	}
	if t.Records == nil {
		t.Records = map[world.OpID]Record{}
	}
	t.Last++
	t.Records[t.Last] = r
	t.Deadlines.Set(timer.Number(t.Last), r.Deadline)
	t.HighWater = max(t.HighWater, len(t.Records))
	return t.Last
}

// Settle takes an operation out of the table because it was answered. It reports false, and
// counts the completion as dropped, if nobody waits for it.
func (t *Table) Settle(id world.OpID) (Record, bool) {
	r, ok := t.Records[id]
	if !ok {
		t.Dropped++
		return Record{}, false
	}
	t.Forget(id)
	return r, true
}

// Forget takes an operation out of the table because its outcome no longer matters; its
// completion will be dropped. Forgetting what is not there does nothing.
func (t *Table) Forget(id world.OpID) {
	delete(t.Records, id)
	t.Deadlines.Clear(timer.Number(id))
}

// Expire takes one operation out of the table whose deadline has passed, if there is one. Its
// outcome is unknown.
func (t *Table) Expire(now time.Time) (world.OpID, Record, bool) {
	n, ok := t.Deadlines.Pop(now)
	if !ok {
		return 0, Record{}, false
	}
	id := world.OpID(n)
	r := t.Records[id]
	delete(t.Records, id)
	t.Expired++
	return id, r, true
}
