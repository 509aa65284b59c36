// Package pod is the life cycle of one pod: the kubelet's pod worker as a state machine.
//
// It keeps facts about a pod: the desired spec, the sandboxes and containers that the runtime has
// for it, the operations in flight on them, and the failures. Plan (plan.go) is a function of those
// facts and the time; it issues the operations that bring the pod closer to its spec. Events only
// change facts. They come from the pod's source (desired.go), from relists and the runtime's event
// stream (observe.go), and from completed operations (completion.go).
//
// Where to look: plan.go decides the next step of a pod; container_plan.go decides whether a
// container is created, started, removed or restarted, with the restart policy in
// restart_policy.go; stop.go stops containers, and HandleCompletion in completion.go handles the
// result or the timeout of a stop; terminal.go decides when a pod has reached a terminal phase;
// record.go persists what must survive a restart of the agent. Package criconfig translates a pod
// into the messages of the CRI, and package podstatus derives the pod's status from these facts.
// Start reading at Pod, then Plan.
package pod

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/allocation"
	"seedlet.dev/core/criconfig"
	"seedlet.dev/core/image"
	"seedlet.dev/core/manifest"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// Component is the component part of the key of every pod.
const Component = "pod"

// Stage is the stage of a pod's life cycle. A stage only goes forward, with one exception: a
// Terminated pod goes back to Terminating if one of its sandboxes or containers turns out to run,
// because an operation of unknown outcome has taken effect late.
type Stage string

// The stages of the kubelet's pod workers.
const (
	Syncing     Stage = "Syncing"     // the containers of the spec are created and kept running
	Terminating Stage = "Terminating" // containers and sandboxes are stopped
	// Terminated pods run nothing. If the pod is no longer desired, its resources are removed.
	Terminated Stage = "Terminated"
)

