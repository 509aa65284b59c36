// Package owned is about what a test or a tool starts outside its own process: daemons, a bridge,
// files. All of it belongs to one directory and can be found by it, from any process and at any
// time, so that it can be removed even when nobody remembers having made it.
//
// The contract:
//
//  1. A daemon names the directory in its arguments; a bridge's name is made from it. Whoever
//     owns the directory says with a function what else is theirs.
//  2. Sweep looks and removes until nothing is found. It may be run at any time and again.
//  3. A Guard is a process that sweeps when the process that started it dies, in whatever way.
//
// Start reading at Sweep and at guard.go.
package owned

import (
	"fmt"
	"strings"
	"time"
)

// sweepMax is how long a sweep tries before it reports what would not go away.
const sweepMax = 10 * time.Second

// Remains are what is still there of what belongs to a directory.
type Remains interface {
	Lines() []string // one for each process, file and so on; empty when nothing is left
	Remove() error   // takes away as much as can be in one round
}

// Sweep removes what find finds, until it finds nothing. Each round looks anew, because one
// removal makes others possible and processes take time to end.
func Sweep(find func() (Remains, error)) error {
	deadline := time.Now().Add(sweepMax)
	for {
		r, err := find()
		if err != nil {
			return err
		}
		lines := r.Lines()
		if len(lines) == 0 {
			return nil
		}
		problem := r.Remove()
		if time.Now().After(deadline) {
			return fmt.Errorf("still there: %s: %w", strings.Join(lines, "; "), problem)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
