package shrink

import (
	"testing"

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
	small, verdict, err := Minimize(p, 200, nil)
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
