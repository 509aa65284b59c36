package sim

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/sim/runtime"
	"seedlet.dev/sim/truth"
)

const asking = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: asking}
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

func drawAsking(t *testing.T, with string, seed uint64) *Plan {
	t.Helper()
	s, err := ParseScenario("asking.yaml", []byte(strings.Replace(asking, "ANSWERS", with, 1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Draw(s, seed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What is drawn for answers takes no draw away from anything else.
func TestAnswersDrawFromStreamsOfTheirOwn(t *testing.T) {
	some, none := 0, 0
	for seed := range uint64(60) {
		with, without := drawAsking(t, answers, seed), drawAsking(t, "", seed)
		for i := range with.Spec.Pods {
			b := &with.Spec.Pods[i].Behaviours[0]
			if len(b.Answers) == 3 {
				some++
			} else {
				none++
			}
			first, last := b.Answers[0], b.Answers[len(b.Answers)-1]
			if first.Reply == truth.ReplyGood || first.From < Duration(time.Second) ||
				first.For < Duration(time.Second) || first.Times < 1 || first.Times > 3 {
				t.Errorf("first %+v", first)
			}
			if diff := cmp.Diff(Answer{Reply: truth.ReplyGood, Takes: Duration(5 * time.Second)},
				last); diff != "" {
				t.Error(diff)
			}
			b.Answers = nil
		}
		if diff := cmp.Diff(without.Spec, with.Spec); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
	if some < 40 || none < 100 { // a third of the seeds leaves the second entry out altogether
		t.Errorf("%d containers have the second entry, %d do not", some, none)
	}
}

func TestAnswersSurviveTheFile(t *testing.T) {
	p := drawAsking(t, answers, 3)
	again, err := ParsePlan("plan.yaml", p.YAML())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p.Spec.Pods[0].Behaviours, again.Spec.Pods[0].Behaviours); diff != "" {
		t.Error(diff)
	}
}

func TestAnswersOfAProcess(t *testing.T) {
	b := Behaviour{Answers: []Answer{
		{Match: "a", Reply: truth.ReplyBad, For: Duration(time.Second), Times: 2},
		{Reply: truth.ReplyNone, From: Duration(time.Minute), Takes: 3},
	}}
	first := runtime.Answer{Match: "a", Reply: truth.ReplyBad, For: time.Second}
	always := runtime.Answer{Reply: truth.ReplyNone, From: time.Minute, Takes: 3}
	for before, want := range [][]runtime.Answer{{first, always}, {first, always}, {always}} {
		if diff := cmp.Diff(want, b.answers(before)); diff != "" {
			t.Errorf("after %d others: %s", before, diff)
		}
	}
}

func TestBadAnswers(t *testing.T) {
	_, err := ParseScenario("x.yaml", []byte(strings.Replace(asking, "ANSWERS",
		"      answers: [{reply: [bad, maybe]}]", 1)), nil)
	want := `spec.pods[0].behaviour[0].answers[0].reply[1]: want one of [good bad refused none ` +
		`elsewhere endless unknown unoffered], ` +
		`have "maybe"`
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("have %v\nwant %s", err, want)
	}
	p := drawAsking(t, answers, 3)
	p.Spec.Pods[1].Behaviours[0].Answers[0].Times = -1
	want = "spec.pods[1].behaviours[0].answers[0].times: want 0 or more, have -1"
	if err := p.Validate(); err == nil || err.Error() != want {
		t.Errorf("have %v\nwant %s", err, want)
	}
}

func TestListens(t *testing.T) {
	pod := PlanPod{Manifest: map[string]any{"spec": map[string]any{
		"containers": []any{
			map[string]any{"name": "quiet"},
			map[string]any{
				"name":  "app",
				"ports": []any{map[string]any{"name": "web", "containerPort": 80}},
				"readinessProbe": map[string]any{
					"httpGet": map[string]any{"path": "/", "port": "web"}},
				"livenessProbe": map[string]any{"tcpSocket": map[string]any{"port": "81"}},
				"startupProbe":  map[string]any{"grpc": map[string]any{"port": 82}},
				"lifecycle": map[string]any{
					"postStart": map[string]any{"httpGet": map[string]any{"port": 83}},
					"preStop": map[string]any{"httpGet": map[string]any{
						"host": "elsewhere", "port": 84}},
				},
			},
		},
	}}}
	for name, want := range map[string][]int32{ //ordered: each alone
		"app": {80, 82, 81, 80, 83}, "quiet": {}, "nobody": {},
	} {
		if diff := cmp.Diff(want, pod.listens(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// Answers that have nothing to do with a failure are taken out, and the plan given is left alone.
func TestShrinkTakesAnswersOut(t *testing.T) {
	plan := drawAsking(t, answers, 3)
	plan.Spec.Expect = []Expect{{Pods: "web", RestartsAtLeast: 1000}}
	before := string(plan.YAML())
	small, verdict, err := Shrink(plan, 200, nil)
	if err != nil || verdict.Failure == nil || verdict.Failure.Oracle != "expect" {
		t.Fatal(verdict, err)
	}
	for _, pod := range small.Spec.Pods {
		for _, b := range pod.Behaviours {
			if len(b.Answers) > 0 {
				t.Errorf("pod %s still answers %+v", pod.Name, b.Answers)
			}
		}
	}
	if len(small.Spec.Pods) != 1 || string(plan.YAML()) != before {
		t.Errorf("%d pods are left, or the plan given has changed", len(small.Spec.Pods))
	}
}
