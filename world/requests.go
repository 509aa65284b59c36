package world

import v1 "k8s.io/api/core/v1"

// The requests port: what the node's HTTP API asks of the core. The world numbers requests; the
// core answers each in the step that takes it.

// RequestID names one request that waits for its answer.
type RequestID uint64

// PodsRequest asks for all pods with their live statuses.
type PodsRequest struct {
	Request RequestID `json:"request"`
}

// PodsAnswer answers PodsRequest, sorted by namespace, name and UID.
type PodsAnswer struct {
	Request RequestID `json:"request"`
	Pods    []*v1.Pod `json:"pods"`
}

// RunningPodsRequest asks for the pods of which anything runs, be it only a sandbox, as the runtime
// has them: whether anybody wants them does not matter.
type RunningPodsRequest struct {
	Request RequestID `json:"request"`
}

// RunningPodsAnswer answers RunningPodsRequest, sorted by namespace, name and UID. A pod has the
// names, the UID, and of each container that runs the name and the image; no status.
type RunningPodsAnswer struct {
	Request RequestID `json:"request"`
	Pods    []*v1.Pod `json:"pods"`
}

// ContainerRequest asks what in the runtime a client of the HTTP API means by the names of a pod
// and a container. The names are only compared with those that are known, and may be anything.
type ContainerRequest struct {
	Request   RequestID `json:"request"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	// UID is the pod's, or that of its mirror. Empty: the pod that is wanted under the name now,
	// even if another one that had the name still runs; if none is, the one that is being ended.
	UID       string `json:"uid,omitempty"`
	Container string `json:"container,omitempty"` // empty: the pod alone is meant
}

// ContainerAnswer answers ContainerRequest by what the core knows in the step that takes it. All of
// it is about one pod. With Err all else is empty.
type ContainerAnswer struct {
	Request RequestID `json:"request"`
	// Err is of KindNotFound: no source wants such a pod and none is being ended, or the container
	// is not in its spec. What only the runtime has is not found.
	Err   *Error `json:"err,omitempty"`
	UID   string `json:"uid,omitempty"`   // the pod's own
	Phase string `json:"phase,omitempty"` // the pod's, as it is shown; Unknown if it is not yet
	// SandboxID is that of the newest one that is ready; empty if none is.
	SandboxID string `json:"sandboxID,omitempty"`
	// ContainerID is that of the container's newest run; empty if there is none yet, or its record
	// has gone. What has been made and not been started is no run.
	ContainerID string `json:"containerID,omitempty"`
	TTY         bool   `json:"tty,omitempty"` // whether its spec gives the container a terminal
	// Status is what is shown of the container; nil if nothing is, as before the runtime has been
	// listed. If it has a container's id, that is ContainerID.
	Status *v1.ContainerStatus `json:"status,omitempty"`
}

// StateRequest asks for the snapshot of the core.
type StateRequest struct {
	Request RequestID `json:"request"`
}

// StateAnswer answers StateRequest.
type StateAnswer struct {
	Request RequestID `json:"request"`
	State   []byte    `json:"state"` // JSON, secrets redacted
}

// HealthRequest asks whether the agent is well.
type HealthRequest struct {
	Request RequestID `json:"request"`
}

// HealthAnswer answers HealthRequest.
type HealthAnswer struct {
	Request RequestID `json:"request"`
	Checks  []Check   `json:"checks"`
}

// Check is the outcome of one health check; an empty Problem is good.
type Check struct {
	Name    string `json:"name"`
	Problem string `json:"problem,omitempty"`
}

// MetricsRequest asks for the core's counters and bounds, or for those of the probes instead, of
// which there are some for every container that is probed.
type MetricsRequest struct {
	Request RequestID `json:"request"`
	Probes  bool      `json:"probes,omitempty"`
}

// MetricsAnswer answers MetricsRequest, sorted by name.
type MetricsAnswer struct {
	Request RequestID `json:"request"`
	Metrics []Metric  `json:"metrics"`
}

// Metric is one number that the core keeps, or one histogram.
type Metric struct {
	Name    string  `json:"name"`    // in Prometheus form, with its unit last
	Help    string  `json:"help"`    // one sentence
	Counter bool    `json:"counter"` // only ever grows; otherwise a gauge
	Labels  []Label `json:"labels,omitempty"`
	Value   float64 `json:"value"`
	// Histogram, if not nil, is what there is instead of a value.
	Histogram *Histogram `json:"histogram,omitempty"`
}

// Label is what tells a metric from others of its name.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Histogram is how values were distributed.
type Histogram struct {
	Bounds []float64 `json:"bounds"` // upper ones of the buckets, ascending
	Counts []uint64  `json:"counts"` // of values at or below each bound
	Count  uint64    `json:"count"`  // of all values
	Sum    float64   `json:"sum"`
}
