package shrink

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/sim/plan"
)

const respondingPods = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: responses}
spec:
  description: d
  duration: 1m
  settle: 1m
  pods:
  - count: 4
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec:
        containers:
        - {name: web, image: "registry.test/web:1"}
    behaviour:
    - container: web
      runs: 1s..1m
      exitCodes: [0, 1]
      stopTakes: 0s..3s
      answers:
      - {match: ":80/ready", from: 1s..5s, for: 1s..30s, reply: [bad, refused, none], times: 1..3}
      - {match: exec, reply: [none], takes: 0s..2s, probability: 0.5}
      - {takes: 5s}
  strikes: {containers: 0..5}
`

// Handler responses that do not contribute to a failure are removed, and the given plan does not
// change.
func TestMinimizeRemovesResponses(t *testing.T) {
	s, err := plan.ParseScenario("responses.yaml", []byte(respondingPods), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Generate(s, 3)
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Expectations = []plan.Expectation{{PodPrefix: "web", RestartsAtLeast: 1000}}
	before := string(p.YAML())
	small, verdict, err := Minimize(t.Context(), p, 200, nil)
	if err != nil || verdict.Failure == nil || verdict.Failure.Oracle != "expect" {
		t.Fatal(verdict, err)
	}
	for _, pod := range small.Spec.Pods {
		for _, b := range pod.Behaviours {
			if len(b.Responses) > 0 {
				t.Errorf("pod %s still has responses %+v", pod.Name, b.Responses)
			}
		}
	}
	if len(small.Spec.Pods) != 1 {
		t.Errorf("%d pods are left, want 1", len(small.Spec.Pods))
	}
	if string(p.YAML()) != before {
		t.Error("the given plan has changed")
	}
}

// A plan that fails by a strike at one of many effects ends with that strike, at an effect of the
// pod, soon after the start.
func TestMinimizeAnchor(t *testing.T) {
	s, err := plan.ParseScenario("responses.yaml", []byte(respondingPods), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Generate(s, 3)
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Expectations = []plan.Expectation{{PodPrefix: "web",
		StartsWithin: plan.Duration(2 * time.Second)}}
	p.Spec.Happenings = slices.DeleteFunc(p.Spec.Happenings, func(h plan.Happening) bool {
		return h.Manifest == nil
	})
	for i := range p.Spec.Happenings {
		p.Spec.Happenings[i].At = plan.Duration(10 * time.Second)
	}
	p.Spec.Happenings = append(p.Spec.Happenings, plan.Happening{
		When:      &plan.Anchor{Effect: plan.AnyChange, Nth: 12},
		KillAgent: &plan.AgentKill{Down: plan.Duration(20 * time.Second)}})
	small, verdict, err := Minimize(t.Context(), p, 300, nil)
	if err != nil || verdict.Failure == nil || verdict.Failure.Oracle != "expect" {
		t.Fatal(verdict, err)
	}
	if n := len(small.Spec.Happenings); n != 2 {
		t.Fatalf("%d happenings are left, want the creation and the kill:\n%s", n, small.YAML())
	}
	created, kill := small.Spec.Happenings[0], small.Spec.Happenings[1]
	if created.Manifest == nil || time.Duration(created.At) > time.Second || kill.KillAgent == nil ||
		kill.When.Effect == plan.AnyChange || kill.When.Pod != created.Manifest.Pod ||
		time.Duration(kill.KillAgent.Down) > 4*time.Second {
		t.Errorf("%s", small.YAML())
	}
}

// A search that is interrupted returns what it has.
func TestMinimizeInterrupted(t *testing.T) {
	s, err := plan.ParseScenario("responses.yaml", []byte(respondingPods), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Generate(s, 3)
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Expectations = []plan.Expectation{{PodPrefix: "web", RestartsAtLeast: 1000}}
	ctx, stop := context.WithCancel(t.Context())
	runs := 0
	small, verdict, err := Minimize(ctx, p, 200, func(int, int) {
		if runs++; runs == 5 {
			stop()
		}
	})
	if err != nil || verdict.Failure == nil || runs != 5 || small.EntryCount() > p.EntryCount() {
		t.Errorf("%d runs, %d entries of %d, %v", runs, small.EntryCount(), p.EntryCount(), err)
	}
}

// Containers and fields of manifests and of the configuration that do not contribute to a failure
// are removed, with the behaviours of these containers.
func TestMinimizeRemovesFields(t *testing.T) {
	s, err := plan.ParseScenario("responses.yaml", []byte(strings.NewReplacer(
		"    behaviour:\n", "    behaviour:\n    - {container: other, stopTakes: 1s}\n",
		`        - {name: web, image: "registry.test/web:1"}
`, `        - {name: web, image: "registry.test/web:1", env: [{name: A, value: b}]}
        - name: other
          image: "registry.test/web:1"
          readinessProbe: {exec: {command: [ready]}}
        volumes: [{name: v, emptyDir: {}}]
        terminationGracePeriodSeconds: 5
`).Replace(respondingPods)), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Generate(s, 3)
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Node.Config = map[string]any{"maxPods": 20.0, "podPidsLimit": 100.0}
	p.Spec.Expectations = []plan.Expectation{{PodPrefix: "web", RestartsAtLeast: 1000}}
	small, verdict, err := Minimize(t.Context(), p, 400, nil)
	if err != nil || verdict.Failure == nil || verdict.Failure.Oracle != "expect" {
		t.Fatal(verdict, err)
	}
	pod := small.Spec.Pods[0]
	want := map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": pod.Name},
		"spec": map[string]any{"containers": []any{
			map[string]any{"image": "registry.test/web:1", "name": "web"}}}}
	if diff := cmp.Diff(want, pod.Manifest); diff != "" {
		t.Errorf("the manifest has more than needed (-want +got):\n%s", diff)
	}
	if len(small.Spec.Node.Config) > 0 {
		t.Errorf("the configuration still has %v", small.Spec.Node.Config)
	}
	for _, b := range pod.Behaviours {
		if b.Container != "web" {
			t.Errorf("the removed container %s still has a behaviour", b.Container)
		}
	}
}
