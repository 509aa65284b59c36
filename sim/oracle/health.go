package oracle

import (
	"fmt"
	"time"
)

// health fires when the agent says that it is well although it has not seen what the runtime has
// for longer than the kubelet's threshold: only lists that succeeded count (upstream #93886).
type health struct{}

func (*health) entry() Entry {
	return Entry{"health", "The agent says that it is well only if the runtime has lately told " +
		"it what it has."}
}

// The kubelet's thresholds; with events, and three more minutes after the stream broke.
const (
	unseenMax        = 3 * time.Minute
	unseenMaxEvented = 13 * time.Minute
)

// Listed says that the agent was told all sandboxes, or all containers.
func (p *Panel) Listed(now time.Time, containers bool) {
	if containers {
		p.world.containersTold = now
	} else {
		p.world.sandboxesTold = now
	}
}

// Well says that the agent was asked whether it is well, and said that it is.
func (p *Panel) Well(now time.Time) {
	w := p.world
	seen := w.containersTold
	if w.sandboxesTold.Before(seen) {
		seen = w.sandboxesTold
	}
	seen = later(seen, w.started)
	most := unseenMax
	if w.opts.Evented {
		most = unseenMaxEvented
	}
	if unseen := now.Sub(seen); unseen > most {
		p.found(&health{}, &finding{message: fmt.Sprintf("the agent says that it is well, but "+
			"was last told everything %v ago", unseen.Round(time.Second))}, now)
	}
}
