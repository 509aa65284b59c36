// Package sim runs a plan: the node agent in a simulated world, with oracles that check what
// happens. The packages below it are the parts of that world.
//
//	plan       what happens in a run, as data: scenarios, plans, and the generator of plans
//	faults     which faults apply to a call, and which calls a fault may have affected
//	agenda     the virtual clock and the queue of what is due
//	wire       calls between the agent and a port: latency, faults, deadlines
//	runtime    a container runtime, with the processes in its containers
//	disk       a file system
//	network    the network of pods and the manifest URL
//	host       cgroups and the machine
//	plugins    plugins of the node, which register by sockets
//	csi        CSI drivers
//	scsi       the iSCSI initiator
//	kubelet    the kubelet that had the node before the agent, and what one would do with it after
//	apiserver  an API server
//	truth      the history of what really happened
//	oracle     the invariants that every run has to keep
//	canonical  the canonical encoding of events and effects, and the hash of a run
//	trace      the steps of a run as text
//	shrink     the reduction of a failing plan to a small one
//	rapidplan  plans for property tests with pgregory.net/rapid
//
// Here are the run itself and its actors: the incarnations of the agent, the administrators and
// controllers of the cluster, the clients of the HTTP API, strikes, and the settling after the
// faults.
//
// A run has two phases. In the first the plan's faults, strikes and changes happen, and every
// oracle checks every step (safety). Then the faults heal, and within a bounded virtual time every
// pod must reach the state that its spec demands (liveness).
//
// Contract: a run is a function of its plan. Nothing here reads a clock, starts a goroutine or
// ranges over a map in random order. What is drawn during a run (the latency of a call, the order
// of simultaneous events) is a function of the plan's seed, the entry of the plan that it belongs
// to and the ordinal of the call, so that the removal of one entry changes as little as possible of
// the rest.
//
// A test of your own may use the package as the examples do: scenarios and plans from files, from
// seeds or written in Go, a run, and functions that observe it. It may rely on this:
//
//   - Run changes nothing in its plan, and many goroutines can run plans at once.
//   - The plan decides the whole Verdict. Observers do not change it; of the other Options,
//     ReseedAfter and Until do.
//   - Run returns an error for a plan that is not valid, and only then. A run in which something
//     goes wrong ends with a Failure: its oracle is a name that stays, its message is for people.
//   - Observers are called in the order of virtual time, by the goroutine that called Run. What
//     they are given is valid during the call, and must not be changed.
//   - The Hash of a run is the same on every machine, for one version of this module: a change of
//     the agent or of the simulated world is another run of the same plan.
//
// Start reading at Run in run.go.
package sim
