package plan

import (
	"slices"
	"testing"

	"seedlet.dev/world"
)

func TestFaultsCanApplyToEveryCall(t *testing.T) {
	calls := 0
	for _, name := range world.BodyNames() {
		body, err := world.ParseBody(name, emptyBody(name))
		if err != nil {
			t.Fatal(err)
		}
		switch portOf(body) {
		case world.PortCRI, world.PortFS, world.PortNetwork, world.PortHost,
			world.PortPlugins, world.PortCSI, world.PortCredentials, world.PortAPI:
			call := world.CallName(body)
			hasNoResponse := call == "Watch" || call == "WatchObjects" ||
				call == "UnwatchObjects" || call == "RecordEvent"
			if calls++; !hasNoResponse && !slices.Contains(faultableCalls, call) {
				t.Errorf("faults cannot apply to %s", call)
			}
		}
	}
	if calls < len(faultableCalls) {
		t.Errorf("faults can apply to %d calls, there are %d", len(faultableCalls), calls)
	}
}

// portOf returns the port of an effect; empty for a body that is not an effect.
func portOf(body any) (port world.PortName) {
	defer func() { _ = recover() }()
	return world.PortOf(body)
}

// emptyBody returns the encoding of an empty body: nothing in protobuf, an empty object in JSON.
func emptyBody(name string) []byte {
	if _, err := world.ParseBody(name, nil); err == nil {
		return nil
	}
	return []byte("{}")
}
