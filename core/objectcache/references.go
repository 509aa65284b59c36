package objectcache

import (
	"cmp"
	"maps"
	"slices"

	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Refer adds a user of a target, as AddReference does, and plans the target if it is read instead
// of watched.
func (s *Store) Refer(target world.WatchTarget, user string, enqueue func(timer.Key),
	effects Effects) bool {
	if !s.AddReference(target, user, effects) {
		return false
	}
	if key, isRead := s.ReadKey(target); isRead {
		enqueue(key)
	}
	return true
}

// ReplaceReferences has a user refer to the needed targets instead of those before, and returns
// those to which it refers, sorted. Targets for which there are too many watches are left out, and
// tried again with the next call.
func (s *Store) ReplaceReferences(user string, before []world.WatchTarget,
	needed map[world.WatchTarget]bool, enqueue func(timer.Key),
	effects Effects) (referred []world.WatchTarget) {
	isObsolete := func(t world.WatchTarget) bool { return !needed[t] }
	if len(needed) == len(before) && !slices.ContainsFunc(before, isObsolete) {
		return before
	}
	for _, target := range slices.SortedFunc(maps.Keys(needed), func(x, y world.WatchTarget) int {
		return cmp.Compare(Key(x), Key(y))
	}) {
		if s.Refer(target, user, enqueue, effects) {
			referred = append(referred, target)
		}
	}
	for _, target := range before {
		if isObsolete(target) {
			s.DeleteReference(target, user, effects)
		}
	}
	return referred
}
