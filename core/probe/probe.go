// Package probe knows how well a container is, by what it answers when it is asked.
//
// It keeps: for one probe of one container of the runtime, how the last answers were and what the
// thresholds have made of them (Prober). A replacement of the container starts with nothing, for
// its id is another one (upstream #141155). When it is time to ask is a function of these facts
// (Due); what is asked, and what an answer means, is in ask.go. It is part of the facts of a pod's
// container and has no operations of its own: package pod begins them. Start reading at Prober.
package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Kind is what a probe is for.
type Kind string

// The kinds of probes, by the words of the kubelet's messages.
const (
	Startup   Kind = "Startup"   // has it started? The others wait for it
	Liveness  Kind = "Liveness"  // if not, it is ended, and restarted by policy
	Readiness Kind = "Readiness" // does it take requests?
)

// Result is what is known of how a container is.
type Result string

// The results.
const (
	Undecided Result = ""
	Good      Result = "Good"
	Bad       Result = "Bad"
)

// Prober is what is known about one probe of one container of the runtime.
type Prober struct {
	Kind   Kind       `json:"kind"`
	Op     world.OpID `json:"op,omitempty"` // the question in flight
	NextAt time.Time  `json:"nextAt"`       // not asked before then; zero: at once

	Last    Result `json:"last,omitempty"`    // of the newest answer
	InARow  int32  `json:"inARow,omitempty"`  // answers with that result
	Result  Result `json:"result,omitempty"`  // what the thresholds have made of them
	Message string `json:"message,omitempty"` // of the newest answer that was not good
}

// Of is the probe of a kind that a container has; nil if none.
func Of(c *v1.Container, kind Kind) *v1.Probe {
	switch kind {
	case Startup:
		return c.StartupProbe
	case Liveness:
		return c.LivenessProbe
	default:
		return c.ReadinessProbe
	}
}

// Due is when to ask next, for a container that began to run then.
func (p *Prober) Due(spec *v1.Probe, began time.Time) time.Time {
	first := began.Add(time.Duration(spec.InitialDelaySeconds) * time.Second)
	if p.NextAt.Before(first) {
		return first
	}
	return p.NextAt
}

// Asked records that a question is on its way.
func (p *Prober) Asked(op world.OpID, spec *v1.Probe, now time.Time) {
	p.Op = op
	p.NextAt = now.Add(time.Duration(max(spec.PeriodSeconds, 1)) * time.Second)
}

// Answered takes what an answer means, and reports whether the result has changed. An answer that
// means nothing is as if it had not been asked.
func (p *Prober) Answered(spec *v1.Probe, answer Result, message string) bool {
	p.Op = 0
	if answer == Undecided {
		return false
	}
	if p.Last != answer {
		p.Last, p.InARow = answer, 0
	}
	p.InARow++
	threshold := spec.SuccessThreshold
	if answer == Bad {
		threshold, p.Message = spec.FailureThreshold, message
	}
	if p.InARow < max(threshold, 1) || p.Result == answer {
		return false
	}
	p.Result = answer
	return true
}
