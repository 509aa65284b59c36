package nodetest

import "seedlet.dev/realworld/cleanup"

// guardKind is the kind of a node's guard process.
const guardKind = "node"

func init() { cleanup.RunGuard(guardKind, sweep) }
