package sim

import (
	"cmp"

	"seedlet.dev/sim/plan"
	"seedlet.dev/world"
)

// serveDriver starts or ends the node service of a plugin that is a CSI driver. One of which the
// plan does not say what it can do has no volumes.
func (r *run) serveDriver(socket string, plugin *plan.PluginChange, hasEnded bool) {
	endpoint := cmp.Or(plugin.Endpoint, socket)
	switch {
	case plugin.Type != world.PluginTypeCSI:
	case hasEnded:
		r.drivers.Stop(endpoint)
	default:
		r.drivers.Start(plugin.Name, endpoint, cmp.Or(plugin.Driver, &plan.CSIDriver{}))
	}
}
