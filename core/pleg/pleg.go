// Package pleg is the pod lifecycle event generator: it lists what the runtime has, once a
// second, and says when that was last known.
//
// It keeps: the two lists of a relist in the making, and when the last complete one was asked
// for. It plans: both lists at once, again a period after they were answered. It takes: the
// answers. What a list means for a pod is the pod's business (package pod). Start reading at
// Relist.
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
	NextAt    time.Time   `json:"nextAt"`

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

// Plan asks for the lists if it is time, and says when to be called again.
func (r *Relist) Plan(out *op.Out) time.Time {
	switch {
	case r.SandboxOp != 0 || r.ListOp != 0:
		return time.Time{}
	case out.Now().Before(r.NextAt):
		return r.NextAt
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
	r.NextAt = ev.Time.Add(Period)
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

func (r *Relist) takeContainers(items []*runtimeapi.Container) {
	r.Items = r.Items[:0]
	for _, c := range items {
		uid := c.Labels[LabelPodUID]
		if !nameable(uid, c.Labels[LabelPodNamespace], c.Labels[LabelPodName]) ||
			c.Labels[LabelContainer] == "" {
			continue // not a pod's
		}
		r.Items = append(r.Items, Container{
			ID:          c.Id,
			SandboxID:   c.PodSandboxId,
			UID:         uid,
			Namespace:   c.Labels[LabelPodNamespace],
			Pod:         c.Labels[LabelPodName],
			Name:        c.Labels[LabelContainer],
			Attempt:     c.GetMetadata().GetAttempt(),
			State:       c.State,
			CreatedAt:   time.Unix(0, c.CreatedAt).UTC(),
			Annotations: c.Annotations,
		})
	}
}

// nameable says whether the parts of a pod's name can stand in a path: directories are removed
// by them, and the runtime tells whatever someone has given it.
func nameable(parts ...string) bool {
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "/\\\x00") {
			return false
		}
	}
	return true
}

// Health says what is wrong, if no relist has succeeded for too long.
func (r *Relist) Health(now, boot time.Time) string {
	since := r.AsOf
	if since.IsZero() {
		since = boot
	}
	if age := now.Sub(since); age > ThresholdMax {
		return "pleg was last seen active " + age.Truncate(time.Second).String() +
			" ago; threshold is " + ThresholdMax.String()
	}
	return ""
}
