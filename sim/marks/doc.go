// Package marks watches which interesting situations a run reaches: what an error, a kill or a
// deletion falls together with. Oracles say that nothing went wrong, marks say what was tried.
//
// A mark is of one of two kinds. A pair is a trouble and the call that it meets, as "agent-killed
// during CreateContainer": the simulation derives it from the calls in flight (pairs.go). A place
// is a situation that has a name and a condition of its own, a row of a table (places.go).
//
// Contract: a Watcher sees facts, calls and the plan, and never the agent's state. A run does not
// depend on it. The catalogue is the same for every run, so it shows also what none has reached.
//
// To add a place, add a row to places. Start reading at Catalogue.
package marks
