package main

import (
	"time"

	"seedlet.dev/realworld/measure"
)

// measured makes the numbers that the ports measure.
func (n *node) measured(s settings) *measure.Numbers {
	options := measure.Options{Version: version}
	if s.api.kubeconfig != "" {
		options.ClientExpiry = func() time.Time {
			if n.api == nil {
				return time.Time{}
			}
			return n.api.identity.Expiry()
		}
	}
	return measure.New(options)
}
