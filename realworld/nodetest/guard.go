package nodetest

import "seedlet.dev/realworld/owned"

// guardKind is the kind of a node's guard.
const guardKind = "node"

func init() { owned.BeGuard(guardKind, sweep) }
