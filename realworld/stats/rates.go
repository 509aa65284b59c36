package stats

import "time"

// rates turn totals into rates, from one sample to the next. What is not in a sample is forgotten.
type rates struct {
	last, next map[string]point
}

// point is a total at some time, and the rate at which it had come there.
type point struct {
	at    time.Time
	total uint64
	rate  *uint64 // a second; nil if there was nothing before
}

// of is the rate at which a total has grown since the last sample; nil if it is new, or if it has
// begun anew.
func (r *rates) of(key string, at time.Time, total uint64) *uint64 {
	p := point{at: at, total: total}
	before, known := r.last[key]
	switch {
	case !known || total < before.total:
	case !at.After(before.at):
		p = before // the same sample, seen again
	default:
		grown := float64(total-before.total) / at.Sub(before.at).Seconds()
		rate := uint64(grown)
		p.rate = &rate
	}
	if r.next == nil {
		r.next = map[string]point{}
	}
	r.next[key] = p
	return p.rate
}

// end ends a sample.
func (r *rates) end() { r.last, r.next = r.next, nil }
