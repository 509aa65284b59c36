package main

import (
	"time"

	"seedlet.dev/realworld/portmetrics"
)

// newMetrics returns the metrics that the ports record.
func (n *node) newMetrics(s settings) *portmetrics.Metrics {
	options := portmetrics.Options{Version: version}
	if s.api.kubeconfig != "" {
		options.ClientExpiry = func() time.Time {
			if n.api == nil {
				return time.Time{}
			}
			return n.api.identity.Expiry()
		}
	}
	return portmetrics.New(options)
}
