package main

import "seedlet.dev/world"

// certificates returns the node's certificates that are in use.
func (n *node) certificates() []world.Certificate {
	var all []world.Certificate
	if n.api != nil {
		if at := n.api.identity.NotAfter(); !at.IsZero() {
			all = append(all, world.Certificate{Usage: world.ClientCertificate, NotAfter: at})
		}
	}
	if n.serving != nil {
		if at := n.serving.NotAfter(); !at.IsZero() {
			all = append(all, world.Certificate{Usage: world.ServingCertificate, NotAfter: at})
		}
	}
	return all
}
