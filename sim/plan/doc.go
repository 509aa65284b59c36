// Package plan holds the two file formats of the simulator, Scenario and Plan, and the generator
// that makes a plan of a scenario and a seed.
//
// A Scenario says in ranges what may happen in a run: the pods, how their processes behave, which
// faults, restarts and changes there may be, and how many. A Plan says exactly what happens, and
// when. A plan is data: it can be printed, edited, shrunk and replayed, and it stays valid when the
// generator changes. Package sim runs it.
//
// Contract: Generate is a function of the scenario and the seed. Each concern draws from a random
// stream of its own, named by the concern, so a change of one concern leaves the rest of the plan
// as it was. The names of the streams are part of what a seed means: a renamed stream gives every
// seed another plan.
//
// Each subject is one file with the entry of a plan, the range of a scenario, their validation and
// their generation: pods, behaviours, manifests, images, faults, strikes, anomalies, acts (with the
// actors that perform them) and requests. A new kind of entry also belongs into Spec, Plan.Times
// and Plan.EntryCount, and into the lists of package shrink.
//
// Start reading at Spec in plan.go, then at Generate in generate.go.
package plan
