// Package fuzz searches for plans that reach rare situations, and for failures in them: it draws
// new seeds of all scenarios, more of those that reach marks which few runs reach, and mutates the
// plans that have reached such marks.
//
// Contract: a draw is a function of the corpus. The corpus changes by Merge only, with the results
// of a round in the order of its draws, so a search does not depend on how many runs are made at
// once. A corpus that was read from its file goes on where that one was.
//
// Start reading at Corpus.Draw.
package fuzz

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"seedlet.dev/sim"
	"seedlet.dev/sim/marks"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/wire"
)

// Version is that of the format of a corpus file, and of what its entries mean.
const Version = 1

// Corpus is what a search has found so far.
type Corpus struct {
	Version   int                      `json:"version"`
	From      uint64                   `json:"from"` // the first seed of each scenario
	Rounds    uint64                   `json:"rounds"`
	Scenarios map[string]*ScenarioRuns `json:"scenarios"`
	// Marks is how many runs have reached each mark, by name.
	Marks map[string]int `json:"marks"`
	// Entries are the draws that have reached a mark which few had reached before, oldest first.
	Entries []*Entry `json:"entries"`
	// Failures are those that were found, by signature.
	Failures map[string]*Failure `json:"failures"`
}

// ScenarioRuns are the runs of a scenario.
type ScenarioRuns struct {
	NextSeed uint64 `json:"nextSeed"`
	Runs     int    `json:"runs"`
	Entries  int    `json:"entries"` // that began with a new seed of it
}

// Entry is a draw that is worth mutating.
type Entry struct {
	Draw
	Marks   []string `json:"marks"`   // that few runs had reached
	Mutated int      `json:"mutated"` // how often it was
}

// Draw names one plan: that of a seed of a scenario, mutated by a number of streams of random
// numbers, one after another.
type Draw struct {
	Scenario  string   `json:"scenario"`
	Seed      uint64   `json:"seed"`
	Mutations []uint64 `json:"mutations,omitempty"`
}

// String returns the draw as text.
func (d Draw) String() string {
	text := fmt.Sprintf("%s seed %d", d.Scenario, d.Seed)
	if len(d.Mutations) > 0 {
		text += fmt.Sprintf(" mutated by %d", d.Mutations)
	}
	return text
}

// Failure is a failure and how often runs have ended with it.
type Failure struct {
	Draw
	Message string `json:"message"`
	Runs    int    `json:"runs"`
}

// Result is the outcome of a draw.
type Result struct {
	Draw
	Verdict   *sim.Verdict
	Signature string // of the failure; empty for none
}

// The bounds of a search.
const (
	fewRuns      = 8   // a mark that at most so many runs have reached makes an entry
	entriesMax   = 500 // of which those with the least weight are dropped
	mutationsMax = 6   // of one plan
)

// New returns the corpus of a search that begins with a seed.
func New(from uint64) *Corpus {
	return &Corpus{Version: Version, From: from, Scenarios: map[string]*ScenarioRuns{},
		Marks: map[string]int{}, Failures: map[string]*Failure{}}
}

// Parse reads a corpus file.
func Parse(file string, data []byte) (*Corpus, error) {
	var header struct{ Version int }
	if err := json.Unmarshal(data, &header); err != nil {
		return nil, fmt.Errorf("%s: not a corpus: %w", file, err)
	}
	if header.Version != Version {
		return nil, fmt.Errorf("%s: version: want %d, have %d: use another folder", file, Version,
			header.Version)
	}
	c := New(0)
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(c); err != nil {
		return nil, fmt.Errorf("%s: not a corpus: %w", file, err)
	}
	return c, nil
}

// JSON returns the corpus as the file that Parse reads.
func (c *Corpus) JSON() []byte {
	data, err := json.MarshalIndent(c, "", " ")
	if err != nil {
		panic("fuzz: cannot encode a corpus: " + err.Error())
	}
	return append(data, '\n')
}

// Draw returns the draws of the next round. Half of them are new seeds.
func (c *Corpus) Draw(scenarios []*plan.Scenario, n int) []Draw {
	r := wire.Stream(c.From, fmt.Sprint("round ", c.Rounds))
	var draws []Draw
	next := map[string]uint64{}
	for range n {
		if e := c.drawEntry(r, scenarios); e != nil && r.IntN(2) == 0 {
			draws = append(draws, Draw{e.Scenario, e.Seed, append(slices.Clone(e.Mutations), r.Uint64())})
			continue
		}
		name := c.drawScenario(r, scenarios)
		if _, drawn := next[name]; !drawn {
			next[name] = c.scenario(name).NextSeed
		}
		draws = append(draws, Draw{Scenario: name, Seed: next[name]})
		next[name]++
	}
	return draws
}

// drawEntry draws an entry by its weight; nil if there is none of these scenarios.
func (c *Corpus) drawEntry(r *rand.Rand, scenarios []*plan.Scenario) *Entry {
	entries := slices.DeleteFunc(slices.Clone(c.Entries), func(e *Entry) bool {
		return len(e.Mutations) >= mutationsMax || scenarioNamed(scenarios, e.Scenario) == nil
	})
	i := drawIndex(r, entries, c.weight)
	if i < 0 {
		return nil
	}
	return entries[i]
}

