// Package core is the node agent: one deterministic state machine. An event goes in, the state
// changes, effects come out. The caller owns time, the network, the disk and the container
// runtime: world/loop and realworld in production, sim in the simulator.
//
// # The contract with the caller
//
//  1. Step(Event) is the only input and the effects that it returns are the only output. NextWake
//     returns when Step is to be called even if no event arrives.
//  2. The same options and the same events lead to the same effects, bit for bit, on any machine.
//     The time comes from the events, randomness from the seed in the boot event.
//  3. The first event of every run of the agent is *world.Boot, and no other event is. Event times
//     never go backwards.
//  4. An effect with an OpID starts an operation. Its completion is one event with that OpID.
//     Completions may be late, duplicated or missing: an operation whose deadline passes is
//     completed with a timeout, so its outcome is unknown, and a completion of an operation that is
//     no longer in flight is dropped and counted. An effect without an OpID has no completion. An
//     operation over a bound is no effect; it is completed with KindExhausted in a later Step.
//  5. Snapshot returns the whole state as JSON. An agent made by Restore behaves exactly as the
//     original would.
//  6. The agent may be killed between any two effects. The next agent starts with nothing but what
//     is on the file system and in the runtime. A restart of the agent alone changes nothing that
//     runs.
//  7. Invalid input from outside becomes an error, a log line or a condition. A panic means that an
//     invariant of the core itself is broken, and names the component and the event. The state is
//     not used after it; CurrentPod returns the pod that it was about, which the next boot event
//     has set aside.
//
// # From an event to effects
//
// Step passes the event to handleEvent, which changes facts and enqueues the components that the
// change concerns. The completion of an operation goes through handleCompletion to the
// HandleCompletion method of the component that issued the operation. Then planComponent calls the
// Plan method of each enqueued component, which compares desired and observed facts and issues the
// operations that are missing. All of this is in step.go.
//
// Every component has the same three parts: facts (plain data in State), a plan (a function of the
// facts and the time) and handlers of events (which only change facts).
//
// # The files of this package
//
//	agent.go           Options, State, New
//	step.go            where events enter, and completions and plans reach the components
//	planqueue.go       the components to plan in a step, and those left to the next
//	pods.go            static pods, and the known pods of all sources: added, planned, removed
//	apipods.go         pods from the API server, from the watch to the pod
//	admission.go       which desired pods are run
//	machine.go         observations of the machine, and what depends on them
//	setaside.go        pods over which earlier agents have panicked
//	relist.go          how the runtime's lists and events reach the pods
//	runtimestatus.go   what the runtime reports about itself
//	images.go, logs.go, housekeeping.go, objects.go, mirrors.go, nodeobject.go, statuswrites.go,
//	qos.go, containergc.go, imagegc.go, csi.go, scsi.go, devicemounts.go,
//	volumestats.go     the wiring of the components with those subjects
//	objectowners.go    the pod that an ID of the runtime belongs to
//	nodepressure.go    evictions under node pressure, and the admission of pods meanwhile
//	nodeshutdown.go    shutdowns of the machine, and the admission of pods meanwhile
//	resize.go          which resizes of pods are allocated, and when
//	waiting.go         the index of pods that wait for admission
//	requests.go        requests of the HTTP API: servedpods.go, resolve.go, redact.go
//	metrics.go         metrics: served here and in metrics_seedlet.go, recorded in
//	                   metrics_record.go, metrics_probes.go and metrics_resize.go
//	snapshot.go        Snapshot and Restore
//
// # The packages below
//
//	manifest      the desired static pods, read from files and a URL
//	pleg          the objects in the runtime, listed every second or seen by an event
//	pod           one pod: its desired state, its observed state and its next step
//	criconfig     the CRI messages of a pod and its containers
//	podstatus     the v1.PodStatus of a pod
//	volume        the volumes of one pod, and the steps that set them up
//	claim         what backs a volume that has a claim
//	csi           the drivers of the node, and the volumes that are staged and published
//	selinux       SELinux labels as the mount table has them, and the options of mounts with them
//	scsi          the disks of volumes of the kinds iscsi and fc, and the sessions with their targets
//	volumeop      what volumes of csi and scsi have in common: failures, and their pods
//	devicemount   the mounts of devices for local volumes
//	volumestats   the usage and health of the volumes that storage backs
//	token         the service account tokens in the volumes of a pod
//	podcertificate the certificates in the volumes of a pod, and the requests for them
//	localstorage  what a pod keeps on the disks, and the limit that it exceeds
//	allocation    the resources that are allocated to pods, and that containers were given
//	probe         one probe of one container
//	image         the images that pods wait for, and their pulls
//	pullrecord    with which credentials images were pulled, and who may use them
//	imagename     the parts of a reference to an image
//	imagegc       the unused images that are removed
//	keyring       the registry credentials in image pull secrets
//	credentials   the credentials of the node for images
//	cgroup        the paths and limits of the pods' cgroups
//	qos           the cgroups above those of the pods
//	userns        the ranges of user and group IDs of the pods' user namespaces
//	sysctl        the kernel parameters that a pod may set
//	hostfile      the node's own resolv.conf and hosts
//	runtime       what the runtime reports about itself
//	objectcache   the watches and reads of objects at the API server
//	statuswriter  the writes of pod statuses to the API server
//	mirror        the mirror pods of static pods
//	admission     whether a pod fits the node, and which pods a critical one preempts
//	poddirs       the pods with a directory that an earlier agent made
//	node          the Node object at the API server
//	machine       the observations of the machine while the agent runs
//	lease         the node's lease, which shows that the node is alive
//	eviction      the pod that is evicted while the node runs out of something
//	shutdown      the ends of the pods, group by group, before the machine goes down
//	plugins       the plugins of the node, which register by sockets
//	logs          log rotation, and dangling links to logs
//	housekeeping  orphaned directories and cgroups
//	devicemount   the devices of local volumes: mounted for pods that have gone, bound for containers
//	containergc   the event that the collection of containers keeps failing
//	config        the configuration file
//	document      strict decoding of one YAML or JSON document
//	metrics       counters and histograms
//	budget        what one pod may cost: the table of all bounds
//	op            operations in flight, and the effects of a step
//	timer         points in time, as data
//
// Start reading at Agent.Step, then pod.Pod.Plan.
package core
