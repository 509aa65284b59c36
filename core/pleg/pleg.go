// Package pleg is the pod lifecycle event generator: it lists what the runtime has, once a
// second, and says when that was last known. While the runtime tells events, which is an option,
// it lists every few minutes, and whenever somebody needs it.
//
// It keeps: the two lists of a relist in the making, when the last complete one was asked for,
// since when somebody needs another one, and the stream of events. It plans: both lists at once,
// again a period after they were answered; the stream, again after it broke. It takes: the
// answers, the demands and the end of the stream. What a list or an event means for a pod is the
// pod's business (package pod). Start reading at Relist, then Stream.
package pleg

import (
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The kubelet's numbers for a relist.
const (
	Period         = time.Second
	ThresholdMax   = 3 * time.Minute // without a successful relist the runtime counts as unhealthy
	requestTimeout = 2 * time.Minute
)

// Owner is who the lists' operations belong to.
var Owner = timer.Key{Component: "pleg"}

// Relist is what is known about the listing of the runtime.
type Relist struct {
	// AsOf is when the newest complete list was asked for: everything the runtime had done
	// before then is in it. Zero until the first. Only success moves it (upstream #93886).
	AsOf   time.Time `json:"asOf"`
	Number uint64    `json:"number"` // of complete lists

	Asked     time.Time   `json:"asked"` // when the list in the making was asked for
	SandboxOp world.OpID  `json:"sandboxOp,omitempty"`
	ListOp    world.OpID  `json:"listOp,omitempty"`
	Failed    bool        `json:"failed,omitempty"` // one of its halves failed
	Sandboxes []Sandbox   `json:"sandboxes,omitempty"`
	Items     []Container `json:"items,omitempty"`
	Ended     time.Time   `json:"ended"` // when the last one was answered, however

	// Needed is since when somebody needs to know what the runtime has: only a list that was
	// asked for later will do.
	Needed time.Time `json:"needed"`

	// Overdue says that something waits because no relist has succeeded for too long.
	Overdue bool `json:"overdue,omitempty"`

	Problem  string `json:"problem,omitempty"` // of the last failure, empty after a success
	Failures uint64 `json:"failures"`
}

// Sandbox is one line of a list of sandboxes.
type Sandbox struct {
	ID        string    `json:"id"`
	UID       string    `json:"uid"`
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Attempt   uint32    `json:"attempt"`
	Ready     bool      `json:"ready"`
	CreatedAt time.Time `json:"createdAt"`
	Cgroup    string    `json:"cgroup,omitempty"` // as the annotation has it
	IDs       string    `json:"ids,omitempty"`    // likewise
	Claim     string    `json:"claim,omitempty"`  // likewise
}

// Container is one line of a list of containers.
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
	Annotations map[string]string         `json:"annotations,omitempty"` // read only
}

// Need says that somebody needs a list that was asked for after the given time. It reports
// whether that is news.
func (r *Relist) Need(since time.Time) bool {
	if !since.After(r.Needed) {
		return false
	}
	r.Needed = since
	return !r.AsOf.After(since)
}

// gather is how long a list that is needed waits for the needs of others.
const gather = 10 * time.Millisecond

// due is when the next list is to be asked for.
func (r *Relist) due(stream *Stream) time.Time {
	soon := r.Ended.Add(Period)
	switch {
	case r.Ended.IsZero():
		return r.Ended
	case r.Failed || !stream.telling(r.AsOf):
		return soon
	case !r.AsOf.After(r.Needed):
		return timer.Later(soon, r.Needed.Add(gather))
	}
	return r.Ended.Add(PeriodEvented)
}

// Plan asks for the lists if it is time, and says when to be called again.
func (r *Relist) Plan(stream *Stream, out *op.Out) time.Time {
	if r.SandboxOp != 0 || r.ListOp != 0 {
		return time.Time{}
	}
	if due := r.due(stream); out.Now().Before(due) {
		return due
	}
	r.Asked, r.Failed = out.Now(), false
	r.SandboxOp = out.Ask(Owner, "", requestTimeout, &runtimeapi.ListPodSandboxRequest{})
	r.ListOp = out.Ask(Owner, "", requestTimeout, &runtimeapi.ListContainersRequest{})
	return time.Time{}
}

