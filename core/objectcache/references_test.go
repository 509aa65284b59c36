package objectcache

import (
	"slices"
	"testing"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// A user that needs other targets refers to them, and to those before no more. What is read instead
// of watched is planned.
func TestReplaceReferences(t *testing.T) {
	var s Store
	var table op.Table
	var effects op.Effects
	effects.Reset(&table, time.Time{})
	s.Strategy = Strategy{SyncPeriod: time.Minute}
	secret := func(name string) world.WatchTarget {
		return world.WatchTarget{Resource: world.ResourceSecrets, Namespace: "ns", Name: name}
	}
	var planned []string
	enqueue := func(key timer.Key) { planned = append(planned, key.Name) }
	set := func(names ...string) map[world.WatchTarget]bool {
		needed := map[world.WatchTarget]bool{}
		for _, name := range names {
			needed[secret(name)] = true
		}
		return needed
	}
	held := s.ReplaceReferences("u", nil, set("b", "a"), enqueue, &effects)
	if want := []world.WatchTarget{secret("a"), secret("b")}; !slices.Equal(held, want) ||
		!slices.Equal(planned, []string{"secrets/ns/a", "secrets/ns/b"}) {
		t.Errorf("%v, planned %v", held, planned)
	}
	planned = nil
	if again := s.ReplaceReferences("u", held, set("a", "b"), enqueue, &effects); len(planned) > 0 ||
		!slices.Equal(again, held) {
		t.Errorf("%v, planned %v", again, planned)
	}
	held = s.ReplaceReferences("u", held, set("b", "c"), enqueue, &effects)
	if s.HasUser(secret("a"), "u") || !s.HasUser(secret("b"), "u") || !s.HasUser(secret("c"), "u") ||
		!slices.Equal(held, []world.WatchTarget{secret("b"), secret("c")}) {
		t.Errorf("%v", held)
	}
	if held = s.ReplaceReferences("u", held, nil, enqueue, &effects); len(held) > 0 ||
		len(s.Watches) > 0 {
		t.Errorf("%v, %v", held, s.Watches)
	}
}
