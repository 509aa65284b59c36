package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/sim/truth"
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
ANSWERS
  strikes: {containers: 0..5}
`

const answers = `      answers:
      - {match: ":80/ready", from: 1s..5s, for: 1s..30s, reply: [bad, refused, none], times: 1..3}
      - {match: exec, reply: [none], takes: 0s..2s, probability: 0.5}
      - {takes: 5s}`

// generate returns the plan of a scenario and a seed. The scenario text has a place for answers.
func generate(t *testing.T, scenario, answers string, seed uint64) *Plan {
	t.Helper()
	scenario = strings.Replace(scenario, "ANSWERS", answers, 1)
	s, err := ParseScenario("responses.yaml", []byte(scenario), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Generate(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Responses are generated from streams of their own: every other entry of the plan stays as it is.
func TestResponsesHaveTheirOwnStreams(t *testing.T) {
	some, none := 0, 0
	for seed := range uint64(60) {
		with, without := generate(t, respondingPods, answers, seed), generate(t, respondingPods, "", seed)
		for i := range with.Spec.Pods {
			b := &with.Spec.Pods[i].Behaviours[0]
			if len(b.Responses) == 3 {
				some++
			} else {
				none++
			}
			first, last := b.Responses[0], b.Responses[len(b.Responses)-1]
			if first.Reply == truth.ReplySuccess || first.From < Duration(time.Second) ||
				first.For < Duration(time.Second) || first.Times < 1 || first.Times > 3 {
				t.Errorf("the first response is %+v", first)
			}
			if diff := cmp.Diff(HandlerResponse{Reply: truth.ReplySuccess, Takes: Duration(5 * time.Second)},
				last); diff != "" {
				t.Error(diff)
			}
			b.Responses = nil
		}
		if diff := cmp.Diff(without.Spec, with.Spec); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
	if some < 40 || none < 100 { // a third of the seeds leaves the second entry out altogether
		t.Errorf("%d containers have the second response, %d do not", some, none)
	}
}

func TestResponsesRoundTrip(t *testing.T) {
	p := generate(t, respondingPods, answers, 3)
	again, err := Parse("plan.yaml", p.YAML())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Spec.Pods[0].Behaviours, again.Spec.Pods[0].Behaviours); diff != "" {
		t.Error(diff)
	}
}

func TestInvalidResponses(t *testing.T) {
	_, err := ParseScenario("x.yaml", []byte(strings.Replace(respondingPods, "ANSWERS",
		"      answers: [{reply: [bad, maybe]}]", 1)), nil)
	want := `spec.pods[0].behaviour[0].answers[0].reply[1]: want one of [good bad refused none ` +
		`elsewhere endless unknown unoffered], ` +
		`have "maybe"`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("have %v\nwant %s", err, want)
	}
	p := generate(t, respondingPods, answers, 3)
	p.Spec.Pods[1].Behaviours[0].Responses[0].Times = -1
	want = "spec.pods[1].behaviours[0].answers[0].times: want 0 or more, have -1"
	if err := p.Validate(); err == nil || err.Error() != want {
		t.Errorf("have %v\nwant %s", err, want)
	}
}
