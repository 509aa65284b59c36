package oracle

import (
	"fmt"

	"seedlet.dev/sim/truth"
)

// directories fires when the agent removes a pod's directory under its processes (upstream
// #113979, #120150). Of a pod that is back, an old removal that comes late is the disk's doing.
type directories struct{}

func (*directories) entry() Entry {
	return Entry{"directories", "A pod's directories stay as long as a process of it runs."}
}

func (*directories) fact(w *world, f *truth.Fact) *finding {
	if f.Kind != truth.PathRemoved || f.Cause != "" {
		return nil
	}
	p, dir := w.ownerOf(f.Path)
	if p == nil || dir != f.Path || p.live == 0 || p.loose() && p.wishes > 1 {
		return nil
	}
	return &finding{message: fmt.Sprintf("%s was removed while %s runs", dir, p.anyLive())}
}
