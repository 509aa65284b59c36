// Package pleg is the pod lifecycle event generator: it relists the sandboxes and containers of the
// runtime once a second. With the stream of container events (EventedPLEG) it relists every few
// minutes, and on request.
//
// Facts: the lists of the relist in progress, when the newest complete relist was issued, since
// when another one is requested, and the state of the stream. Plan: both lists at once, again a
// period after their completion; the stream, again after it broke. Events: the completions of the
// lists, requests for a relist, and the end of the stream. The meaning of a list or an event for a
// pod is in package pod. Start reading at Relist, then Stream.
package pleg

import (
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/containergc"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The kubelet's values for relists.
const (
	RelistPeriod = time.Second
	// RelistThreshold is how long the PLEG is healthy without a successful relist.
	RelistThreshold = 3 * time.Minute
	requestTimeout  = 2 * time.Minute
)

// Owner is the owner of the lists' operations.
var Owner = timer.Key{Component: "pleg"}

// Relist is the state of the relists.
type Relist struct {
	// AsOf is when the newest complete relist was issued: everything that the runtime did before is in
	// its lists. Zero before the first. Only a success advances it (upstream #93886).
	AsOf      time.Time `json:"asOf"`
	Completed uint64    `json:"completed"` // number of complete relists

	Issued      time.Time   `json:"issued"` // when the relist in progress was issued
	SandboxOp   world.OpID  `json:"sandboxOp,omitempty"`
	ContainerOp world.OpID  `json:"containerOp,omitempty"`
	Failed      bool        `json:"failed,omitempty"` // one of its lists failed
	Sandboxes   []Sandbox   `json:"sandboxes,omitempty"`
	Containers  []Container `json:"containers,omitempty"`
	CompletedAt time.Time   `json:"completedAt"` // when the last one completed or failed

	// RequestedSince is since when a relist is requested: only a relist issued later satisfies the
	// request.
	RequestedSince time.Time `json:"requestedSince"`

	// Overdue reports whether something waits because no relist has succeeded for longer than the
	// threshold: pods and images, or the Ready condition of the Node. The next success plans them.
	Overdue bool `json:"overdue,omitempty"`

	Problem  string `json:"problem,omitempty"` // the last failure; empty after a success
	Failures uint64 `json:"failures"`
	// Failing is that the lists fail, until one succeeds: nothing can be collected meanwhile.
	Failing containergc.Failure `json:"failing,omitzero"`
}

// Sandbox is one item of a list of sandboxes.
type Sandbox struct {
	ID            string    `json:"id"`
	UID           string    `json:"uid"`
	Namespace     string    `json:"namespace"`
	Name          string    `json:"name"`
	Attempt       uint32    `json:"attempt"`
	Ready         bool      `json:"ready"`
	CreatedAt     time.Time `json:"createdAt"`
	Cgroup        string    `json:"cgroup,omitempty"`        // the value of AnnotationCgroup
	UserNamespace string    `json:"userNamespace,omitempty"` // the value of AnnotationUserNamespace
	Allocation    string    `json:"allocation,omitempty"`    // the value of AnnotationAllocation
}

// Container is one item of a list of containers.
type Container struct {
	ID          string                    `json:"id"`
	SandboxID   string                    `json:"sandboxID"`
	UID         string                    `json:"uid"`
	Namespace   string                    `json:"namespace"`
	Pod         string                    `json:"pod"`
	Name        string                    `json:"name"`
	Attempt     uint32                    `json:"attempt"`
	State       runtimeapi.ContainerState `json:"state"`
	CreatedAt   time.Time                 `json:"createdAt"`
	Annotations map[string]string         `json:"annotations,omitempty"` // read-only
}

// Request requests a relist issued after a time, and reports whether the request is new.
func (r *Relist) Request(since time.Time) bool {
	if !since.After(r.RequestedSince) {
		return false
	}
	r.RequestedSince = since
	return !r.AsOf.After(since)
}

const (
	// requestDelay is how long a requested relist is delayed, to serve further requests too.
	requestDelay = 10 * time.Millisecond
	// requestedPause is the pause between relists on request, at least, and requestedPauseRatio the
	// pause in durations of the last relist: they take a fifth of the runtime's time at most.
	requestedPause      = 100 * time.Millisecond
	requestedPauseRatio = 4
)

// nextAt returns when to issue the next relist.
func (r *Relist) nextAt(stream *Stream) time.Time {
	next := r.CompletedAt.Add(RelistPeriod)
	switch {
	case r.CompletedAt.IsZero():
		return r.CompletedAt
	case r.Failed:
		return next
	case !r.AsOf.After(r.RequestedSince):
		pause := max(requestedPause, requestedPauseRatio*r.CompletedAt.Sub(r.Issued))
		requested := timer.Later(r.CompletedAt.Add(pause), r.RequestedSince.Add(requestDelay))
		return timer.Soonest(next, requested)
	case !stream.isReliable(r.AsOf):
		return next
	}
	return r.CompletedAt.Add(EventedRelistPeriod)
}

// Plan issues a relist if due, and returns when to plan again.
func (r *Relist) Plan(stream *Stream, effects *op.Effects) time.Time {
	if r.SandboxOp != 0 || r.ContainerOp != 0 {
		return time.Time{}
	}
	if due := r.nextAt(stream); effects.Now().Before(due) {
		return due
	}
	r.Issued, r.Failed = effects.Now(), false
	r.SandboxOp = effects.Issue(Owner, "", requestTimeout, &runtimeapi.ListPodSandboxRequest{})
	r.ContainerOp = effects.Issue(Owner, "", requestTimeout, &runtimeapi.ListContainersRequest{})
	return time.Time{}
}

// HandleCompletion applies the completion of one of the lists, and reports whether the relist is
// complete, with AsOf advanced.
func (r *Relist) HandleCompletion(id world.OpID, ev world.Event) bool {
	switch id {
	case r.SandboxOp:
		r.SandboxOp = 0
		if body, ok := ev.Body.(*runtimeapi.ListPodSandboxResponse); ok && ev.Err == nil {
			r.recordSandboxes(body.Items)
		}
	case r.ContainerOp:
		r.ContainerOp = 0
		if body, ok := ev.Body.(*runtimeapi.ListContainersResponse); ok && ev.Err == nil {
			r.recordContainers(body.Containers)
		}
	}
	if ev.Err != nil {
		r.Failed, r.Problem = true, ev.Err.Error()
		r.Failing.Note(ev.Time, r.Problem)
	}
	if r.SandboxOp != 0 || r.ContainerOp != 0 {
		return false
	}
	r.CompletedAt = ev.Time
	if r.Failed {
		r.Failures++
		r.clearLists()
		return false
	}
	r.AsOf, r.Problem = r.Issued, ""
	r.Failing = containergc.Failure{}
	r.Completed++
	return true
}

// ReleaseLists clears the lists after all pods have applied them. Their memory is reused.
func (r *Relist) ReleaseLists() { r.clearLists() }

func (r *Relist) clearLists() {
	clear(r.Sandboxes)
	clear(r.Containers)
	r.Sandboxes, r.Containers = r.Sandboxes[:0], r.Containers[:0]
}

func (r *Relist) recordSandboxes(items []*runtimeapi.PodSandbox) {
	r.Sandboxes = r.Sandboxes[:0]
	for _, s := range items {
		meta := s.GetMetadata()
		if !areValidPathElements(meta.GetUid(), meta.GetNamespace(), meta.GetName(), s.Id) {
			continue // created with other tools, not for a pod
		}
		r.Sandboxes = append(r.Sandboxes, Sandbox{
			ID:            s.Id,
			UID:           s.Metadata.Uid,
			Namespace:     s.Metadata.Namespace,
			Name:          s.Metadata.Name,
			Attempt:       s.Metadata.Attempt,
			Ready:         s.State == runtimeapi.PodSandboxState_SANDBOX_READY,
			CreatedAt:     time.Unix(0, s.CreatedAt).UTC(),
			Cgroup:        s.Annotations[AnnotationCgroup],
			UserNamespace: s.Annotations[AnnotationUserNamespace],
			Allocation:    s.Annotations[AnnotationAllocation],
		})
	}
}

// The labels that assign the runtime's objects to pods.
const (
	LabelPodUID       = "io.kubernetes.pod.uid"
	LabelPodName      = "io.kubernetes.pod.name"
	LabelPodNamespace = "io.kubernetes.pod.namespace"
	LabelContainer    = "io.kubernetes.container.name"
)

// The annotations of a sandbox with facts that have to outlive the agent.
const (
	AnnotationCgroup        = "seedlet.dev/cgroup" // the pod's, from the hierarchy's root
	AnnotationUserNamespace = "seedlet.dev/userns" // its ID range, as userns.Range
	// AnnotationAllocation is the pod's allocation of the node's resources, see package admission.
	AnnotationAllocation = "seedlet.dev/claim"
)

func (r *Relist) recordContainers(items []*runtimeapi.Container) {
	r.Containers = r.Containers[:0]
	for _, c := range items {
		uid, name := c.Labels[LabelPodUID], c.Labels[LabelContainer]
		namespace, pod := c.Labels[LabelPodNamespace], c.Labels[LabelPodName]
		if !areValidPathElements(uid, namespace, pod, name, c.Id) {
			continue // not a container of a pod
		}
		r.Containers = append(r.Containers, Container{
			ID:          c.Id,
			SandboxID:   c.PodSandboxId,
			UID:         uid,
			Namespace:   namespace,
			Pod:         pod,
			Name:        name,
			Attempt:     c.GetMetadata().GetAttempt(),
			State:       c.State,
			CreatedAt:   time.Unix(0, c.CreatedAt).UTC(),
			Annotations: c.Annotations,
		})
	}
}

// areValidPathElements reports whether the parts of a pod's or container's name can be elements of
// a path: the agent removes directories and links by these names, and the runtime reports names as
// any client has set them.
func areValidPathElements(parts ...string) bool {
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.IndexByte(part, '/') >= 0 ||
			strings.IndexByte(part, '\\') >= 0 || strings.IndexByte(part, 0) >= 0 {
			return false
		}
	}
	return true
}

// Health returns why the PLEG is unhealthy; empty if it is healthy. When the stream breaks, the
// last relist may be as old as the long period: the threshold of a relist then counts from the
// break.
func (r *Relist) Health(stream *Stream, now, boot time.Time) string {
	since, threshold := timer.Later(r.AsOf, boot), RelistThreshold
	counted := since
	if stream.isReliable(r.AsOf) {
		threshold = EventedRelistThreshold
	} else if stream.LostAt.Sub(r.AsOf) <= EventedRelistThreshold {
		counted = timer.Later(since, stream.LostAt)
	}
	if now.Sub(counted) > threshold {
		return "pleg was last seen active " + now.Sub(since).Truncate(time.Second).String() +
			" ago; threshold is " + threshold.String()
	}
	return ""
}
