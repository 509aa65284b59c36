package sim

import (
	"slices"
	"testing"

	"seedlet.dev/world"
)

func TestEveryCallCanBeStruck(t *testing.T) {
	calls := 0
	for _, name := range world.BodyNames() {
		body, err := world.ParseBody(name, emptyBody(name))
		if err != nil {
			t.Fatal(err)
		}
		switch portOf(body) {
		case world.PortCRI, world.PortFS, world.PortNetwork, world.PortHost,
			world.PortAPI:
			call := world.Call(body)
			unanswered := call == "Watch" || call == "WatchObjects" ||
				call == "UnwatchObjects" || call == "RecordEvent"
			if calls++; !unanswered && !slices.Contains(strikable, call) {
				t.Errorf("faults cannot strike %s", call)
			}
		}
	}
	if calls < len(strikable) {
		t.Errorf("%d calls can be struck, there are %d", len(strikable), calls)
	}
}

// portOf is the port of an effect; none for what is no effect.
func portOf(body any) (port world.PortName) {
	defer func() { _ = recover() }()
	return world.PortOf(body)
}

// emptyBody is the canonical form of an empty body: nothing in protobuf, an object in JSON.
func emptyBody(name string) []byte {
	if _, err := world.ParseBody(name, nil); err == nil {
		return nil
	}
	return []byte("{}")
}
