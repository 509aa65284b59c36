// Package verify finds out whether a plan has one run only: whether a second run of it, and one in
// which the agent is replaced by its restored snapshot after every event, have the same events,
// effects, facts and verdict. If not, it names the first event that differs, the restore that it
// takes, and the fields of the agent's state that differ then.
//
// Start reading at Run.
package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
)

// Result is what two runs, and one with restores, have shown.
type Result struct {
	Verdict *sim.Verdict // of the first run
	Events  uint64
	// Divergence is nil if all runs are the same.
	Divergence *Divergence
}

// Divergence is the first difference between two runs of a plan.
type Divergence struct {
	// Event is the first event that differs; zero if only the verdicts or later facts do.
	Event uint64
	// With says how the other run was made.
	With string
	// State has the fields of the agent's state that differ after the event, a line each.
	State []string
	// Facts are the first facts that differ, if the events and effects are the same.
	Facts []string
}

// Run verifies a plan. Progress, which may be nil, is called at the start of each run with a word
// for it.
func Run(ctx context.Context, p *plan.Plan, progress func(string)) (*Result, error) {
	v := &verifier{ctx: ctx, plan: p, progress: progress, run: sim.Run}
	return v.verify()
}

func (v *verifier) verify() (*Result, error) {
	first, err := v.record("first run", sim.Options{})
	if err != nil {
		return nil, err
	}
	v.first = first
	result := &Result{Verdict: first.verdict, Events: first.verdict.Events}
	second, err := v.record("second run", sim.Options{})
	if err != nil {
		return nil, err
	}
	if result.Divergence, err = v.compare(second, "a second run", sim.Options{}); err != nil ||
		result.Divergence != nil {
		return result, err
	}
	result.Divergence, err = v.restores()
	return result, err
}

// verifier holds the first run, which the others are compared with.
type verifier struct {
	ctx      context.Context
	plan     *plan.Plan
	progress func(string)
	run      func(*plan.Plan, sim.Options) (*sim.Verdict, error)
	first    *recording
}

// recording is one run: the hash after each event, and the hash of each fact with the number of
// events before it.
type recording struct {
	verdict *sim.Verdict
	hashes  []uint64
	facts   []fact
}

type fact struct{ hash, event uint64 }

func (v *verifier) record(name string, opts sim.Options) (*recording, error) {
	if v.progress != nil {
		v.progress(name)
	}
	if err := v.ctx.Err(); err != nil {
		return nil, err
	}
	r := &recording{}
	opts.Watch = func(s sim.Step) { r.hashes = append(r.hashes, s.Hash) }
	opts.WatchFact = func(f truth.Fact) {
		r.facts = append(r.facts, fact{factHash(&f), uint64(len(r.hashes))})
	}
	var err error
	r.verdict, err = v.run(v.plan, opts)
	return r, err
}

func factHash(f *truth.Fact) uint64 {
	h := fnv.New64a()
	h.Write([]byte(factText(f)))
	return h.Sum64()
}

// factText returns everything that a fact says.
func factText(f *truth.Fact) string {
	text, err := json.Marshal(f)
	if err != nil {
		panic("verify: a fact has no text: " + err.Error())
	}
	return string(text)
}

// compare returns how a run differs from the first one; nil if it does not.
func (v *verifier) compare(other *recording, with string, opts sim.Options) (*Divergence, error) {
	for i := range min(len(v.first.hashes), len(other.hashes)) {
		if v.first.hashes[i] != other.hashes[i] {
			return v.divergence(uint64(i+1), with, opts)
		}
	}
	if a, b := len(v.first.hashes), len(other.hashes); a != b {
		return v.divergence(uint64(min(a, b)), with, opts)
	}
	for i := range max(len(v.first.facts), len(other.facts)) {
		if i >= min(len(v.first.facts), len(other.facts)) || v.first.facts[i] != other.facts[i] {
			return v.factDivergence(i, with, opts)
		}
	}
	if !reflect.DeepEqual(v.first.verdict, other.verdict) {
		return &Divergence{With: with, State: []string{fmt.Sprintf("the verdict: %+v, then %+v",
			*v.first.verdict, *other.verdict)}}, nil
	}
	return nil, nil
}

// divergence describes the difference of the agent's state after an event.
func (v *verifier) divergence(event uint64, with string, opts sim.Options) (*Divergence, error) {
	d := &Divergence{Event: event, With: with}
	var states [2]any
	for i, opts := range []sim.Options{{}, opts} {
		opts.Until = event
		verdict, err := v.run(v.plan, opts)
		if err != nil {
			return nil, err
		}
		if verdict.State == nil {
			continue
		}
		if err := json.Unmarshal(verdict.State, &states[i]); err != nil {
			return nil, fmt.Errorf("the state after event %d: %w", event, err)
		}
	}
	d.State = Differences(states[0], states[1])
	return d, nil
}

// factDivergence describes the first fact that differs, with both versions of it.
func (v *verifier) factDivergence(index int, with string, opts sim.Options) (*Divergence, error) {
	d := &Divergence{With: with}
	for _, opts := range []sim.Options{{}, opts} {
		text, count := "none", 0
		opts.WatchFact = func(f truth.Fact) {
			if count == index {
				text = factText(&f)
			}
			count++
		}
		if _, err := v.run(v.plan, opts); err != nil {
			return nil, err
		}
		d.Facts = append(d.Facts, text)
	}
	return d, nil
}

// restores compares the first run with one in which the agent is restored after every event. If
// they differ, it looks for the fewest restores that make a difference.
func (v *verifier) restores() (*Divergence, error) {
	after := func(from, to uint64) sim.Options {
		return sim.Options{RestoreAfter: func(event uint64) bool { return from <= event && event <= to }}
	}
	from, to := uint64(1), v.first.verdict.Events
	all, err := v.record("run with restores", after(from, to))
	if err != nil {
		return nil, err
	}
	found, err := v.compare(all, "a restore after every event", after(from, to))
	if found == nil || err != nil {
		return nil, err
	}
	if found.Event > 0 {
		to = found.Event // what came later has made no difference
	}
	for from < to {
		middle := from + (to-from)/2
		half, with := after(middle+1, to), fmt.Sprintf("restores after events %d to %d", middle+1, to)
		next, err := v.half(half, with)
		if err != nil {
			return found, stopped(err)
		}
		if next != nil {
			found, from = next, middle+1
			continue
		}
		half, with = after(from, middle), fmt.Sprintf("restores after events %d to %d", from, middle)
		if next, err = v.half(half, with); err != nil {
			return found, stopped(err)
		}
		if next == nil {
			return found, nil // only both halves together make a difference
		}
		found, to = next, middle
	}
	found.With = fmt.Sprintf("a restore after event %d", from)
	return found, nil
}

// half compares the first run with one that has fewer restores.
func (v *verifier) half(opts sim.Options, with string) (*Divergence, error) {
	other, err := v.record("run with "+with, opts)
	if err != nil {
		return nil, err
	}
	return v.compare(other, with, opts)
}

// stopped returns no error if the search for the fewest restores was interrupted: what was found by
// then is true.
func stopped(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
