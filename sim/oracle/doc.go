// Package oracle checks the invariants of a node agent against a simulated run. An oracle is one
// invariant. A set of all of them is fed, in order of time, with the facts of package truth, with
// what the agent's HTTP API served, and with what was desired of the node.
//
// Contract:
//
//  1. Oracles never see the agent's state, only what it did and reported.
//  2. A violation is an action or a report that the invariant forbids under every fault. Being late
//     is no violation under a fault, and a fault that the agent cannot know of is an excuse.
//  3. What may be wrong for a while, but has to be right once no fault applies, is a line of
//     Unsettled; if it never settles, the simulation reports the failure under the name progress.
//  4. An oracle reports its first violation only.
//
// # How an oracle works
//
// The oracles share one model: the true state of the node. Each fact and each served status updates
// the model after the oracles have checked it. Faults make the agent's view differ from the model.
// The model's functions have two prefixes for that. A may… function reports whether the agent can
// have had a reason, given the faults so far. A must… function reports whether the agent has had
// enough time without a fault. Where a may… function reports true, an oracle does not fire: that
// is an excuse. Constants that end in Bound are the times that the agent has without a fault.
//
// # How to add an oracle
//
//  1. A file SUBJECT_NAME.go (pod_eviction.go for eviction) has a type with describe, which
//     returns its name and its invariant. The name is the signature of its failures:
//     shrink.Minimize looks for a smaller plan that fails under the same name. sim/bugs_test.go
//     and `seedsim oracles` have it too.
//  2. The type is a factOracle, a servedOracle or both: checkFact and checkServed return a finding
//     for a violation, made by findingf. The set reports it. A check that is neither, such as that
//     of a response, calls Set.report itself.
//  3. Excuses are looked up in the model: faultPossible and anyFaultPossible for faults and
//     agentUpSince for restarts of the agent (model_excuses.go), wasRemoved and specChanged for
//     pods whose manifest went or changed, and the may… functions.
//  4. What has to be right in the end goes into runtimeProblem, statusProblem or unsettledObjects.
//  5. The function oracles in set.go lists the type. An oracle that needs more of the node takes it
//     from Options, which sim fills in.
//  6. SUBJECT_NAME_test.go has cases that violate the invariant, and cases that are excused
//     (script_test.go says how). A mutant of the core in sim/mutants_test.go shows that a run finds
//     the bug; a row of a real bug goes into sim/bugs_test.go.
//
// # Where to look
//
//	set*.go        the set, its inputs and options, the list of oracles
//	model*.go      the true state: pods, containers, handlers (probes and hooks) and their possible
//	               results, objects of the API server, served statuses
//	container_*.go a container: one-run, init-order, restart-policy, back-off, restart-count,
//	               restart-all, environment, images, ephemeral, logs, termination-message, probes,
//	               readiness, container-config, oom-killed
//	stop_*.go      stopping a container: grace-period, hooks, sidecar-order, needless-stop
//	node_*.go      pods that are evicted for the node, and its pressure conditions: node-pressure
//	               (with model_pressure.go, and the ranking in node_pressure_ranking.go);
//	               what is removed before a pod is evicted for a file system: reclaim; processes
//	               that the kernel ends: system-oom; shutdowns of the machine (with
//	               model_shutdown.go): shutdown; the registration of plugins: plugins
//	pod_*.go       a pod on the node: admission, preemption, eviction, active-deadline, pod-cost,
//	               terminal-phase, full-name, uid-reuse, set-aside, cgroups, tiers, user-namespaces,
//	               pod-directories, volumes, sandbox-config, sandbox-rate, resize,
//	               resize-admission, resize-records, pod-certificates (with model_certificates.go)
//	volume_*.go    content from the API server: volume-content, volume-staleness,
//	               volume-read-only, ephemeral-claims; devices of block volumes: devices; disks of
//	               a network: disks
//	csi_*.go       volumes of CSI drivers, with model_csi.go: csi-volumes, csi-data, csi-order,
//	               csi-calls, csi-release, csi-stats, csi-expand, csi-content,
//	               csi-republish
//	api_*.go       writes to the API server: api-terminal-phase, api-terminal-stopped,
//	               api-identity, api-deletion, transitions, dates, heartbeat, events,
//	               container-states, pod-ips
//	node_object.go  the Node: node-object
//	kubelet.go     names and paths that the agent has to use as the kubelet does
//	runtime_ready.go what is asked of a runtime that is not ready: runtime-ready
//	image_gc.go    which images are removed: image-gc
//	container_gc.go  Events of the collection of containers: container-gc
//	take_over.go   what an agent leaves as it is that a kubelet has left: nothing-changes
//	isolation.go   ordinary pods beside hostile ones, at any time: isolation
//	strict.go      excuses without a cause: strict
//	storage_reads.go  how often objects of storage are read: storage-reads
//	economy.go     writes and calls without a reason: economy
//	agent_*.go     the agent's own server: health, http-api
//	progress*.go   what has to be right in the end, also that dead containers are removed: progress
//
// Start reading at Set, then stop_grace_period.go as an example of an oracle, then progress.go.
package oracle
