package sim

import (
	"fmt"
	"testing"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

const calmPods = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: anchors}
spec:
  description: d
  duration: 1m
  settle: 2m
  pods:
  - count: 2
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec:
        containers:
        - {name: app, image: "registry.test/app:1"}
        - {name: log, image: "registry.test/log:1"}
`

// calmRun runs two pods with some happenings, and returns its facts.
func calmRun(t *testing.T, opts Options, happenings ...plan.Happening) (*Verdict, []truth.Fact) {
	t.Helper()
	s, err := plan.ParseScenario("anchors.yaml", []byte(calmPods), nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := plan.Generate(s, 1)
	if err != nil {
		t.Fatal(err)
	}
	p.Spec.Happenings = append(p.Spec.Happenings, happenings...)
	var facts []truth.Fact
	opts.WatchFact = func(f truth.Fact) { facts = append(facts, f) }
	verdict, err := Run(p, opts)
	if err != nil || verdict.Failure != nil {
		t.Fatal(err, verdict)
	}
	return verdict, facts
}

// A happening comes the given time after the n-th fact about its pod and container, and once.
func TestAnchorAtFact(t *testing.T) {
	_, facts := calmRun(t, Options{}, plan.Happening{
		When: &plan.Anchor{Fact: truth.ContainerStarted, Pod: "web-1", Container: "log", Nth: 2,
			After: plan.Duration(3 * time.Millisecond)},
		KillContainer: &plan.ContainerKill{Pod: "web-1", Container: "app", ExitCode: 7},
	}, plan.Happening{At: plan.Duration(10 * time.Second),
		KillContainer: &plan.ContainerKill{Pod: "web-1", Container: "log", ExitCode: 8},
	})
	var started []time.Time
	exits := ""
	for _, f := range facts {
		if f.PodName != "web-1-"+plan.NodeName {
			continue
		}
		switch {
		case f.Kind == truth.ContainerStarted && f.Container == "log":
			started = append(started, f.Time)
		case f.Kind == truth.ContainerExited:
			exits += fmt.Sprintf("%s %d; ", f.Container, f.ExitCode)
			if f.Container == "app" && f.Time.Sub(started[len(started)-1]) != 3*time.Millisecond {
				t.Errorf("app exits %v after the start of log", f.Time.Sub(started[len(started)-1]))
			}
		}
	}
	if len(started) != 2 || exits != "log 8; app 7; " {
		t.Errorf("log started %d times; %s", len(started), exits)
	}
}

// The agent is killed right after an effect: the others of the step reach no port.
func TestAnchorAtEffect(t *testing.T) {
	killed := 0
	var at time.Time
	verdict, facts := calmRun(t, Options{
		Watch: func(s Step) {
			for _, eff := range s.Effects {
				if s.Incarnation == 1 && world.CallName(eff.Body) == "CreateContainer" {
					killed++
					at = s.Event.Time
				}
			}
		},
	}, plan.Happening{
		When:      &plan.Anchor{Effect: "CreateContainer", Pod: "web-0"},
		KillAgent: &plan.AgentKill{Down: plan.Duration(5 * time.Second)},
	})
	if verdict.Incarnations != 2 || killed == 0 {
		t.Fatalf("%d incarnations, %d containers requested by the first", verdict.Incarnations, killed)
	}
	for _, f := range facts {
		if f.Kind == truth.ContainerStarted && f.Time.Before(at.Add(5*time.Second)) &&
			f.PodName == "web-0-"+plan.NodeName {
			t.Errorf("container %s was started at %v by an agent that was killed at %v", f.Container,
				f.Time, at)
		}
	}
}

// A window about a pod, from an anchor on, affects the calls about that pod alone.
func TestFaultOfOnePod(t *testing.T) {
	refused := 0
	_, facts := calmRun(t, Options{
		Watch: func(s Step) {
			if s.Event.Err != nil && s.Event.Err.Kind == world.KindInvalid {
				refused++
			}
		},
	}, plan.Happening{
		When: &plan.Anchor{Fact: truth.SandboxReady, Pod: "web-0"},
		Fault: &plan.FaultWindow{ID: "refusal", For: plan.Duration(time.Hour), Probability: 1,
			Class: plan.FaultErrorBefore, Kind: world.KindInvalid, Pod: "web-0",
			Calls: []string{"CreateContainer"}},
	})
	healed := plan.Start.Add(time.Minute)
	before := map[string]int{}
	for _, f := range facts {
		if f.Kind == truth.ContainerStarted && f.Time.Before(healed) {
			before[f.PodName]++
		}
	}
	if fmt.Sprint(before) != "map[web-1-"+plan.NodeName+":2]" {
		t.Errorf("containers started before the faults healed: %v", before)
	}
	if refused < 3 {
		t.Errorf("%d calls are refused", refused)
	}
}
