package sim

import (
	"time"

	"seedlet.dev/sim/host"
	"seedlet.dev/sim/plan"
)

// shutDown shuts the machine down in order.
func (r *run) shutDown(d *plan.Shutdown) {
	if r.agenda.Now().Before(r.offUntil) {
		return
	}
	r.host.ShutDown(host.Shutdown{OthersFor: time.Duration(d.OthersFor),
		PowerOff: func() { r.rebootMachine(d.Down) }})
	if d.RepeatAfter > 0 {
		r.agenda.After(time.Duration(d.RepeatAfter), r.host.RepeatAnnouncement)
	}
	if d.CancelAfter > 0 {
		r.agenda.After(time.Duration(d.CancelAfter), r.host.CancelShutdown)
	}
}
