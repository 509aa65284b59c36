package plan

import (
	"fmt"
	"slices"
	"time"
)

// An anomaly is a state of the runtime that a correct runtime should not get into, and that node
// agents meet all the same.

// ClockStep sets the runtime's clock forward or back against the agent's. The clock is right again
// when the faults heal; times that the runtime has recorded stay as they are.
type ClockStep struct {
	At Duration       `json:"at"`
	By SignedDuration `json:"by"`
}

// LostContainer makes the runtime lose track of a container for a while, if it runs at that time:
// the container is in state UNKNOWN. Without For it stays so until it is stopped.
type LostContainer struct {
	At        Duration `json:"at"`
	For       Duration `json:"for,omitempty"`
	Pod       string   `json:"pod"` // the name of an entry of pods
	Container string   `json:"container"`
}

// SandboxRemoval has an administrator remove a sandbox of a pod by hand, with its containers.
type SandboxRemoval struct {
	At  Duration `json:"at"`
	Pod string   `json:"pod"`
	// DuringCreation waits for the next sandbox of the pod, and removes it before the response of
	// its creation reaches the agent. Otherwise the pod's newest sandbox is removed, if any.
	DuringCreation bool `json:"making,omitempty"`
}

// AnomalyRange is how many anomalies there may be.
type AnomalyRange struct {
	ClockSteps      Count            `json:"clock,omitempty"`   // of the runtime's clock
	ClockStepBy     []SignedDuration `json:"clockBy,omitempty"` // one is drawn for each step
	LostContainers  Count            `json:"lost,omitempty"`
	LostFor         Span             `json:"lostFor,omitempty"`  // half of them; others until stopped
	SandboxRemovals Count            `json:"removals,omitempty"` // by hand
	Always          bool             `json:"always,omitempty"`   // in every seed
}

func (g *generator) addAnomalies() {
	s, spec := &g.scenario.Spec.Anomalies, &g.plan.Spec
	r := g.stream("clock")
	for range g.occurrences("clock", s.ClockSteps, s.Always) {
		if len(s.ClockStepBy) > 0 {
			spec.ClockSteps = append(spec.ClockSteps,
				ClockStep{At: g.randomTime(r), By: s.ClockStepBy[r.IntN(len(s.ClockStepBy))]})
		}
	}
	r = g.stream("lost")
	for range g.occurrences("lost", s.LostContainers, s.Always) {
		pod := spec.Pods[r.IntN(len(spec.Pods))]
		names := containerNames(pod.Manifest)
		lost := LostContainer{At: g.randomTime(r), For: Duration(s.LostFor.draw(r)), Pod: pod.Name,
			Container: names[r.IntN(len(names))]}
		if r.IntN(2) == 0 {
			lost.For = 0
		}
		spec.LostContainers = append(spec.LostContainers, lost)
	}
	r = g.stream("removals")
	for range g.occurrences("removals by hand", s.SandboxRemovals, s.Always) {
		spec.SandboxRemovals = append(spec.SandboxRemovals, SandboxRemoval{At: g.randomTime(r),
			Pod: spec.Pods[r.IntN(len(spec.Pods))].Name, DuringCreation: r.IntN(2) == 0})
	}
}

func (s *Spec) validateAnomalies() error {
	for i, l := range s.LostContainers {
		victim := s.PodNamed(l.Pod)
		if victim == nil || !slices.Contains(containerNames(victim.Manifest), l.Container) {
			return fmt.Errorf("spec.lost[%d]: no pod %q has a container %q", i, l.Pod, l.Container)
		}
	}
	for i, r := range s.SandboxRemovals {
		if s.PodNamed(r.Pod) == nil {
			return fmt.Errorf("spec.sandboxRemovals[%d].pod: no pod is called %q", i, r.Pod)
		}
	}
	return nil
}

// anomalyTimes returns when anomalies happen or end.
func (s *Spec) anomalyTimes() []Duration {
	var all []Duration
	for _, c := range s.ClockSteps {
		all = append(all, c.At)
	}
	for _, l := range s.LostContainers {
		all = append(all, l.At+l.For)
	}
	for _, r := range s.SandboxRemovals {
		all = append(all, r.At)
	}
	return all
}

// ClockSkew returns how far the runtime's clock is ahead of the agent's at a time. A change of the
// date is one of the runtime's clock as well.
func (s *Spec) ClockSkew(at time.Time) time.Duration {
	skew := s.DateOffset(at)
	for _, c := range s.ClockSteps {
		if d := at.Sub(Start); d >= time.Duration(c.At) && d < time.Duration(s.Duration) {
			skew += time.Duration(c.By)
		}
	}
	return skew
}
