package marks

import (
	"iter"
	"math/bits"
)

// ID is the number of a mark: its index in the catalogue.
type ID int

// Mark is a situation that a run can reach.
type Mark struct {
	Name  string `json:"name"`
	About string `json:"about,omitempty"` // a sentence, of places only
	// Rare marks need more seeds than tests run.
	Rare bool `json:"rare"`
}

// Catalogue returns all marks, by their IDs: the places, then the pairs.
func Catalogue() []Mark {
	var all []Mark
	for i := range places {
		all = append(all, Mark{Name: places[i].name, About: places[i].about, Rare: places[i].rare})
	}
	for _, t := range troubles {
		for _, call := range t.calls {
			all = append(all, Mark{Name: t.name + " " + call, Rare: !t.isExpected(call)})
		}
	}
	return all
}

// Set is a set of marks. The zero Set is empty.
type Set struct{ words []uint64 }

const wordBits = 64

// Add adds a mark.
func (s *Set) Add(id ID) {
	for len(s.words) <= int(id)/wordBits {
		s.words = append(s.words, 0)
	}
	s.words[id/wordBits] |= 1 << (id % wordBits)
}

// Has reports whether the set has a mark.
func (s *Set) Has(id ID) bool {
	return int(id)/wordBits < len(s.words) && s.words[id/wordBits]&(1<<(id%wordBits)) != 0
}

// Len returns the number of marks.
func (s *Set) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// All returns the marks in the order of their IDs.
func (s *Set) All() iter.Seq[ID] {
	return func(yield func(ID) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(ID(i*wordBits + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}
