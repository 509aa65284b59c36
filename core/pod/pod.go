// Package pod decides what happens to one pod.
//
// It keeps: the pod that is wanted, the sandboxes and containers that the runtime is known to
// have for it, the operations in flight on them, and what has gone wrong. It plans: what to do
// next, as a function of those facts and the time (Plan, in plan.go; what a single container
// needs is decided in next.go). It takes: what the sources want (Want, Unwant), what a relist saw
// (observe.go) and the answers to its operations (answer.go). Start reading at Pod, then Plan.
package pod

import (
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/image"
	"seedlet.dev/core/timer"
	"seedlet.dev/core/userns"
	"seedlet.dev/world"
)

// Component is the component part of the key of every pod.
const Component = "pod"

// Stage is where a pod is in its life. It only goes forward, except that a pod whose sandbox or
// container turns up after all (an operation with an unknown outcome took effect late) goes
// back from Terminated to Terminating.
type Stage string

// The stages of the kubelet's pod workers.
const (
	Syncing     Stage = "Syncing"     // what the spec demands is made to run
	Terminating Stage = "Terminating" // what runs is stopped
	Terminated  Stage = "Terminated"  // nothing runs; if unwanted, what is left is removed
)

// Pod is what the agent knows about one pod.
type Pod struct {
	UID       string `json:"uid"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`

	// Spec is the pod that is run, as its source wrote it, with defaults. Nil for a pod that
	// only the runtime knows: one whose source is gone, or has not been read yet.
	Spec *v1.Pod `json:"spec,omitempty"`
	// Next is the pod that is wanted with the same UID once this one has ended.
	Next *v1.Pod   `json:"next,omitempty"`
	Seen time.Time `json:"seen"` // when this agent first knew of the pod

	Stage Stage `json:"stage"`
	Gone  bool  `json:"gone,omitempty"` // no source wants it any more
	Kill  Kill  `json:"kill"`

	Observed   bool        `json:"observed"`             // a relist has been applied since boot
	Record     Record      `json:"record"`               // what is kept of it on the disk
	Known      bool        `json:"known"`                // what it shows can be told
	Sandboxes  []Sandbox   `json:"sandboxes,omitempty"`  // by attempt
	Containers []Container `json:"containers,omitempty"` // by name, then attempt
	Past       []Past      `json:"past,omitempty"`       // runs that have gone
	Round      Round       `json:"round"`                // that is to run now

	// Op is the one operation in flight that makes something: a directory, a sandbox, a
	// container, a start. There is never a second one.
	Op world.OpID `json:"op,omitempty"`
	// Cgroup is what was done about its cgroup.
	Cgroup Cgroup `json:"cgroup"`
	// IDs are its user and group ids on the host; none if it has the host's.
	IDs userns.Range `json:"ids"`
	// Attempt is that of the sandbox that a request in flight makes; Op is that request.
	Attempt uint32 `json:"attempt,omitempty"`
	// Removed is when something of the pod was last removed, or when the pod was made after
	// everything of one with its UID had been. A list that was asked for before then may still
	// have what is gone: it tells of nothing new.
	Removed time.Time `json:"removed"`
	// NameWait says that the pod waits for another one of its full name to end.
	NameWait bool `json:"nameWait,omitempty"`
	// RuntimeWait is why the pod waits for the runtime, if it does.
	RuntimeWait string `json:"runtimeWait,omitempty"`
	// Making is the container that a request in flight makes; Op is that request.
	Making *Container `json:"making,omitempty"`
	// Stale is when an operation ended that failed or was not answered: what is known from
	// before then does not count. Zero when nothing is stale.
	Stale    time.Time `json:"stale"`
	Problems []Problem `json:"problems,omitempty"` // of what failed last, by container
	Lasting  []Lasting `json:"lasting,omitempty"`  // what was told and is told again

	Dir     bool     `json:"dir,omitempty"`     // the pod's directory was made
	LogDirs []string `json:"logDirs,omitempty"` // containers whose log directory was made
	// MessageFiles are the directories of message files that were made, as "NAME/", and the files
	// for runs that are still to be made, as "NAME/NUMBER".
	MessageFiles []string `json:"messageFiles,omitempty"`
	LogsGone     bool     `json:"logsGone,omitempty"`  // the log directory was removed
	DirGone      bool     `json:"dirGone,omitempty"`   // the pod's directory was removed
	Storage      Storage  `json:"storage"`             // volumes, sub-paths and /etc/hosts
	Needs        []Need   `json:"needs,omitempty"`     // images that containers wait for
	Watching     Watching `json:"watching"`            // what it refers to at the API server
	Forgotten    bool     `json:"forgotten,omitempty"` // nothing is left of it
	Cleared      bool     `json:"cleared,omitempty"`   // but what the runtime does not remove

	Phase      v1.PodPhase `json:"phase"`
	Conditions []Condition `json:"conditions,omitempty"`
}

