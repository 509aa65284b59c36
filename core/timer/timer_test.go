package timer

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"seedlet.dev/world"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A queue returns the earliest (time, key) first, in whatever order keys were set and cleared, and
// also after a round trip through JSON.
func TestQueueAgainstAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q Queue[Number]
		model := map[Number]time.Time{}
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				key := Number(rapid.Uint64Range(0, 20).Draw(t, "key"))
				at := t0.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "at")) * time.Second)
				q.Set(key, at)
				model[key] = at
			},
			"clear": func(t *rapid.T) {
				key := Number(rapid.Uint64Range(0, 20).Draw(t, "key"))
				q.Set(key, time.Time{})
				delete(model, key)
			},
			"pop": func(t *rapid.T) {
				now := t0.Add(time.Duration(rapid.IntRange(0, 9).Draw(t, "now")) * time.Second)
				got, ok := q.Pop(now)
				want, any := earliestKey(model, now)
				if ok != any || got != want {
					t.Fatalf("popped %v, %v; want %v, %v", got, ok, want, any)
				}
				if any {
					delete(model, want)
				}
			},
			"restore": func(t *rapid.T) {
				data, err := json.Marshal(q)
				if err != nil {
					t.Fatal(err)
				}
				q = Queue[Number]{}
				if err := json.Unmarshal(data, &q); err != nil {
					t.Fatal(err)
				}
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) {
					t.Fatalf("%d keys, want %d", q.Len(), len(model))
				}
			},
		})
	})
}

func earliestKey(model map[Number]time.Time, now time.Time) (Number, bool) {
	var best Number
	found := false
	for key, at := range model {
		if at.After(now) {
			continue
		}
		if !found || at.Before(model[best]) || at.Equal(model[best]) && key < best {
			best, found = key, true
		}
	}
	return best, found
}

func TestKeyText(t *testing.T) {
	key := Key{"image", "registry.example/a/b:1"}
	text, _ := key.MarshalText()
	var back Key
	if err := back.UnmarshalText(text); err != nil || back != key {
		t.Errorf("%q came back as %v, %v", text, back, err)
	}
	if err := back.UnmarshalText([]byte("no slash")); err == nil {
		t.Error("a key without a component was accepted")
	}
}

func TestBackoff(t *testing.T) {
	const first, most = time.Second, 5 * time.Second
	for failures, want := range []time.Duration{1, 1, 2, 4, 5, 5} {
		if got := Backoff(failures, first, most); got != want*time.Second {
			t.Errorf("after %d failures %v, want %v", failures, got, want*time.Second)
		}
	}
	if got := Backoff(1<<30, first, most); got != most {
		t.Errorf("after very many failures %v", got)
	}
}

func TestRetryDelayHonoursRetryAfter(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: 2, 1: 2, 3: 3, 60: 60} {
		err := &world.Error{Kind: world.KindThrottled, RetryAfter: asked * time.Second}
		if got := RetryDelay(err, 2, time.Second, 5*time.Second); got != want*time.Second {
			t.Errorf("asked for %d s: %v", asked, got)
		}
	}
}

// SetNoLaterThan leaves a key its place if it is due earlier.
func TestSetNoLaterThan(t *testing.T) {
	var q Queue[Key]
	key, at := Key{Component: "a"}, time.Unix(100, 0)
	for _, step := range []struct{ set, want time.Time }{
		{at, at}, {at.Add(time.Second), at}, {at.Add(-time.Second), at.Add(-time.Second)},
	} {
		if q.SetNoLaterThan(key, step.set); !q.Next().Equal(step.want) || q.Len() != 1 {
			t.Errorf("set to %v: due at %v, want %v", step.set, q.Next(), step.want)
		}
	}
}
