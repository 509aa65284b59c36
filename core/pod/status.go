package pod

import (
	"time"

	v1 "k8s.io/api/core/v1"
)

// Status is the part of the pod's status that does not follow from its other facts alone. Package
// podstatus updates it after every plan.
type Status struct {
	// Reportable reports that the status can be reported: all that it depends on was observed once.
	Reportable bool `json:"reportable"`
	// Phase never changes once it is terminal.
	Phase v1.PodPhase `json:"phase"`
	// ReportedFirst is a terminal phase that is not durable yet, and that only the API server is given
	// (UnreportedTerminalPhase); empty if there is none.
	ReportedFirst v1.PodPhase `json:"reportedFirst,omitempty"`
	Conditions    []Condition `json:"conditions,omitempty"`
}

// Condition is a condition of a pod, with the time of its last transition.
type Condition struct {
	Type    v1.PodConditionType `json:"type"`
	Status  bool                `json:"status"`
	Reason  string              `json:"reason,omitempty"`
	Message string              `json:"message,omitempty"`
	Since   time.Time           `json:"since"`
	// Generation is that of the spec that a resize is for; zero for the current one.
	Generation int64 `json:"generation,omitempty"`
}
