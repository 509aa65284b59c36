// Package probe decides when a probe is due, interprets its results, and applies the thresholds, as
// the kubelet's probe workers do.
//
// Facts: for one probe of one container the newest results, and the result by the thresholds
// (Prober). A new container has another ID and starts without results (upstream #141155). Plan:
// NextProbeAt returns when the next probe is due; NewRequest in request.go builds it. Events: the
// completion of a probe. A Prober is part of the facts of a pod's container and has no operations
// of its own: package pod issues them. Start reading at Prober.
package probe

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// Kind is the kind of a probe.
type Kind string

// The kinds of probes, in the words of the kubelet's messages.
const (
	Startup   Kind = "Startup"   // until it succeeds, the other probes wait
	Liveness  Kind = "Liveness"  // a failure restarts the container by its restart policy
	Readiness Kind = "Readiness" // a failure makes the container unready
)

// Result is the result of a probe.
type Result string

// The results.
const (
	Unknown Result = ""
	Success Result = "Success"
	Failure Result = "Failure"
)

// Prober is the state of one probe of one container.
type Prober struct {
	Kind   Kind       `json:"kind"`
	Op     world.OpID `json:"op,omitempty"` // the probe in flight
	NextAt time.Time  `json:"nextAt"`       // not probed before; zero: at once

	Last Result `json:"last,omitempty"` // of the newest completed probe
	// Consecutive is the number of consecutive probes with the result Last.
	Consecutive int32  `json:"consecutive,omitempty"`
	Result      Result `json:"result,omitempty"`  // by the thresholds
	Message     string `json:"message,omitempty"` // of the newest failure, its first bytes
	// Errors is the number of times that the runtime could not run the probe that is due.
	Errors int `json:"errors,omitempty"`
}

// MessageMax limits the message that a Prober keeps, in bytes: a pod may have hundreds of probes.
// The Event of a failure has more.
const MessageMax = 1024

// attemptsMax is how often a probe is tried that the runtime cannot run. The attempts follow each
// other at once, as the kubelet's (maxProbeRetries in pkg/kubelet/prober/prober.go).
const attemptsMax = 3

// SpecOf returns the probe of a kind of a container, or nil.
func SpecOf(c *v1.Container, kind Kind) *v1.Probe {
	switch kind {
	case Startup:
		return c.StartupProbe
	case Liveness:
		return c.LivenessProbe
	default:
		return c.ReadinessProbe
	}
}

// NextProbeAt returns when to probe next a container that started at a time.
func (p *Prober) NextProbeAt(spec *v1.Probe, started time.Time) time.Time {
	if p.Errors > 0 {
		return time.Time{}
	}
	first := started.Add(time.Duration(spec.InitialDelaySeconds) * time.Second)
	if p.NextAt.Before(first) {
		return first
	}
	return p.NextAt
}

// Issued records that a probe is in flight.
func (p *Prober) Issued(op world.OpID, spec *v1.Probe, now time.Time) {
	p.Op = op
	if p.Errors > 0 {
		return // the period begins with the first attempt
	}
	p.NextAt = now.Add(time.Duration(max(spec.PeriodSeconds, 1)) * time.Second)
}

// HandleError records that the runtime could not run the probe, and reports whether the probe is
// tried again.
func (p *Prober) HandleError() bool {
	p.Op = 0
	p.Errors = (p.Errors + 1) % attemptsMax
	return p.Errors > 0
}

// HandleCompletion applies the result of a probe, and reports whether the result by the thresholds
// has changed. A probe with an unknown result has no effect.
func (p *Prober) HandleCompletion(spec *v1.Probe, result Result, message string) bool {
	p.Op, p.Errors = 0, 0
	if result == Unknown {
		return false
	}
	if p.Last != result {
		p.Last, p.Consecutive = result, 0
	}
	p.Consecutive++
	threshold := spec.SuccessThreshold
	if result == Failure {
		threshold, p.Message = spec.FailureThreshold, budget.Cut(message, MessageMax)
	}
	if p.Consecutive < max(threshold, 1) || p.Result == result {
		return false
	}
	p.Result = result
	return true
}
