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

// MetricsRequest asks for the core's counters and bounds.
type MetricsRequest struct {
	Request RequestID `json:"request"`
}

// MetricsAnswer answers MetricsRequest, sorted by name.
type MetricsAnswer struct {
	Request RequestID `json:"request"`
	Metrics []Metric  `json:"metrics"`
}

// Metric is one number that the core keeps.
type Metric struct {
	Name    string  `json:"name"`    // in Prometheus form, with its unit last
	Help    string  `json:"help"`    // one sentence
	Counter bool    `json:"counter"` // only ever grows; otherwise a gauge
	Label   string  `json:"label,omitempty"`
	Subject string  `json:"subject,omitempty"` // the label's value
	Value   float64 `json:"value"`
}
