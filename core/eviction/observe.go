package eviction

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// Observations of the node and of its pods, and what follows from those of the node.

// Observation is what is available of a resource.
type Observation struct {
	Available int64     `json:"available"`
	Capacity  int64     `json:"capacity"`
	AsOf      time.Time `json:"asOf"` // when it was asked for
}

// PodUsage is what a pod uses.
type PodUsage struct {
	MemoryBytes int64            `json:"memoryBytes"` // its working set
	Processes   int64            `json:"processes"`
	Containers  []ContainerUsage `json:"containers,omitempty"`
}

// ContainerUsage is what a container uses.
type ContainerUsage struct {
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memoryBytes"`
}

// HandleCompletion handles the completion of an observation. It reports whether the pressure
// conditions have changed, or are known for the first time.
func (m *Manager) HandleCompletion(id world.OpID, ev world.Event, env *Env) bool {
	if a := m.Attempt; a != nil && a.Op == id {
		m.handleUsage(ev, env)
		return false
	}
	m.Op = 0
	measured, ok := ev.Body.(*world.NodeMeasured)
	if ev.Err != nil || !ok {
		env.Effects.Log(world.LevelError, "Eviction manager: failed to observe the node", "err",
			ev.Err.Error())
		return false // the conditions stay as they are
	}
	m.observe(measured, env)
	before, decided := m.Pressure, m.Decided
	m.evaluate(ev.Time)
	m.startAttempt(env)
	m.Decided = true
	return !decided || !slices.Equal(before, m.Pressure)
}

// observe records the signals that an observation of the node has.
func (m *Manager) observe(n *world.NodeMeasured, env *Env) {
	m.Observed = map[Signal]Observation{}
	if n.MemoryBytes > 0 {
		m.Observed[MemoryAvailable] = Observation{Capacity: n.MemoryBytes,
			Available: max(0, n.MemoryBytes-n.WorkingSetBytes), AsOf: m.AskedAt}
	}
	if limit := env.PodsMemoryMax; limit > 0 && n.PodsWorkingSetBytes > 0 {
		m.Observed[AllocatableMemoryAvailable] = Observation{Capacity: limit,
			Available: max(0, limit-n.PodsWorkingSetBytes), AsOf: m.AskedAt}
	}
	if n.ProcessesMax > 0 {
		m.Observed[PIDAvailable] = Observation{Capacity: n.ProcessesMax,
			Available: n.ProcessesMax - n.Processes, AsOf: m.AskedAt}
	}
}

// evaluate determines which thresholds are met, and the conditions that follow.
func (m *Manager) evaluate(now time.Time) {
	for i := range m.Thresholds {
		t := &m.Thresholds[i]
		o, isObserved := m.Observed[t.Signal]
		switch {
		case isObserved && !t.isMet(&o):
			t.MetSince, t.Starved = time.Time{}, false
		case isObserved:
			if t.MetSince.IsZero() {
				t.MetSince = now
			}
			t.Starved = now.Sub(t.MetSince) >= t.Grace
			m.noteMet(t.Signal.condition(), now)
		case !t.MetSince.IsZero(): // nothing says that it is not met any more
			m.noteMet(t.Signal.condition(), now)
		}
	}
	m.updatePressure(now)
}

// updatePressure determines which conditions were observed within the transition period.
func (m *Manager) updatePressure(now time.Time) {
	m.Pressure = nil
	for _, c := range pressureConditions {
		if at, met := m.LastMet[c]; met && now.Sub(at) < m.Transition {
			m.Pressure = append(m.Pressure, c)
		}
	}
}

func (m *Manager) noteMet(c v1.NodeConditionType, now time.Time) {
	if m.LastMet == nil {
		m.LastMet = map[v1.NodeConditionType]time.Time{}
	}
	m.LastMet[c] = now
}

// startAttempt starts the search for a victim if a threshold asks for one. Memory comes before all
// other resources, and a hard threshold before one that could wait.
func (m *Manager) startAttempt(env *Env) {
	chosen := -1
	for i := range m.Thresholds {
		t := &m.Thresholds[i]
		o, isObserved := m.Observed[t.Signal]
		if !isObserved || !t.Starved || o.AsOf.Before(m.NotBefore) {
			continue
		}
		if chosen < 0 || t.isBefore(&m.Thresholds[chosen]) {
			chosen = i
		}
	}
	if chosen < 0 || m.Victim != nil {
		return
	}
	m.Attempt = &Attempt{Threshold: chosen, Answered: m.UsageFailures >= usageFailuresMax}
	env.Effects.RecordEvent(env.Node, v1.EventTypeWarning, "EvictionThresholdMet",
		"Attempting to reclaim %s", m.Thresholds[chosen].Signal.resource())
}

// handleUsage handles the observation of the pods. After a failure the next observation of the node
// starts another attempt.
func (m *Manager) handleUsage(ev world.Event, env *Env) {
	a := m.Attempt
	a.Op = 0
	listed, ok := ev.Body.(*runtimeapi.ListPodSandboxStatsResponse)
	if ev.Err != nil || !ok {
		m.UsageFailures++
		m.Attempt = nil
		env.Effects.Log(world.LevelError, "Eviction manager: failed to observe the pods", "err",
			ev.Err.Error())
		return
	}
	m.UsageFailures = 0
	a.Answered, a.Usage = true, usageOf(listed)
}

// usageOf returns the usage of each pod that has a sandbox, by UID.
func usageOf(listed *runtimeapi.ListPodSandboxStatsResponse) map[string]*PodUsage {
	usage := map[string]*PodUsage{}
	for _, s := range listed.GetStats() {
		uid, linux := s.GetAttributes().GetMetadata().GetUid(), s.GetLinux()
		if uid == "" || linux.GetMemory().GetWorkingSetBytes() == nil {
			continue
		}
		u := usage[uid]
		if u == nil {
			u = &PodUsage{}
			usage[uid] = u
		}
		u.MemoryBytes += int64(linux.GetMemory().GetWorkingSetBytes().GetValue())
		u.Processes += int64(linux.GetProcess().GetProcessCount().GetValue())
		for _, c := range linux.GetContainers() {
			if memory := c.GetMemory().GetWorkingSetBytes(); memory != nil {
				u.Containers = append(u.Containers, ContainerUsage{
					Name: c.GetAttributes().GetMetadata().GetName(), MemoryBytes: int64(memory.GetValue())})
			}
		}
	}
	return usage
}