// Kill is why and since when a pod is being ended.
type Kill struct {
	Reason  string `json:"reason,omitempty"`  // empty while the pod is not killed
	Message string `json:"message,omitempty"` // of its status; if empty, so is the reason
	// Phase is the terminal phase that it has for it, for good; empty if how it ends decides.
	Phase v1.PodPhase   `json:"phase,omitempty"`
	At    time.Time     `json:"at"`
	Grace time.Duration `json:"grace"`
}

// Need is an image that a container waits for.
type Need struct {
	Container string `json:"container"`
	Volume    string `json:"volume,omitempty"` // that it mounts; empty: what it runs
	Image     string `json:"image"`            // by its name in image.Store
	// Since is the time from which on what was asked of the runtime counts.
	Since   time.Time      `json:"since"`
	Problem *image.Problem `json:"problem,omitempty"`
	// Told of it: the pull that began then, and that it is there.
	Pulling time.Time `json:"pulling"`
	There   bool      `json:"there,omitempty"`
}

// New makes a pod that a source wants. If it is known that the runtime has nothing of it, it is
// observed; if nothing is kept of it on the disk, it is new.
func New(spec *v1.Pod, observed, isNew bool, now time.Time) *Pod {
	p := &Pod{Observed: observed,
		UID: string(spec.UID), Namespace: spec.Namespace, Name: spec.Name,
		Spec: spec, Seen: now, Stage: Syncing, Phase: v1.PodPending,
	}
	if observed {
		p.Removed = now
	}
	p.Record.Read = isNew
	p.obey(now)
	return p
}

// Orphan makes a pod that only the runtime knows.
func Orphan(uid, namespace, name string, now time.Time) *Pod {
	return &Pod{
		UID: uid, Namespace: namespace, Name: name,
		Seen: now, Stage: Syncing, Phase: v1.PodPending,
	}
}

// Key is the owner of the pod's operations.
func (p *Pod) Key() timer.Key { return timer.Key{Component: Component, Name: p.UID} }

// FullName is what no two running pods may share.
func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// graceDefault is the API's default for terminationGracePeriodSeconds.
const graceDefault = 30 * time.Second

// graceMaxSeconds is as long as a period can be that the runtime and annotations can tell.
const graceMaxSeconds = math.MaxInt32

// grace is how long the pod's containers have to end. What the spec says counts; for a pod that
// only the runtime knows, what its containers were created with.
func (p *Pod) grace() time.Duration {
	if p.Spec != nil && p.Spec.Spec.TerminationGracePeriodSeconds != nil {
		return seconds(*p.Spec.Spec.TerminationGracePeriodSeconds)
	}
	longest := time.Duration(-1)
	for i := range p.Containers {
		longest = max(longest, p.Containers[i].Grace)
	}
	if longest < 0 {
		return graceDefault
	}
	return longest
}

// seconds is a number of seconds of the API, within what the runtime and annotations can tell.
func seconds(n int64) time.Duration { return time.Duration(min(n, graceMaxSeconds)) * time.Second }

// Holds says whether the pod has, or may have, anything that runs or holds its names and ports.
func (p *Pod) Holds() bool {
	if p.Op != 0 || !p.Stale.IsZero() || p.Stage == Terminating {
		return true
	}
	for i := range p.Sandboxes {
		if !p.Sandboxes[i].down() {
			return true
		}
	}
	return p.live()
}

// live says whether any container runs or might.
func (p *Pod) live() bool {
	for i := range p.Containers {
		if p.Containers[i].live() {
			return true
		}
	}
	return false
}
