// Package cleanup creates and removes the resources that a test or a tool needs outside its own
// process: daemons, a bridge, files. All resources belong to one directory and can be found by it,
// from any process and at any time, so that they can be removed even if their owner has died.
//
// The contract:
//
//  1. A daemon has the directory in its arguments; a bridge has a name derived from it. The owner
//     of a directory identifies further resources with a function.
//  2. Sweep finds and removes resources until there are none. It may be run at any time and
//     repeatedly.
//  3. A Guard is a process that sweeps when the process that started it dies for any reason.
//
// Start reading at Sweep and at guard.go.
package cleanup

import (
	"fmt"
	"strings"
	"time"
)

// sweepMax bounds a sweep, after which it reports the resources that could not be removed.
const sweepMax = 2 * time.Minute

// Leftovers are the existing resources of a directory.
type Leftovers interface {
	Lines() []string // one for each process, file and so on; empty if there are none
	Remove() error   // removes as many as possible in one pass
}

// Sweep removes the resources that find returns, until there are none. Each pass calls find again,
// because one removal makes others possible and processes take time to end.
func Sweep(find func() (Leftovers, error)) error {
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
