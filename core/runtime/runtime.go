// Package runtime holds the status of the container runtime.
//
// Facts: the runtime's name and version, its conditions, handlers and cgroup driver, and when they
// were requested. Plan: requests the version and the configuration once per start of the agent, and
// the status every few seconds. Events: the completions of these requests. Start reading at
// Runtime.Plan.
package runtime

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

const (
	statusPeriod = 5 * time.Second // the kubelet's value
	// At startup the runtime can become ready at any moment, and the node with it.
	startPeriod    = 200 * time.Millisecond
	startMax       = 2 * time.Minute
	requestTimeout = 2 * time.Minute
)

// Owner is the owner of the operations.
var Owner = timer.Key{Component: "runtime"}

// Runtime is the state of the container runtime.
type Runtime struct {
	Name         string `json:"name"` // the prefix of container IDs: "containerd"
	Version      string `json:"version"`
	CgroupDriver string `json:"cgroupDriver"` // empty if the runtime does not report it
	ConfigKnown  bool   `json:"configKnown"`  // RuntimeConfig has completed, or is not supported
	// RecursiveReadOnly reports whether the default handler supports recursive read-only mounts.
	RecursiveReadOnly bool `json:"recursiveReadOnly,omitempty"`

	Conditions []Condition `json:"conditions,omitempty"`
	Handlers   []Handler   `json:"handlers,omitempty"`
	// SupplementalGroupsPolicy reports whether the runtime supports that field of pods; nil if the
	// runtime does not report it.
	SupplementalGroupsPolicy *bool `json:"supplementalGroupsPolicy,omitempty"`

	AsOf          time.Time `json:"asOf"`          // when the newest completed status was issued
	ReadyAt       time.Time `json:"readyAt"`       // when the runtime last reported that it is ready
	FirstStatusAt time.Time `json:"firstStatusAt"` // when the first status was reported
	// StartupDone reports whether runtime and network were ready once, or startMax has passed.
	StartupDone bool   `json:"startupDone"`
	Problem     string `json:"problem,omitempty"`

	Op     world.OpID `json:"op,omitempty"`
	NextAt time.Time  `json:"nextAt"`

	PodCIDR PodCIDR `json:"podCIDR"`
}

// Condition is a condition of the runtime: RuntimeReady or NetworkReady.
type Condition struct {
	Type    string `json:"type"`
	Status  bool   `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// Handler is a runtime handler, by the name in RuntimeClasses; the default handler's name is empty.
type Handler struct {
	Name           string `json:"name"`
	UserNamespaces bool   `json:"userNamespaces,omitempty"` // supports user namespaces of pods
	// RecursiveReadOnly reports whether the handler supports recursive read-only mounts.
	RecursiveReadOnly bool `json:"recursiveReadOnly,omitempty"`
}

// Handler returns the handler with a name, or nil.
func (r *Runtime) Handler(name string) *Handler {
	for i := range r.Handlers {
		if r.Handlers[i].Name == name {
			return &r.Handlers[i]
		}
	}
	return nil
}

// NotReadyMessage returns why no sandbox or container can be created, in the kubelet's words; empty
// unless the runtime has reported that it is not ready.
func (r *Runtime) NotReadyMessage() string {
	return r.notReadyMessage(runtimeapi.RuntimeReady, "container runtime not ready: ")
}

// NetworkNotReadyMessage is NotReadyMessage for sandboxes with their own network.
func (r *Runtime) NetworkNotReadyMessage() string {
	return r.notReadyMessage(runtimeapi.NetworkReady,
		"network is not ready: container runtime network not ready: ")
}

func (r *Runtime) notReadyMessage(condition, prefix string) string {
	if c := r.condition(condition); c != nil && !c.Status {
		return prefix + c.Type + "=false reason:" + c.Reason + " message:" + c.Message
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

// Plan issues one request for what is not known yet or due, and returns when to plan again.
func (r *Runtime) Plan(effects *op.Effects) time.Time {
	switch {
	case r.Op != 0:
		return time.Time{}
	case effects.Now().Before(r.NextAt):
		return r.NextAt
	case r.Name == "":
		r.Op = effects.Issue(Owner, "", requestTimeout, &runtimeapi.VersionRequest{})
	case !r.ConfigKnown:
		r.Op = effects.Issue(Owner, "", requestTimeout, &runtimeapi.RuntimeConfigRequest{})
	default:
		r.Op = effects.Issue(Owner, "", requestTimeout, &runtimeapi.StatusRequest{})
	}
	return time.Time{}
}

// HandleCompletion applies the completion of a request.
func (r *Runtime) HandleCompletion(rec op.Record, ev world.Event, effects *op.Effects) {
	r.Op = 0
	if v, ok := ev.Body.(*runtimeapi.VersionResponse); ok && ev.Err == nil && v.RuntimeName == "" {
		ev.Err = world.Errorf(world.KindInternal, rec.Call, "the runtime's answer has no runtimeName")
	}
	if ev.Err != nil {
		r.recordFailure(rec, ev, effects)
		return
	}
	r.Problem = ""
	switch body := ev.Body.(type) {
	case *runtimeapi.VersionResponse:
		r.Name, r.Version = body.RuntimeName, body.RuntimeVersion
		effects.Log(world.LevelInfo, "runtime connected", "runtimeName", r.Name,
			"runtimeVersion", r.Version)
	case *runtimeapi.RuntimeConfigResponse:
		r.ConfigKnown = true
		if linux := body.GetLinux(); linux != nil {
			r.CgroupDriver = linux.CgroupDriver.String()
		}
	case *runtimeapi.StatusResponse:
		r.AsOf, r.Conditions, r.Handlers = rec.IssuedAt, nil, nil
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
		r.recordStartup(ev.Time)
		defaultHandler := r.Handler("")
		r.RecursiveReadOnly = defaultHandler != nil && defaultHandler.RecursiveReadOnly
	}
}

// recordStartup records whether the startup is done, and when to request the next status: soon,
// until it is.
func (r *Runtime) recordStartup(now time.Time) {
	if r.FirstStatusAt.IsZero() {
		r.FirstStatusAt = now
	}
	r.StartupDone = r.StartupDone || r.NotReadyMessage() == "" && r.NetworkNotReadyMessage() == "" ||
		now.Sub(r.FirstStatusAt) >= startMax
	if r.NextAt = now.Add(startPeriod); r.StartupDone {
		r.NextAt = now.Add(statusPeriod)
	}
}

func (r *Runtime) recordFailure(rec op.Record, ev world.Event, effects *op.Effects) {
	if rec.Call == "RuntimeConfig" && ev.Err.Kind == world.KindUnimplemented {
		r.ConfigKnown = true // containerd before 2.0 does not support the call
		return
	}
	if r.Problem == "" {
		r.PodCIDR.forget() // the runtime may be restarting
		effects.Log(world.LevelWarning, "the runtime does not respond", "call", rec.Call,
			"err", ev.Err.Error())
	}
	r.Problem = ev.Err.Error()
	r.NextAt = ev.Time.Add(statusPeriod)
}
