package plan

import (
	"fmt"
	"maps"
	"slices"
)

// A strike ends a process or the machine from outside.

// AgentKill kills the agent's process. With an anchor at an effect it comes right after that
// effect: the other effects of the step are lost.
type AgentKill struct {
	Down Duration `json:"down"`
	// Config has fields of the configuration that the agents have from then on, besides those of the
	// node. Absent: the configuration stays.
	Config map[string]any `json:"config,omitempty"`
}

// RuntimeRestart restarts the process of the container runtime.
type RuntimeRestart struct {
	Down Duration `json:"down"`
}

// Reboot powers the machine off, and boots it after a while.
type Reboot struct {
	Down Duration `json:"down"`
}

// ContainerKill kills the process of a container, if it runs at that time.
type ContainerKill struct {
	Pod       string `json:"pod"` // the name of an entry of pods
	Container string `json:"container"`
	ExitCode  int32  `json:"exitCode"`
}

// SandboxKill kills the pause process of a pod's ready sandbox, if it has one at that time.
type SandboxKill struct {
	Pod string `json:"pod"`
}

// StrikeRange is how many strikes there may be.
type StrikeRange struct {
	Agent     Count `json:"agent,omitempty"`     // kills of the agent
	AgentDown Span  `json:"agentDown,omitempty"` // until the agent starts again
	// AgentCalls are the calls of which the agent is killed after one, in half of the kills. Absent:
	// it is any effect.
	AgentCalls []string `json:"agentCalls,omitempty"`
	// AgentConfigs are sets of fields of the configuration. After a kill the agent has one of them.
	AgentConfigs []map[string]any `json:"agentConfigs,omitempty"`

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

// callsPerPod is how many calls of one kind kills are drawn from, for each pod.
const callsPerPod = 3

func (g *generator) addStrikes() {
	s, spec := &g.scenario.Spec.Strikes, &g.plan.Spec
	r := g.stream("agent kills")
	for range g.occurrences("agent kills", s.Agent, s.Always) {
		at, kill := g.randomTime(r), &AgentKill{Down: Duration(s.AgentDown.draw(r))}
		effects, isAnchored := 1+r.IntN(effectsPerPod*len(spec.Pods)+20), r.IntN(2) == 0
		if n := len(s.AgentConfigs); n > 0 {
			kill.Config = s.AgentConfigs[r.IntN(n)]
		}
		anchor := Anchor{Effect: AnyEffect, Nth: effects}
		if n := len(s.AgentCalls); n > 0 {
			anchor = Anchor{Effect: s.AgentCalls[r.IntN(n)], Nth: 1 + r.IntN(callsPerPod*len(spec.Pods))}
		}
		if isAnchored {
			g.addOn(anchor, kill)
		} else {
			g.add(at, kill)
		}
	}
	r = g.stream("runtime restarts")
	for range g.occurrences("runtime restarts", s.Runtime, s.Always) {
		g.add(g.randomTime(r), &RuntimeRestart{Down: Duration(s.RuntimeDown.draw(r))})
	}
	r = g.stream("reboots")
	for range g.occurrences("reboots", s.Reboots, s.Always) {
		g.add(g.randomTime(r), &Reboot{Down: Duration(s.RebootTakes.draw(r))})
	}
	r = g.stream("container kills")
	for range g.podOccurrences("container kills", s.Containers, s.Always) {
		pod := spec.Pods[r.IntN(len(spec.Pods))]
		names := containerNames(pod.Manifest)
		g.add(g.randomTime(r), &ContainerKill{
			Pod: pod.Name, Container: names[r.IntN(len(names))],
			ExitCode: []int32{137, 137, 143, 1, 0}[r.IntN(5)],
		})
	}
	r = g.stream("sandbox kills")
	for range g.podOccurrences("sandbox kills", s.Sandboxes, s.Always) {
		g.add(g.randomTime(r), &SandboxKill{Pod: spec.Pods[r.IntN(len(spec.Pods))].Name})
	}
}

func (k *AgentKill) validate(s *Spec) error {
	if _, err := KubeletConfig(k.ConfigOf(&s.Node)); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

// ConfigOf returns the fields of the configuration that the agents of a node have from then on.
func (k *AgentKill) ConfigOf(n *Node) map[string]any {
	fields := map[string]any{}
	maps.Copy(fields, n.Config)
	maps.Copy(fields, k.Config)
	return fields
}

// Length implements Deed.
func (k *AgentKill) Length() Duration { return 0 }

// PodEntry implements Deed.
func (k *AgentKill) PodEntry() string { return "" }

func (e *RuntimeRestart) validate(*Spec) error { return nil }

// Length implements Deed.
func (e *RuntimeRestart) Length() Duration { return e.Down }

// PodEntry implements Deed.
func (e *RuntimeRestart) PodEntry() string { return "" }

func (e *Reboot) validate(*Spec) error { return nil }

// Length implements Deed.
func (e *Reboot) Length() Duration { return e.Down }

// PodEntry implements Deed.
func (e *Reboot) PodEntry() string { return "" }

func (k *ContainerKill) validate(s *Spec) error {
	if k.ExitCode < 0 || k.ExitCode > 255 {
		return fmt.Errorf("exitCode: want 0 to 255, have %d", k.ExitCode)
	}
	return s.validateContainer(k.Pod, k.Container)
}

// Length implements Deed.
func (k *ContainerKill) Length() Duration { return 0 }

// PodEntry implements Deed.
func (k *ContainerKill) PodEntry() string { return k.Pod }

func (k *SandboxKill) validate(s *Spec) error { return s.validatePodName(k.Pod) }

// Length implements Deed.
func (k *SandboxKill) Length() Duration { return 0 }

// PodEntry implements Deed.
func (k *SandboxKill) PodEntry() string { return k.Pod }

func (s *Spec) validatePodName(pod string) error {
	if s.PodNamed(pod) == nil {
		return fmt.Errorf("pod: no pod is called %q", pod)
	}
	return nil
}

func (s *Spec) validateContainer(pod, container string) error {
	if err := s.validatePodName(pod); err != nil {
		return err
	}
	if !slices.Contains(containerNames(s.PodNamed(pod).Manifest), container) {
		return fmt.Errorf("container: pod %s has no container %q", pod, container)
	}
	return nil
}
