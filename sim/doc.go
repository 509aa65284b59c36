// Package sim runs the node agent in a simulated world, from a seed, and judges what happened.
//
// A run is (scenario, seed) → Plan → Verdict. A Scenario says in ranges what may happen; Draw
// makes of it a Plan, which says exactly what will; Run carries the plan out and asks the oracles
// of package oracle about it. A plan is a file: it can be printed, edited, shrunk and replayed.
//
// Contract: a run is a function of its plan. Nothing here reads a clock, starts a goroutine or
// walks a map out of order, and what is drawn while a run lasts (the latency of a call, who comes
// first) is a function of the plan's seed, the entry of the plan it belongs to and the ordinal of
// the call, so that taking one entry out of a plan changes as little as possible of the rest.
//
// Start reading at Run in run.go; then plan.go for what can happen, and draw.go for how it is
// drawn.
package sim
