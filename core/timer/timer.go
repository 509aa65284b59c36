// Package timer keeps points in time by key, as data: what is due next, in an order that depends
// on nothing but the times and the keys. Start reading at Queue.
package timer

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"seedlet.dev/world"
)

// Ordered is what a queue can be keyed by: data with a total order and a text form.
type Ordered[K any] interface {
	comparable
	encoding.TextMarshaler
	Compare(K) int
}

// Queue holds at most one point in time for each key. The zero value is ready. Only the times
// are state; the heap is derived from them, and the order in which keys fall due is the order of
// (time, key), whatever the order in which they were set.
type Queue[K Ordered[K]] struct {
	times map[K]time.Time
	heap  []entry[K] // may hold entries that times no longer agrees with
}

type entry[K any] struct {
	at  time.Time
	key K
}

// Set makes a key due at a time, instead of when it was due before. The zero time clears it.
func (q *Queue[K]) Set(key K, at time.Time) {
	if at.IsZero() {
		q.Clear(key)
		return
	}
	if old, ok := q.times[key]; ok && old.Equal(at) {
		return
	}
	if q.times == nil {
		q.times = map[K]time.Time{}
	}
	q.times[key] = at
	q.push(entry[K]{at, key})
	if len(q.heap) > 64 && len(q.heap) > 4*len(q.times) {
		q.rebuild()
	}
}

// Clear makes a key never due.
func (q *Queue[K]) Clear(key K) { delete(q.times, key) }

// Next is when the earliest key is due; the zero time if there is none.
func (q *Queue[K]) Next() time.Time {
	for len(q.heap) > 0 {
		if at, ok := q.times[q.heap[0].key]; ok && at.Equal(q.heap[0].at) {
			return at
		}
		q.popHeap()
	}
	return time.Time{}
}

// Pop takes out the earliest key if it is due.
func (q *Queue[K]) Pop(now time.Time) (K, bool) {
	var none K
	at := q.Next()
	if at.IsZero() || at.After(now) {
		return none, false
	}
	key := q.heap[0].key
	q.popHeap()
	delete(q.times, key)
	return key, true
}

// Len is how many keys have a time.
func (q *Queue[K]) Len() int { return len(q.times) }

func (e entry[K]) before(o entry[K], compare func(a, b K) int) bool {
	if !e.at.Equal(o.at) {
		return e.at.Before(o.at)
	}
	return compare(e.key, o.key) < 0
}

func compareKeys[K Ordered[K]](a, b K) int { return a.Compare(b) }

func (q *Queue[K]) push(e entry[K]) {
	q.heap = append(q.heap, e)
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.heap[i].before(q.heap[parent], compareKeys[K]) {
			return
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *Queue[K]) popHeap() {
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	q.sift(0)
}

func (q *Queue[K]) sift(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(q.heap); child++ {
			if q.heap[child].before(q.heap[least], compareKeys[K]) {
				least = child
			}
		}
		if least == i {
			return
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}

func (q *Queue[K]) rebuild() {
	q.heap = q.heap[:0]
	for key, at := range q.times { //ordered: a heap's answers do not depend on how it was filled
		q.heap = append(q.heap, entry[K]{at, key})
	}
	for i := len(q.heap)/2 - 1; i >= 0; i-- {
		q.sift(i)
	}
}

// MarshalJSON writes the times by key.
func (q Queue[K]) MarshalJSON() ([]byte, error) { return json.Marshal(q.times) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (q *Queue[K]) UnmarshalJSON(data []byte) error {
	q.times = nil
	if err := json.Unmarshal(data, &q.times); err != nil {
		return err
	}
	q.rebuild()
	return nil
}

// Later is the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Soonest is the earlier of two times to be called at; the zero time means never.
func Soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Backoff is how long to wait after so many failures in a row: first after one, doubling up to a
// bound.
func Backoff(failures int, first, most time.Duration) time.Duration {
	wait := first
	for n := 1; n < failures && wait < most; n++ {
		wait *= 2
	}
	return min(wait, most)
}

// Retry is how long to wait after so many failures in a row, of which err is the newest: no less
// than the other side has asked for.
func Retry(err *world.Error, failures int, first, most time.Duration) time.Duration {
	return max(Backoff(failures, first, most), err.RetryAfter)
}

// Number is a key that is a number.
type Number uint64

// Compare orders numbers.
func (n Number) Compare(o Number) int { return cmp.Compare(n, o) }

// MarshalText writes the number in decimal.
func (n Number) MarshalText() ([]byte, error) {
	return strconv.AppendUint(nil, uint64(n), 10), nil
}

// UnmarshalText reads a decimal number.
func (n *Number) UnmarshalText(text []byte) error {
	v, err := strconv.ParseUint(string(text), 10, 64)
	*n = Number(v)
	return err
}

// Key is a component of the core and one thing within it, as pod/UID.
type Key struct {
	Component string
	Name      string
}

// Compare orders keys by component, then name.
func (k Key) Compare(o Key) int {
	if c := cmp.Compare(k.Component, o.Component); c != 0 {
		return c
	}
	return cmp.Compare(k.Name, o.Name)
}

// String is component/name.
func (k Key) String() string { return k.Component + "/" + k.Name }

// MarshalText writes component/name.
func (k Key) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads component/name.
func (k *Key) UnmarshalText(text []byte) error {
	component, name, ok := strings.Cut(string(text), "/")
	if !ok {
		return fmt.Errorf("key %q has no slash", text)
	}
	*k = Key{component, name}
	return nil
}