// weight is how much an entry is favoured: by the rarity of its marks, and less with each mutation.
func (c *Corpus) weight(e *Entry) float64 {
	sum := 0.0
	for _, name := range e.Marks {
		sum += 1 / float64(max(c.Marks[name], 1))
	}
	return sum / float64(1+e.Mutated)
}

// drawScenario draws a scenario: a quarter of the time any, otherwise by how many of its new seeds
// have made an entry.
func (c *Corpus) drawScenario(r *rand.Rand, scenarios []*plan.Scenario) string {
	if r.IntN(4) == 0 {
		return scenarios[r.IntN(len(scenarios))].Metadata.Name
	}
	i := drawIndex(r, scenarios, func(s *plan.Scenario) float64 {
		runs := c.scenario(s.Metadata.Name)
		return float64(1+runs.Entries) / float64(1+runs.Runs)
	})
	return scenarios[i].Metadata.Name
}

// drawIndex draws one of a list by weight; -1 if the list is empty.
func drawIndex[T any](r *rand.Rand, list []T, weight func(T) float64) int {
	sum := 0.0
	for _, one := range list {
		sum += weight(one)
	}
	left := float64(r.Float64() * sum)
	for i, one := range list {
		if left -= weight(one); left < 0 {
			return i
		}
	}
	return len(list) - 1
}

func (c *Corpus) scenario(name string) *ScenarioRuns {
	s := c.Scenarios[name]
	if s == nil {
		s = &ScenarioRuns{NextSeed: c.From}
		c.Scenarios[name] = s
	}
	return s
}

func scenarioNamed(scenarios []*plan.Scenario, name string) *plan.Scenario {
	i := slices.IndexFunc(scenarios, func(s *plan.Scenario) bool { return s.Metadata.Name == name })
	if i < 0 {
		return nil
	}
	return scenarios[i]
}

// Merge ends a round with the results of its first draws, in their order. It returns the results
// with a failure that was not known.
func (c *Corpus) Merge(results []Result) (found []Result) {
	c.Rounds++
	catalogue := marks.Catalogue()
	for _, r := range results {
		runs := c.scenario(r.Scenario)
		runs.Runs++
		isNew := len(r.Mutations) == 0
		if isNew {
			runs.NextSeed = max(runs.NextSeed, r.Seed+1)
		} else {
			c.noteMutation(r.Draw)
		}
		var few []string
		for id := range r.Verdict.Marks.All() {
			name := catalogue[id].Name
			if c.Marks[name]++; c.Marks[name] <= fewRuns {
				few = append(few, name)
			}
		}
		if len(few) > 0 {
			c.Entries = append(c.Entries, &Entry{Draw: r.Draw, Marks: few})
			if isNew {
				runs.Entries++
			}
		}
		if r.Signature == "" {
			continue
		}
		known := c.Failures[r.Signature]
		if known == nil {
			known = &Failure{Draw: r.Draw, Message: r.Verdict.Failure.Message}
			c.Failures[r.Signature] = known
			found = append(found, r)
		}
		known.Runs++
	}
	if over := len(c.Entries) - entriesMax; over > 0 {
		byWeight := slices.Clone(c.Entries)
		slices.SortStableFunc(byWeight, func(a, b *Entry) int {
			return cmp.Compare(c.weight(a), c.weight(b))
		})
		c.Entries = slices.DeleteFunc(c.Entries, func(e *Entry) bool {
			return slices.Contains(byWeight[:over], e)
		})
	}
	return found
}

// noteMutation counts a mutation for the entry that was mutated.
func (c *Corpus) noteMutation(d Draw) {
	before := d.Mutations[:len(d.Mutations)-1]
	for _, e := range c.Entries {
		if e.Scenario == d.Scenario && e.Seed == d.Seed && slices.Equal(e.Mutations, before) {
			e.Mutated++
		}
	}
}

// Runs returns how many runs there were.
func (c *Corpus) Runs() int {
	sum := 0
	for _, s := range c.Scenarios { //ordered: a sum
		sum += s.Runs
	}
	return sum
}

// Plan returns the plan of a draw.
func (d Draw) Plan(scenarios []*plan.Scenario) (*plan.Plan, error) {
	s := scenarioNamed(scenarios, d.Scenario)
	if s == nil {
		return nil, fmt.Errorf("there is no scenario %q", d.Scenario)
	}
	p, err := plan.Generate(s, d.Seed)
	if err != nil {
		return nil, err
	}
	for _, seed := range d.Mutations {
		if p, err = mutate(p, s, seed); err != nil {
			return nil, err
		}
	}
	if len(d.Mutations) > 0 {
		p.Metadata.Name = strings.NewReplacer(" ", "-", "[", "", "]", "").Replace(d.String())
	}
	return p, nil
}

// short is a time in which two happenings meet the same operation.
const short = 200 * time.Millisecond
