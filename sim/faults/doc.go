// Package faults injects the faults of a plan into the calls between the agent and its ports, and
// tells the oracles which calls a fault may have affected.
//
// Contract: a decision is a function of the plan's seed, the fault window, and the wire.CallID, so
// that removing one window from a plan leaves the decisions of all others as they were. Oracles see
// what reached a port, but not what was lost on the way: an excuse is a reason not to expect a
// call's effect, and it covers every call that a fault may have affected.
//
// A fault is injected in one of two places. Faults of single calls are decided by Injector.Decide.
// Faults of a whole port, as a full disk or an API server that is down, are switched on and off by
// package sim (strikes.go). Start reading at Injector.Decide.
package faults
