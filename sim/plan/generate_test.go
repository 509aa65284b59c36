package plan

import (
	"fmt"
	"strings"
	"testing"
)

// A seed may draw no pod at all: then nothing happens to one, but much to the node.
func TestPlanWithoutPods(t *testing.T) {
	without := 0
	for seed := range uint64(30) {
		text := strings.NewReplacer("count: 4", "count: 0..1", "  strikes: {containers: 0..5}\n", `
  requests: 5..50
  strikes: {agent: 1..5, agentDown: 1s, containers: 1..5, sandboxes: 1..5}
  odd: {lost: 1..5, lostFor: 1s..2s, removals: 1..5}
`).Replace(respondingPods)
		p := generate(t, text, "", seed)
		if len(p.Spec.Pods) > 0 {
			continue
		}
		without++
		for _, h := range p.Spec.Happenings {
			if deed, _ := h.Deed(); deed.PodEntry() != "" {
				t.Errorf("seed %d: an entry is about pod %s", seed, deed.PodEntry())
			}
		}
	}
	if without < 5 {
		t.Errorf("%d plans without pods, want at least 5", without)
	}
}

// Kills of the agent come right after the calls of the scenario, and give it one of the sets of
// fields of the configuration.
func TestKillsOfAgent(t *testing.T) {
	calls, configs := map[string]bool{}, map[string]bool{}
	for seed := range uint64(20) {
		text := strings.Replace(respondingPods, "  strikes: {containers: 0..5}\n", `
  strikes: {agent: 2..5, agentDown: 1s, always: true, agentCalls: [SetCgroup, WriteFile],
    agentConfigs: [{maxPods: 7}, {maxPods: 9}]}
`, 1)
		for _, h := range generate(t, text, "", seed).Spec.Happenings {
			if h.KillAgent == nil {
				continue
			}
			if h.When != nil {
				calls[h.When.Effect] = true
			}
			configs[fmt.Sprint(h.KillAgent.Config)] = true
		}
	}
	if len(calls) != 2 || !calls["SetCgroup"] || !calls["WriteFile"] || len(configs) != 2 ||
		!configs["map[maxPods:7]"] {
		t.Errorf("kills after %v, with %v", calls, configs)
	}
	kill := AgentKill{Config: map[string]any{"maxPods": "many"}}
	if err := kill.validate(&Spec{}); err == nil || !strings.HasPrefix(err.Error(), "config: ") {
		t.Errorf("a wrong configuration: %v", err)
	}
}

// Resizes are of containers, init containers and whole pods.
func TestResizeTargets(t *testing.T) {
	resources := "resources: {requests: {cpu: 100m}}"
	text := "apiVersion: sim.seedlet.dev/v1alpha1\nkind: Scenario\nmetadata: {name: s}\n" +
		"spec:\n  description: d\n  duration: 1m\n  settle: 1m\n  node: {api: true}\n" +
		"  actors: {resizes: 9..20, always: true}\n" +
		"  pods:\n  - count: 1\n    api: true\n    manifest:\n      apiVersion: v1\n" +
		"      kind: Pod\n      metadata: {name: p}\n      spec:\n        " + resources + "\n" +
		"        initContainers: [{name: setup, image: i, " + resources + "}]\n" +
		"        containers: [{name: app, image: i, " + resources + "}]\n"
	seen := map[string]bool{}
	for _, h := range generate(t, text, "", 1).Spec.Happenings {
		if h.Act != nil && h.Act.Verb == VerbResize {
			for field := range h.Act.Patch["spec"].(map[string]any) {
				seen[field] = true
			}
		}
	}
	if !seen["containers"] || !seen["initContainers"] || !seen["resources"] {
		t.Errorf("resizes of %v", seen)
	}
}
