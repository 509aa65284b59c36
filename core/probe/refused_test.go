package probe

import (
	"testing"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// A probe that was not issued says nothing about the container.
func TestRefusedProbe(t *testing.T) {
	for _, call := range []string{"ExecSync", "HTTPGet", "TCPConnect", "GRPCCheck"} {
		result, message := Interpret(op.Record{Call: call, Refused: true},
			world.Event{Err: world.Errorf(world.KindExhausted, call, "too many")})
		if result != Unknown || message != "" {
			t.Errorf("%s: %v, %q", call, result, message)
		}
	}
}
