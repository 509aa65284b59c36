package rapidplan_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/rapidplan"
	"seedlet.dev/sim/truth"
)

// load returns scenarios of the project, by their files.
func load(t testing.TB, files ...string) []*plan.Scenario {
	var all []*plan.Scenario
	for _, file := range files {
		s, err := plan.ReadScenario(scenarios.Files, file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	return all
}

// Every part of a plan is valid and can be run, and no oracle reports a violation.
func TestPlansHold(t *testing.T) {
	plans := rapidplan.Plans(load(t, "mix.yaml", "volumes.yaml", "resize.yaml", "evictions.yaml",
		"manifest-churn.yaml")...)
	fewer := 0
	rapid.Check(t, func(t *rapid.T) {
		p := plans.Draw(t, "plan")
		verdict, err := sim.Run(p, sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if f := verdict.Failure; f != nil {
			t.Fatalf("%s: %s: %s\n%s", p.Metadata.Name, f.Oracle, f.Message, p.YAML())
		}
		if len(p.Spec.Happenings) > 0 {
			fewer++
		}
	})
	if fewer == 0 {
		t.Error("no plan has a happening")
	}
}

// An oracle that wrongly fires for each container that runs under a liveness probe is found, and
// the plan that shows it has little else.
func TestPlantedFaultIsMadeSmall(t *testing.T) {
	for name, value := range map[string]string{
		"rapid.shrinktime": "10s", "rapid.nofailfile": "true", // the failure is expected
	} {
		if err := flag.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	plans := rapidplan.Plans(load(t, "probes.yaml", "steady.yaml")...)
	var smallest *plan.Plan
	tb := &recorder{}
	rapid.Check(tb, func(t *rapid.T) {
		p := plans.Draw(t, "plan")
		fires := false
		if _, err := sim.Run(p, sim.Options{Until: 500, WatchFact: func(f truth.Fact) {
			fires = fires || f.Kind == truth.ContainerStarted && hasLivenessProbe(p, f.Container)
		}}); err != nil {
			t.Fatal(err)
		}
		if fires {
			smallest = p
			t.Fatal("the planted oracle has fired")
		}
	})
	if !tb.failed || smallest == nil {
		t.Fatalf("not found:\n%s", tb.log.String())
	}
	s := &smallest.Spec
	if len(s.Pods) > 3 || len(s.Happenings) > 5 {
		t.Errorf("%d pods and %d happenings are left, want at most 3 pods and 5 happenings:\n%s",
			len(s.Pods), len(s.Happenings), smallest.YAML())
	}
}

// hasLivenessProbe reports whether a container of this name in the plan has a liveness probe.
func hasLivenessProbe(p *plan.Plan, container string) bool {
	for i := range p.Spec.Pods {
		spec, _ := p.Spec.Pods[i].Manifest["spec"].(map[string]any)
		containers, _ := spec["containers"].([]any)
		for _, c := range containers {
			fields, _ := c.(map[string]any)
			if fields["name"] == container && fields["livenessProbe"] != nil {
				return true
			}
		}
	}
	return false
}

func TestPlansWithoutScenario(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); got != "rapidplan: want at least one scenario, have none" {
			t.Errorf("panic %q", got)
		}
	}()
	rapidplan.Plans()
}

// recorder takes the failure of a property.
type recorder struct {
	rapid.TB // for the methods that rapid does not call
	failed   bool
	log      strings.Builder
}

func (r *recorder) Helper()                           {}
func (r *recorder) Name() string                      { return "planted" }
func (r *recorder) Logf(format string, args ...any)   { fmt.Fprintf(&r.log, format+"\n", args...) }
func (r *recorder) Errorf(format string, args ...any) { r.Logf(format, args...); r.failed = true }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...) }
func (r *recorder) FailNow()                          { r.failed = true }
func (r *recorder) Fail()                             { r.failed = true }
func (r *recorder) Failed() bool                      { return r.failed }
