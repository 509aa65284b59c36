// Package timer holds points in time by key, as data. Keys become due in an order that depends on
// nothing but the times and the keys. Start reading at Queue.
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

// Ordered is the constraint of a queue's keys: data with a total order and a text form.
type Ordered[K any] interface {
	comparable
	encoding.TextMarshaler
	Compare(K) int
}

// Queue holds at most one point in time for each key. The zero value is ready. Only the times are
// state; the heap is derived from them. Keys become due in the order of (time, key), in whatever
// order they were set.
type Queue[K Ordered[K]] struct {
	times map[K]time.Time
	heap  []entry[K] // may hold entries that differ from times
}

type entry[K any] struct {
	at  time.Time
	key K
}

// Set replaces the time of a key. The zero time clears it.
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

// SetNoLaterThan sets the time of a key, if the key has none or a later one.
func (q *Queue[K]) SetNoLaterThan(key K, at time.Time) {
	if old, ok := q.times[key]; !ok || old.After(at) {
		q.Set(key, at)
	}
}

// Clear removes the time of a key.
func (q *Queue[K]) Clear(key K) { delete(q.times, key) }

// Next returns the earliest time; the zero time if there is none.
func (q *Queue[K]) Next() time.Time {
	for len(q.heap) > 0 {
		if at, ok := q.times[q.heap[0].key]; ok && at.Equal(q.heap[0].at) {
			return at
		}
		q.popHeap()
	}
	return time.Time{}
}

// Pop removes and returns the earliest key if it is due.
func (q *Queue[K]) Pop(now time.Time) (K, bool) {
	key, _, ok := q.PopTime(now)
	return key, ok
}

// PopTime is Pop that returns also since when the key has been due.
func (q *Queue[K]) PopTime(now time.Time) (key K, since time.Time, ok bool) {
	since = q.Next()
	if since.IsZero() || since.After(now) {
		return key, time.Time{}, false
	}
	key = q.heap[0].key
	q.popHeap()
	delete(q.times, key)
	return key, since, true
}

// Len returns the number of keys that have a time.
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

// UnmarshalJSON reads the output of MarshalJSON.
func (q *Queue[K]) UnmarshalJSON(data []byte) error {
	q.times = nil
	if err := json.Unmarshal(data, &q.times); err != nil {
		return err
	}
	q.rebuild()
	return nil
}

// Later returns the later of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Soonest returns the earlier of two wake-up times, where the zero time means never.
func Soonest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// Backoff returns the wait after a number of consecutive failures: initial after the first, twice
// as long after each further one, up to limit.
func Backoff(failures int, initial, limit time.Duration) time.Duration {
	wait := initial
	for n := 1; n < failures && wait < limit; n++ {
		wait *= 2
	}
	return min(wait, limit)
}

// RetryDelay returns the wait after a number of consecutive failures, of which err is the newest.
// It is at least as long as the other side requested (Retry-After).
func RetryDelay(err *world.Error, failures int, initial, limit time.Duration) time.Duration {
	return max(Backoff(failures, initial, limit), err.RetryAfter)
}

// Number is a numeric key.
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

// Key is a component of the core and one item within it, such as pod/UID.
type Key struct {
	Component string
	Name      string
}

// Compare orders keys by component, then by name.
func (k Key) Compare(o Key) int {
	if c := cmp.Compare(k.Component, o.Component); c != 0 {
		return c
	}
	return cmp.Compare(k.Name, o.Name)
}

// String returns component/name.
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
