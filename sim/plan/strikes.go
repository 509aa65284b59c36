package plan

import (
	"fmt"
	"slices"
)

// A strike ends a process or the machine from outside.

// AgentKill kills the agent's process. It happens either at a time, or right after the agent has
// issued a number of effects, counted over all its incarnations.
type AgentKill struct {
	At           Duration `json:"at,omitempty"`
	AfterEffects int      `json:"afterEffects,omitempty"`
	Down         Duration `json:"down"`
}

// RuntimeRestart restarts the process of the container runtime.
type RuntimeRestart struct {
	At   Duration `json:"at"`
	Down Duration `json:"down"`
}

// Reboot powers the machine off, and boots it after a while.
type Reboot struct {
	At   Duration `json:"at"`
	Down Duration `json:"down"`
}

// ContainerKill kills the process of a container, if it runs at that time.
type ContainerKill struct {
	At        Duration `json:"at"`
	Pod       string   `json:"pod"` // the name of an entry of pods
	Container string   `json:"container"`
	ExitCode  int32    `json:"exitCode"`
}

// SandboxKill kills the pause process of a pod's ready sandbox, if it has one at that time.
type SandboxKill struct {
	At  Duration `json:"at"`
	Pod string   `json:"pod"`
}

// StrikeRange is how many strikes there may be.
type StrikeRange struct {
	Agent       Count `json:"agent,omitempty"`       // kills of the agent
	AgentDown   Span  `json:"agentDown,omitempty"`   // until the agent starts again
	Runtime     Count `json:"runtime,omitempty"`     // restarts of the container runtime
	RuntimeDown Span  `json:"runtimeDown,omitempty"` // until the runtime is back
	Reboots     Count `json:"reboots,omitempty"`     // of the machine
	RebootTakes Span  `json:"rebootTakes,omitempty"` // until the machine has booted
	Containers  Count `json:"containers,omitempty"`  // kills of a container's process
	Sandboxes   Count `json:"sandboxes,omitempty"`   // kills of a sandbox's process
	Always      bool  `json:"always,omitempty"`      // in every seed
}

// effectsPerPod is roughly how many effects the agent issues to start a pod. Kills that count
// effects are drawn from the effects of starting all pods, so most hit an agent that is at work.
const effectsPerPod = 14

func (g *generator) addStrikes() {
	s, spec := &g.scenario.Spec.Strikes, &g.plan.Spec
	r := g.stream("agent kills")
	for range g.occurrences("agent kills", s.Agent, s.Always) {
		kill := AgentKill{At: g.randomTime(r), Down: Duration(s.AgentDown.draw(r))}
		if effects := 1 + r.IntN(effectsPerPod*len(spec.Pods)+20); r.IntN(2) == 0 {
			kill.At, kill.AfterEffects = 0, effects
		}
		spec.AgentKills = append(spec.AgentKills, kill)
	}
	r = g.stream("runtime restarts")
	for range g.occurrences("runtime restarts", s.Runtime, s.Always) {
		spec.RuntimeRestarts = append(spec.RuntimeRestarts,
			RuntimeRestart{At: g.randomTime(r), Down: Duration(s.RuntimeDown.draw(r))})
	}
	r = g.stream("reboots")
	for range g.occurrences("reboots", s.Reboots, s.Always) {
		spec.Reboots = append(spec.Reboots,
			Reboot{At: g.randomTime(r), Down: Duration(s.RebootTakes.draw(r))})
	}
	r = g.stream("container kills")
	for range g.occurrences("container kills", s.Containers, s.Always) {
		pod := spec.Pods[r.IntN(len(spec.Pods))]
		names := containerNames(pod.Manifest)
		spec.ContainerKills = append(spec.ContainerKills, ContainerKill{
			At: g.randomTime(r), Pod: pod.Name, Container: names[r.IntN(len(names))],
			ExitCode: []int32{137, 137, 143, 1, 0}[r.IntN(5)],
		})
	}
	r = g.stream("sandbox kills")
	for range g.occurrences("sandbox kills", s.Sandboxes, s.Always) {
		spec.SandboxKills = append(spec.SandboxKills,
			SandboxKill{At: g.randomTime(r), Pod: spec.Pods[r.IntN(len(spec.Pods))].Name})
	}
}

func (s *Spec) validateStrikes() error {
	for i, k := range s.AgentKills {
		if (k.At == 0) == (k.AfterEffects <= 0) {
			return fmt.Errorf("spec.agentKills[%d]: want either at or afterEffects above 0", i)
		}
	}
	for i, k := range s.ContainerKills {
		victim := s.PodNamed(k.Pod)
		switch {
		case victim == nil:
			return fmt.Errorf("spec.kills[%d].pod: no pod is called %q", i, k.Pod)
		case !slices.Contains(containerNames(victim.Manifest), k.Container):
			return fmt.Errorf("spec.kills[%d].container: pod %s has no container %q", i, k.Pod,
				k.Container)
		case k.ExitCode < 0 || k.ExitCode > 255:
			return fmt.Errorf("spec.kills[%d].exitCode: want 0 to 255, have %d", i, k.ExitCode)
		}
	}
	for i, k := range s.SandboxKills {
		if s.PodNamed(k.Pod) == nil {
			return fmt.Errorf("spec.sandboxKills[%d].pod: no pod is called %q", i, k.Pod)
		}
	}
	return nil
}
