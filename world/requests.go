package world

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// The requests port: the node's HTTP API requests facts from the core. The world numbers the
// requests. The core responds to each in the step that handles the request.

// RequestID identifies one request that waits for its response.
type RequestID uint64

// PodsRequest requests all pods with their current statuses.
type PodsRequest struct {
	Request RequestID `json:"request"`
}

// PodsAnswer is the response to PodsRequest, sorted by namespace, name and UID.
type PodsAnswer struct {
	Request RequestID `json:"request"`
	Pods    []*v1.Pod `json:"pods"`
}

// RunningPodsRequest requests the pods that have anything running in the runtime, even if only a
// sandbox, regardless of whether any source desires them.
type RunningPodsRequest struct {
	Request RequestID `json:"request"`
}

// RunningPodsAnswer is the response to RunningPodsRequest, sorted by namespace, name and UID. A pod
// has its namespace, name and UID, and the name and image of each running container; it has no
// status.
type RunningPodsAnswer struct {
	Request RequestID `json:"request"`
	Pods    []*v1.Pod `json:"pods"`
}

// ContainerRequest resolves the names of a pod and a container, as a client of the HTTP API gives
// them, to objects of the runtime. The names are only compared with known names and may be any
// strings.
type ContainerRequest struct {
	Request   RequestID `json:"request"`
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	// UID is the UID of the pod or of its mirror pod. If it is empty the request is for the pod
	// that is desired under the name now, even if an earlier pod of that name still runs; if no pod
	// is desired it is for the one that is being terminated.
	UID       string `json:"uid,omitempty"`
	Container string `json:"container,omitempty"` // empty: the request is for the pod only
}

// ContainerAnswer is the response to ContainerRequest, from the facts that the core has in the step
// that handles the request. All fields are about one pod. If Err is set all fields but UID are
// empty.
type ContainerAnswer struct {
	Request RequestID `json:"request"`
	// Err is of KindNotFound if no source desires the pod and it is not being terminated, or if the
	// container is not in its spec, and UID tells which. A pod that only the runtime knows is not
	// found.
	Err   *Error `json:"err,omitempty"`
	UID   string `json:"uid,omitempty"`   // of the pod, not of its mirror
	Phase string `json:"phase,omitempty"` // the reported phase; Unknown before the first relist
	// SandboxID is the ID of the newest ready sandbox; empty if none is ready.
	SandboxID string `json:"sandboxID,omitempty"`
	// ContainerID is the ID of the container's newest run; empty if it has not run or its record
	// has been removed. A container that was created and never started is not a run.
	ContainerID string `json:"containerID,omitempty"`
	TTY         bool   `json:"tty,omitempty"` // the spec allocates a TTY for the container
	// Status is the reported status of the container; nil if none is reported, as before the first
	// relist. Its container ID, if set, equals ContainerID.
	Status *v1.ContainerStatus `json:"status,omitempty"`
}

// VolumeStatsRequest requests the usage of the volumes of pods that are backed by storage.
type VolumeStatsRequest struct {
	Request RequestID `json:"request"`
}

// VolumeStatsAnswer is the response to VolumeStatsRequest, sorted by UID and name of the volume. A
// volume that was not measured yet, or whose last measurement has failed, is left out.
type VolumeStatsAnswer struct {
	Request RequestID     `json:"request"`
	Volumes []VolumeUsage `json:"volumes"`
}

// VolumeUsage is the usage of one volume of a pod.
type VolumeUsage struct {
	UID        string    `json:"uid"` // of the pod
	Namespace  string    `json:"namespace"`
	Volume     string    `json:"volume"`          // its name in the spec of the pod
	Claim      string    `json:"claim,omitempty"` // empty: the volume has none
	MeasuredAt time.Time `json:"measuredAt"`      // the date
	// Stats are the driver's, or those of the file system. Their numbers are not negative.
	Stats CSIVolumeStats `json:"stats"`
}

// StateRequest requests a snapshot of the core's state.
type StateRequest struct {
	Request RequestID `json:"request"`
}

// StateAnswer is the response to StateRequest.
type StateAnswer struct {
	Request RequestID `json:"request"`
	State   []byte    `json:"state"` // JSON, with secrets redacted
}

// HealthRequest requests the health checks of the agent.
type HealthRequest struct {
	Request RequestID `json:"request"`
}

// HealthAnswer is the response to HealthRequest.
type HealthAnswer struct {
	Request RequestID `json:"request"`
	Checks  []Check   `json:"checks"`
}

// Check is the result of one health check. An empty Problem means healthy.
type Check struct {
	Name    string `json:"name"`
	Problem string `json:"problem,omitempty"`
}

// MetricsRequest requests the core's metrics. If Probes is set it requests the probe metrics
// instead, which have a series for every probed container.
type MetricsRequest struct {
	Request RequestID `json:"request"`
	Probes  bool      `json:"probes,omitempty"`
}

// MetricsAnswer is the response to MetricsRequest, sorted by name.
type MetricsAnswer struct {
	Request RequestID `json:"request"`
	Metrics []Metric  `json:"metrics"`
}

// Metric is one sample of a counter or gauge, or one histogram.
type Metric struct {
	Name    string  `json:"name"`    // of Prometheus, with the unit as suffix
	Help    string  `json:"help"`    // one sentence
	Counter bool    `json:"counter"` // a counter if set, otherwise a gauge
	Labels  []Label `json:"labels,omitempty"`
	Value   float64 `json:"value"`
	// Histogram, if not nil, replaces Value.
	Histogram *Histogram `json:"histogram,omitempty"`
}

// Label is a label of a metric.
type Label struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Histogram is a distribution of values.
type Histogram struct {
	Bounds []float64 `json:"bounds"` // upper bounds of the buckets, ascending
	Counts []uint64  `json:"counts"` // number of values at or below each bound
	Count  uint64    `json:"count"`  // number of all values
	Sum    float64   `json:"sum"`
}
