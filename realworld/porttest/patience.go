package porttest

import (
	"testing"
	"time"

	"seedlet.dev/world/parity"
)

// Patience is the one bound of all waits, parity.Patience.
const Patience = parity.Patience

// BeyondPatience is a time limit that no test waits for: what ends earlier has not waited for it.
const BeyondPatience = 10 * Patience

// pollInterval is the time between two looks at a state that a test waits for.
const pollInterval = 10 * time.Millisecond

// Eventually waits until a condition holds, and fails the test if it does not.
func Eventually(t testing.TB, condition string, holds func() bool) {
	t.Helper()
	for late := time.Now().Add(Patience); !holds(); time.Sleep(pollInterval) {
		if time.Now().After(late) {
			t.Fatalf("not within %v: %s", Patience, condition)
		}
	}
}
