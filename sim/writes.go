package sim

import (
	"errors"
	"fmt"
	"path"
	"time"

	"seedlet.dev/sim/runtime"
)

// FileWrite is that the processes of a container make a file as large as it says: it grows or
// shrinks.
type FileWrite struct {
	Path string   `json:"path"` // in the container
	At   Duration `json:"at"`   // since the start of the process
	KiB  int      `json:"kiB"`
}

// WriteRange is that a container may do so.
type WriteRange struct {
	Path string `json:"path"`
	At   Span   `json:"at"`
	KiB  Count  `json:"kiB"`
	// Probability is the share of containers that do; a seed may leave such entries out
	// altogether. Absent: all of them do, in every seed.
	Probability *Share `json:"probability,omitempty"`
}

// writes draws what the processes of a container write. Each entry has a stream of its own.
func (d *drawing) writes(pod string, b *BehaviourRange) []FileWrite {
	var drawn []FileWrite
	weight := d.weight("writes", false)
	for i := range b.Writes {
		r, w := d.stream(fmt.Sprintf("writes %s %s %d", pod, b.Container, i)), &b.Writes[i]
		if w.Probability != nil && r.Float64() >= w.Probability.draw(r)*weight {
			continue
		}
		drawn = append(drawn, FileWrite{Path: w.Path, At: Duration(w.At.draw(r)),
			KiB: w.KiB.draw(r)})
	}
	return drawn
}

func (w *FileWrite) validate() error {
	if !path.IsAbs(w.Path) || w.KiB < 0 {
		return errors.New("want an absolute path and 0 or more kiB")
	}
	return nil
}

// script is what one process writes.
func (b *Behaviour) script() []runtime.FileWrite {
	var all []runtime.FileWrite
	for _, w := range b.Writes {
		all = append(all, runtime.FileWrite{Path: w.Path, At: time.Duration(w.At),
			Bytes: int64(w.KiB) << 10})
	}
	return all
}