// Pod holds the facts that the agent has about one pod.
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`

	// Spec is the pod as its source wrote it, with defaults applied, and with the resources that are
	// allocated to it. Spec is nil for an orphaned pod, which only the runtime has: its source was
	// removed, or has not been read yet.
	Spec   *v1.Pod `json:"spec,omitempty"`
	Resize Resize  `json:"resize"` // a change of its resources
	// Replacement is the desired pod with the same UID that replaces this one once it is removed.
	Replacement *v1.Pod `json:"replacement,omitempty"`
	// StartTime is the startTime of the pod's status: when an agent first saw the pod.
	StartTime time.Time `json:"startTime"`

	Stage           Stage       `json:"stage"`
	NoLongerDesired bool        `json:"noLongerDesired,omitempty"` // removed from its source
	Termination     Termination `json:"termination"`

	Observed bool   `json:"observed"` // by a relist of this agent
	Record   Record `json:"record"`   // the pod's file on the disk
	// Reported is what the status at the API server says that the record does not have yet.
	Reported    Reported     `json:"reported,omitzero"`
	Sandboxes   []Sandbox    `json:"sandboxes,omitempty"`   // sorted by attempt
	Containers  []Container  `json:"containers,omitempty"`  // sorted by name, then attempt
	RemovedRuns []RemovedRun `json:"removedRuns,omitempty"` // runs that the runtime no longer has
	Round       Round        `json:"round"`                 // the current restart round

	// Op is the one creating operation in flight, zero if none is: the creation of a directory,
	// sandbox or container, a start, a mount. A pod never has two creating operations in flight.
	// Stops, removals and inspections have Op fields of their own.
	Op world.OpID `json:"op,omitempty"`
	// Cgroup is what this agent has done to the pod's cgroup.
	Cgroup Cgroup `json:"cgroup"`
	// IDs is the range of host user and group IDs of the pod's user namespace; none if the pod
	// runs in the host's user namespace.
	IDs userns.Range `json:"ids"`
	// SandboxAttempt is the attempt number of the sandbox that the operation Op creates.
	SandboxAttempt uint32        `json:"sandboxAttempt,omitempty"`
	SandboxLosses  SandboxLosses `json:"sandboxLosses,omitzero"`
	// LastRemoval is when a container or sandbox of the pod was last removed, or when the pod was
	// created after a pod of the same UID had been removed. A list that was requested before then
	// may still have removed objects; an unknown object in such a list is ignored.
	LastRemoval time.Time `json:"lastRemoval"`
	// HeldName is set if the pod held its full name, or may have, when it was planned last. Once it
	// does not hold the name any more, the other pods of that name are planned.
	HeldName bool `json:"heldName,omitempty"`
	// WaitingForName is set while another pod of the same full name still runs.
	WaitingForName bool `json:"waitingForName,omitempty"`
	// RuntimeWaitReason is the reason why the pod waits for the runtime; empty if it does not.
	RuntimeWaitReason string `json:"runtimeWaitReason,omitempty"`
	// Creating is the container that the operation Op creates; nil if Op creates none.
	Creating *Container `json:"creating,omitempty"`
	// StaleSince is when an operation last failed or timed out. Observations from before then do not
	// count: the operation may have taken effect. Zero while no observation is stale.
	StaleSince time.Time `json:"staleSince"`
	// KnownWhole is set if this agent has created all that the runtime has of the pod, and no request
	// to create or start something has failed: nothing of the pod appears or starts unexpectedly,
	// so its end needs no relist. The success of the first sandbox sets it: the runtime reserves the
	// name, so an earlier agent's request for that sandbox has had no effect and can have none.
	KnownWhole     bool            `json:"knownWhole,omitempty"`
	Problems       []Problem       `json:"problems,omitempty"`       // the last failures, by container
	RepeatedEvents []RepeatedEvent `json:"repeatedEvents,omitempty"` // of conditions that persist
	// HTTPFallbacks is the number of hooks for HTTPS that have succeeded by HTTP.
	HTTPFallbacks int `json:"httpFallbacks,omitempty"`

	DirCreated bool     `json:"dirCreated,omitempty"` // the pod's directory exists
	LogDirs    []string `json:"logDirs,omitempty"`    // containers whose log directory exists
	LogsListed []string `json:"logsListed,omitempty"` // containers whose logs this agent has listed
	// MessageFiles are the directories of termination message files that exist, as "NAME/", and
	// the files that exist for runs that are not created yet, as "NAME/NUMBER".
	MessageFiles []string `json:"messageFiles,omitempty"`
	LogsRemoved  bool     `json:"logsRemoved,omitempty"` // the log directory was removed
	DirRemoved   bool     `json:"dirRemoved,omitempty"`  // the pod's directory was removed
	// LogsFailed is set if the log directory could not be removed, and the pod's directory was not
	// tried since.
	LogsFailed    bool           `json:"logsFailed,omitempty"`
	Storage       Storage        `json:"storage"`                 // volumes, subpaths and /etc/hosts
	EnvFiles      []EnvFiles     `json:"envFiles,omitempty"`      // of containers to be created
	PendingImages []PendingImage `json:"pendingImages,omitempty"` // images that containers wait for
	Watches       Watches        `json:"watches"`                 // of API objects in the spec
	OverBudget    bool           `json:"overBudget,omitempty"`    // the spec exceeds a bound
	FullyRemoved  bool           `json:"fullyRemoved,omitempty"`  // nothing of the pod is left
	// EndedAt is when this agent has found that the pod has ended (Terminated).
	EndedAt time.Time `json:"endedAt"`
	// OverLimit is set from when the pod was evicted for a limit of its own until it has given back
	// what it holds of a disk.
	OverLimit bool `json:"overLimit,omitempty"`
	// ReclaimsRuns is set while the containers of the pod, which has ended, are removed for the space;
	// RunsLeft is how many there were after the last plan. It means nothing without ReclaimsRuns.
	ReclaimsRuns bool `json:"reclaimsRuns,omitempty"`
	RunsLeft     int  `json:"runsLeft,omitempty"`
	// MayLoseRuns is set once the final status of the pod is at the API server, or in FinalStatus, so
	// that its containers may be removed. FinalStatus is used for what they do not tell any more.
	MayLoseRuns bool          `json:"mayLoseRuns,omitempty"`
	FinalStatus *v1.PodStatus `json:"finalStatus,omitempty"`
	// OnlyRuntimeRecordsLeft is set if nothing is left except records that the runtime fails to
	// remove.
	OnlyRuntimeRecordsLeft bool `json:"onlyRuntimeRecordsLeft,omitempty"`

	Status Status `json:"status"`

	index  specIndex       // of Spec; made again when Spec is another one
	held   heldMemo        // made again when it is missing
	images imageNames      // made again when Spec is another one
	pulls  pullSecrets     // made again when a secret has another version
	checks containerChecks // made again when something has changed that they depend on
}

// Termination is why, since when and how a pod is terminated.
type Termination struct {
	Reason  string `json:"reason,omitempty"`  // empty while the pod is not terminated
	Message string `json:"message,omitempty"` // of the status; if empty, there is no reason
	// Phase is the terminal phase that the reason of the termination demands; empty if the exit
	// codes of the containers decide.
	Phase v1.PodPhase `json:"phase,omitempty"`
	// UnderPressure is set if the pod was evicted, or hastened in its end, because the node runs out
	// of a resource, and PressureMessage says of which.
	UnderPressure   bool          `json:"underPressure,omitempty"`
	PressureMessage string        `json:"pressureMessage,omitempty"`
	Since           time.Time     `json:"at"`
	Grace           time.Duration `json:"grace"`
	// Hastened is the shortest grace period with which the pod was hastened while it ended, at least
	// killAfterMin; zero: it was not. No stop of a container that is issued from then on leaves it
	// longer.
	Hastened time.Duration `json:"hastened,omitempty"`
}

// PendingImage is an image that a container waits for.
type PendingImage struct {
	Container string `json:"container"`
	Volume    string `json:"volume,omitempty"` // the image volume; empty for the image that runs
	Image     string `json:"image"`            // the key in image.Store
	// Since is when the container began to wait. Results of older requests do not count.
	Since   time.Time      `json:"since"`
	Problem *image.Problem `json:"problem,omitempty"`
	// Decision is what the request for the image has led to, as far as it was counted.
	Decision image.Decision `json:"decision,omitempty"`
	// PullReported is the start of the pull for which an event was recorded, PresenceReported
	// whether an event was recorded that the image is present.
	PullReported     time.Time `json:"pullReported"`
	PresenceReported bool      `json:"presenceReported,omitempty"`
}

// New creates a pod that a source desires. recorded are the resources that an earlier agent has
// allocated to it; nil if none are recorded. observed is set if the runtime is known to have
// nothing of the pod, isNew if no record of the pod can be on the disk.
func New(spec *v1.Pod, recorded *allocation.Resources, observed, isNew bool, now time.Time) *Pod {
	p := &Pod{Observed: observed,
		UID: string(spec.UID), Namespace: spec.Namespace, Name: spec.Name,
		StartTime: now, Stage: Syncing, Status: Status{Phase: v1.PodPending},
	}
	if at := spec.Status.StartTime; at != nil && !p.IsStatic() { // an earlier agent has admitted it
		p.StartTime = earlier(now, at.UTC())
	}
	p.setSpec(spec, recorded, now)
	p.OverBudget = !p.IsStatic() && ExceedsBudget(p.Spec)
	if observed {
		p.LastRemoval = now
	}
	p.Record.Loaded = isNew
	p.applyAPITermination(now)
	return p
}

// NewOrphan creates a pod that only the runtime has.
func NewOrphan(uid, namespace, name string, now time.Time) *Pod {
	return &Pod{
		UID: uid, Namespace: namespace, Name: name,
		StartTime: now, Stage: Syncing, Status: Status{Phase: v1.PodPending},
	}
}

// Key returns the owner of the pod's operations.
func (p *Pod) Key() timer.Key { return timer.Key{Component: Component, Name: p.UID} }

// FullName returns the namespace and name of the pod. No two pods of the same full name run at the
// same time.
func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// IsStatic reports whether the pod is a static pod.
func (p *Pod) IsStatic() bool {
	if p.Spec == nil {
		return false
	}
	source := p.Spec.Annotations[manifest.ConfigSourceAnnotation]
	return source != "" && source != "api"
}

// graceMaxSeconds is the longest grace period that the runtime and the annotations can hold.
const graceMaxSeconds = math.MaxInt32

// GracePeriod returns how long the pod's containers have to stop: terminationGracePeriodSeconds of
// the spec, or while no source has listed the pod the longest grace period that its containers were
// created with.
func (p *Pod) GracePeriod() time.Duration {
	if p.Spec != nil && p.Spec.Spec.TerminationGracePeriodSeconds != nil {
		return seconds(*p.Spec.Spec.TerminationGracePeriodSeconds)
	}
	longest := time.Duration(-1)
	for i := range p.Containers {
		longest = max(longest, p.Containers[i].Grace)
	}
	if longest < 0 {
		return criconfig.GracePeriodDefault
	}
	return longest
}

// seconds converts a number of seconds of the API, cut to graceMaxSeconds.
func seconds(n int64) time.Duration { return time.Duration(min(n, graceMaxSeconds)) * time.Second }

// HoldsNameOrPorts reports whether the pod has, or may have, anything that runs or that occupies
// its name and ports.
func (p *Pod) HoldsNameOrPorts() bool {
	if p.Op != 0 || !p.StaleSince.IsZero() || p.Stage == Terminating {
		return true
	}
	for i := range p.Sandboxes {
		if !p.Sandboxes[i].isDown() {
			return true
		}
	}
	return p.HasLiveContainers()
}

// HasLiveContainers reports whether any container of the pod runs or may run.
func (p *Pod) HasLiveContainers() bool {
	for i := range p.Containers {
		if p.Containers[i].isLive() {
			return true
		}
	}
	return false
}