// Answered takes the answer to one of the lists, or the failure of it. It reports whether the
// lists are now complete, with AsOf moved on.
func (r *Relist) Answered(id world.OpID, ev world.Event) bool {
	switch id {
	case r.SandboxOp:
		r.SandboxOp = 0
		if body, ok := ev.Body.(*runtimeapi.ListPodSandboxResponse); ok && ev.Err == nil {
			r.takeSandboxes(body.Items)
		}
	case r.ListOp:
		r.ListOp = 0
		if body, ok := ev.Body.(*runtimeapi.ListContainersResponse); ok && ev.Err == nil {
			r.takeContainers(body.Containers)
		}
	}
	if ev.Err != nil {
		r.Failed, r.Problem = true, ev.Err.Error()
	}
	if r.SandboxOp != 0 || r.ListOp != 0 {
		return false
	}
	r.Ended = ev.Time
	if r.Failed {
		r.Failures++
		r.clear()
		return false
	}
	r.AsOf, r.Problem = r.Asked, ""
	r.Number++
	return true
}

// Applied forgets the lists once every pod has taken its part; their memory is used again.
func (r *Relist) Applied() { r.clear() }

func (r *Relist) clear() {
	clear(r.Sandboxes)
	clear(r.Items)
	r.Sandboxes, r.Items = r.Sandboxes[:0], r.Items[:0]
}

func (r *Relist) takeSandboxes(items []*runtimeapi.PodSandbox) {
	r.Sandboxes = r.Sandboxes[:0]
	for _, s := range items {
		meta := s.GetMetadata()
		if !nameable(meta.GetUid(), meta.GetNamespace(), meta.GetName()) {
			continue // made by hand with the runtime's own tools: not a pod
		}
		r.Sandboxes = append(r.Sandboxes, Sandbox{
			ID:        s.Id,
			UID:       s.Metadata.Uid,
			Namespace: s.Metadata.Namespace,
			Name:      s.Metadata.Name,
			Attempt:   s.Metadata.Attempt,
			Ready:     s.State == runtimeapi.PodSandboxState_SANDBOX_READY,
			CreatedAt: time.Unix(0, s.CreatedAt).UTC(),
			Cgroup:    s.Annotations[AnnotationCgroup],
			IDs:       s.Annotations[AnnotationIDs],
			Claim:     s.Annotations[AnnotationClaim],
		})
	}
}

// The labels by which the runtime's objects are told to pods.
const (
	LabelPodUID       = "io.kubernetes.pod.uid"
	LabelPodName      = "io.kubernetes.pod.name"
	LabelPodNamespace = "io.kubernetes.pod.namespace"
	LabelContainer    = "io.kubernetes.container.name"
)

// The annotations of a sandbox that carry what must outlive the agent.
const (
	AnnotationCgroup = "seedlet.dev/cgroup" // of the pod, from the root of the hierarchy
	AnnotationIDs    = "seedlet.dev/userns" // the ids of its user namespace, as userns.Range
	AnnotationClaim  = "seedlet.dev/claim"  // what its pod takes of the node, as admission.Claim
)

func (r *Relist) takeContainers(items []*runtimeapi.Container) {
	r.Items = r.Items[:0]
	for _, c := range items {
		uid, name := c.Labels[LabelPodUID], c.Labels[LabelContainer]
		namespace, pod := c.Labels[LabelPodNamespace], c.Labels[LabelPodName]
		if !nameable(uid, namespace, pod, name, c.Id) {
			continue // not a pod's
		}
		r.Items = append(r.Items, Container{
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

// nameable says whether the parts of a pod's or container's name can stand in a path: directories
// and links are removed by them, and the runtime tells whatever someone has given it.
func nameable(parts ...string) bool {
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.IndexByte(part, '/') >= 0 ||
			strings.IndexByte(part, '\\') >= 0 || strings.IndexByte(part, 0) >= 0 {
			return false
		}
	}
	return true
}

// Health says what is wrong, if no relist has succeeded for too long. A relist of the long period
// is not too old at the moment in which the stream breaks: the next one has its time.
func (r *Relist) Health(stream *Stream, now, boot time.Time) string {
	since, threshold := timer.Later(r.AsOf, boot), ThresholdMax
	counted := since
	if stream.telling(r.AsOf) {
		threshold = ThresholdMaxEvented
	} else if stream.LostAt.Sub(r.AsOf) <= ThresholdMaxEvented {
		counted = timer.Later(since, stream.LostAt)
	}
	if now.Sub(counted) > threshold {
		return "pleg was last seen active " + now.Sub(since).Truncate(time.Second).String() +
			" ago; threshold is " + threshold.String()
	}
	return ""
}
