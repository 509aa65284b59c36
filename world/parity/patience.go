package parity

import "time"

// Patience bounds every wait of a test for a state that it needs. There is one bound, and it is
// long: a wait takes this long only if the test fails, and a machine may have ten times as much to
// do as it has processors.
const Patience = 3 * time.Minute

// beyondPatience is a time limit or a grace period, in seconds, that no case waits for.
const beyondPatience = 1000
