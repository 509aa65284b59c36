package stats

import "time"

// rates computes rates of counters from one sample to the next. A counter that a sample lacks is
// dropped.
type rates struct {
	last, next map[string]point
}

// point is the value of a counter at a time, and its rate until then.
type point struct {
	at    time.Time
	total uint64
	rate  *uint64 // per second; nil for the first point
}

// rate returns the rate of a counter since the last sample; nil if the counter is new or was reset.
func (r *rates) rate(key string, at time.Time, total uint64) *uint64 {
	p := point{at: at, total: total}
	before, known := r.last[key]
	switch {
	case !known || total < before.total:
	case !at.After(before.at):
		p = before // the same sample again
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

// rotate ends a sample.
func (r *rates) rotate() { r.last, r.next = r.next, nil }
