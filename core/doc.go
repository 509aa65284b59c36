// Package core is the node agent: one deterministic state machine.
//
// The contract with whoever drives it:
//
//  1. Step(Event) is the only way in, the effects it returns are the only way out, and
//     NextWake says when it wants to be called even if nothing happens.
//  2. The same options and the same events lead to the same effects, bit for bit, on any
//     machine. The time comes from the event, randomness from the seed of the boot event.
//  3. The first event of every life is *world.Boot. Event times never go backwards.
//  4. An effect with an OpID is answered once, by an event with that OpID. Answers that come
//     late, twice or never are expected: an operation whose deadline passes has an unknown
//     outcome, and an answer that nobody waits for is dropped and counted.
//  5. Snapshot writes the whole state as JSON; an agent made by Restore goes on exactly as the
//     original would.
//  6. The agent can be killed between any two effects. It comes up with nothing but what is on
//     the file system and in the runtime, and a restart alone changes nothing that runs.
//  7. Bad input from outside becomes an error, a log line or a condition. A panic means that an
//     invariant of the core itself is broken; it names the component and the event.
//
// The way of an event: Step records what it says (observe), which touches components; each
// touched component is planned once its facts are in; plans hand out effects. Every component is
// the same three things: the facts it keeps, a plan that is a function of them, and the events
// it takes.
//
//	manifest      which static pods are wanted
//	pleg          what the runtime has, by listing it every second
//	pod           one pod: what is wanted of it, what there is, what to do next
//	volume        the volumes of one pod: what there is, what to make next
//	token         the service account tokens that the volumes of a pod hold
//	hostfile      the node's own resolv.conf and hosts
//	image         what pods wait for to be pulled
//	runtime       what the runtime says about itself
//	object        what is watched at the API server
//	status        what the API server is told of pods
//	mirror        the mirrors of static pods there
//	admission     what keeps a pod from the node
//	node          the Node object at the API server
//	lease         the lease by which the cluster knows that the node is alive
//	logs          the logs of running containers, to be rotated, and links to logs that have gone
//	housekeeping  directories that no pod owns any more
//	op            operations in flight, as records
//	timer         points in time, as data
//
// Start reading at Agent.Step, then pod.Pod.Plan.
package core
