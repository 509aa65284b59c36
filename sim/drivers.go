package sim

import (
	"cmp"

	"seedlet.dev/sim/plan"
)

// serveDriver starts or ends the node service of a plugin that is a CSI driver.
func (r *run) serveDriver(socket string, plugin *plan.PluginChange, hasEnded bool) {
	endpoint := cmp.Or(plugin.Endpoint, socket)
	switch {
	case plugin.Driver == nil:
	case hasEnded:
		r.drivers.Stop(endpoint)
	default:
		r.drivers.Start(plugin.Name, endpoint, plugin.Driver)
	}
}
