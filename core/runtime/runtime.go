// Package runtime knows what the container runtime says about itself.
//
// It keeps: the runtime's name and version, its conditions, handlers and cgroup driver, as of when
// it was asked. It plans: the version and the configuration once in a life of the agent, the
// conditions every few seconds. Start reading at Runtime.Plan.
package runtime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	statusPeriod   = 5 * time.Second // as the kubelet's runtime state
	requestTimeout = 2 * time.Minute
)

// Owner is who the operations belong to.
var Owner = timer.Key{Component: "runtime"}

// Runtime is what is known about the container runtime.
type Runtime struct {
	Name         string `json:"name"` // as in container ids: "containerd"
	Version      string `json:"version"`
	CgroupDriver string `json:"cgroupDriver"` // empty if the runtime does not say
	Configured   bool   `json:"configured"`   // RuntimeConfig was answered, or is not offered
	// RecursiveReadOnly says that the default handler can make mounts read-only all the way down.
	RecursiveReadOnly bool `json:"recursiveReadOnly,omitempty"`

	Conditions []Condition `json:"conditions,omitempty"`
	Handlers   []Handler   `json:"handlers,omitempty"`
	// SupplementalGroupsPolicy says whether the runtime knows that field of pods; nil if it does
	// not say.
	SupplementalGroupsPolicy *bool `json:"supplementalGroupsPolicy,omitempty"`

	AsOf    time.Time `json:"asOf"`    // when the conditions were asked for
	ReadyAt time.Time `json:"readyAt"` // when it said last that it is ready
	Problem string    `json:"problem,omitempty"`

	Op     world.OpID `json:"op,omitempty"`
	NextAt time.Time  `json:"nextAt"`
}

// Condition is one condition of the runtime: RuntimeReady or NetworkReady.
type Condition struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Handler is a way to run a pod, by the name that a RuntimeClass has for it; the default one has
// none.
type Handler struct {
	Name           string `json:"name"`
	UserNamespaces bool   `json:"userNamespaces,omitempty"` // it can give a pod ids of its own
	// RecursiveReadOnly says that it can make mounts read-only all the way down.
	RecursiveReadOnly bool `json:"recursiveReadOnly,omitempty"`
}

// Handler is the handler of a name; nil if the runtime has none.
func (r *Runtime) Handler(name string) *Handler {
	for i := range r.Handlers {
		if r.Handlers[i].Name == name {
			return &r.Handlers[i]
		}
	}
	return nil
}

// NotReady says why nothing can be made, in the kubelet's words; empty if the runtime has not said
// that it is not ready.
func (r *Runtime) NotReady() string {
	return r.not(runtimeapi.RuntimeReady, "container runtime not ready: ")
}

// NetworkNotReady is the same for sandboxes with a network of their own.
func (r *Runtime) NetworkNotReady() string {
	return r.not(runtimeapi.NetworkReady,
		"network is not ready: container runtime network not ready: ")
}

func (r *Runtime) not(condition, intro string) string {
	if c := r.condition(condition); c != nil && !c.Status {
		return intro + c.Type + "=false reason:" + c.Reason + " message:" + c.Message
	}
	return ""
}

func (r *Runtime) condition(name string) *Condition {
	for i := range r.Conditions {
		if r.Conditions[i].Type == name {
			return &r.Conditions[i]
		}
	}
	return nil
}

// Plan asks what is not known yet, one thing at a time, and says when to be called again.
func (r *Runtime) Plan(out *op.Out) time.Time {
	switch {
	case r.Op != 0:
		return time.Time{}
	case out.Now().Before(r.NextAt):
		return r.NextAt
	case r.Name == "":
		r.Op = out.Ask(Owner, "", requestTimeout, &runtimeapi.VersionRequest{})
	case !r.Configured:
		r.Op = out.Ask(Owner, "", requestTimeout, &runtimeapi.RuntimeConfigRequest{})
	default:
		r.Op = out.Ask(Owner, "", requestTimeout, &runtimeapi.StatusRequest{})
	}
	return time.Time{}
}

// Answered takes the answer to what Plan asked for.
func (r *Runtime) Answered(rec op.Record, ev world.Event, out *op.Out) {
	r.Op = 0
	if ev.Err != nil {
		r.failed(rec, ev, out)
		return
	}
	r.Problem = ""
	switch body := ev.Body.(type) {
	case *runtimeapi.VersionResponse:
		r.Name, r.Version = body.RuntimeName, body.RuntimeVersion
		out.Log(world.LevelInfo, "runtime connected", "name", r.Name, "version", r.Version)
	case *runtimeapi.RuntimeConfigResponse:
		r.Configured = true
		if linux := body.GetLinux(); linux != nil {
			r.CgroupDriver = linux.CgroupDriver.String()
		}
	case *runtimeapi.StatusResponse:
		r.AsOf, r.Conditions, r.Handlers = rec.Began, nil, nil
		for _, h := range body.RuntimeHandlers {
			r.Handlers = append(r.Handlers, Handler{h.Name, h.GetFeatures().GetUserNamespaces(),
				h.GetFeatures().GetRecursiveReadOnlyMounts()})
		}
		for _, c := range body.GetStatus().GetConditions() {
			r.Conditions = append(r.Conditions, Condition{c.Type, c.Status, c.Reason, c.Message})
		}
		if c := r.condition(runtimeapi.RuntimeReady); c != nil && c.Status {
			r.ReadyAt = ev.Time
		}
		if f := body.GetFeatures(); f != nil {
			r.SupplementalGroupsPolicy = &f.SupplementalGroupsPolicy
		}
		standard := r.Handler("")
		r.RecursiveReadOnly = standard != nil && standard.RecursiveReadOnly
		r.NextAt = ev.Time.Add(statusPeriod)
	}
}

func (r *Runtime) failed(rec op.Record, ev world.Event, out *op.Out) {
	if rec.Call == "RuntimeConfig" && ev.Err.Kind == world.KindInvalid {
		r.Configured = true // containerd before 2.0 does not offer the call
		return
	}
	if r.Problem == "" {
		out.Log(world.LevelWarning, "runtime does not answer", "call", rec.Call,
			"error", ev.Err.Error())
	}
	r.Problem = ev.Err.Error()
	r.NextAt = ev.Time.Add(statusPeriod)
}
