package plan

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"seedlet.dev/world"
)

func TestFaultsCanApplyToEveryCall(t *testing.T) {
	calls := 0
	for _, name := range world.BodyNames() {
		body, err := world.ParseBody(name, emptyBody(name))
		if err != nil {
			t.Fatal(err)
		}
		switch portOf(body) {
		case world.PortCRI, world.PortFS, world.PortNetwork, world.PortHost,
			world.PortPlugins, world.PortCSI, world.PortSCSI, world.PortCredentials, world.PortAPI:
			call := world.CallName(body)
			hasNoResponse := call == "Watch" || call == "WatchObjects" ||
				call == "UnwatchObjects" || call == "RecordEvent"
			if calls++; !hasNoResponse && !slices.Contains(faultableCalls, call) {
				t.Errorf("faults cannot apply to %s", call)
			}
		}
	}
	if calls < len(faultableCalls) {
		t.Errorf("faults can apply to %d calls, there are %d", len(faultableCalls), calls)
	}
}

// portOf returns the port of an effect; empty for a body that is not an effect.
func portOf(body any) (port world.PortName) {
	defer func() { _ = recover() }()
	return world.PortOf(body)
}

// emptyBody returns the encoding of an empty body: nothing in protobuf, an empty object in JSON.
func emptyBody(name string) []byte {
	if _, err := world.ParseBody(name, nil); err == nil {
		return nil
	}
	return []byte("{}")
}

// A range draws windows of one pod, one kind of error and one call as it says, and with shares of
// zero the windows that it drew before.
func TestNarrowFaults(t *testing.T) {
	draw := func(fields string) (all []*FaultWindow) {
		dir := fstest.MapFS{"a.yaml": {Data: []byte(`apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: a}
spec:
  description: A pod that faults are about.
  duration: 1m
  settle: 10m
  pods:
  - manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec: {containers: [{name: app, image: "registry.test/app:1"}]}
  faults:
  - {class: error-before, always: true, windows: 4, for: 1s..30s, probability: 0.1..0.8, ` +
			fields + `}
`)}}
		s, err := ReadScenario(dir, "a.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(30) {
			p, err := Generate(s, seed)
			if err != nil {
				t.Fatal(err)
			}
			for i := range p.Spec.Happenings {
				if w := p.Spec.Happenings[i].Fault; w != nil {
					all = append(all, w)
				}
			}
		}
		return all
	}
	wide, narrow := draw("onePod: 0"), draw("onePod: 0.5, oneKind: 0.5, oneCall: 0.5")
	pods, kinds, calls := 0, 0, 0
	for i, w := range narrow {
		if w.For != wide[i].For || w.Nth == 0 && w.Probability != wide[i].Probability {
			t.Errorf("%+v, was %+v", w, wide[i])
		}
		for n, is := range map[*int]bool{&pods: w.Pod == "web", &kinds: w.Kind != "",
			&calls: w.Nth > 0 && w.Probability == 1} { //ordered: counters
			if is {
				*n++
			}
		}
		if isClaim(w.Kind) {
			t.Errorf("%+v: a kind that says what is so, for any call", w)
		}
	}
	for _, n := range []int{pods, kinds, calls} {
		if n < len(narrow)/3 || n > len(narrow)*2/3 {
			t.Errorf("of %d windows %d are about one pod, %d kind, %d call", len(narrow), pods, kinds, calls)
		}
	}
	for _, w := range draw("forever: true, calls: [RunPodSandbox]") {
		if !w.Forever || w.Pod != "web" {
			t.Errorf("%+v", w)
		}
	}
	if n := len(draw("seeds: 0")); n != 0 {
		t.Errorf("%d windows in no seed", n)
	}
}

func TestFaultsThatLastForever(t *testing.T) {
	spec := &Spec{Pods: []Pod{{Name: "web"}}}
	good := FaultWindow{ID: "f", Class: FaultErrorBefore, Pod: "web", Forever: true, Probability: 1,
		Calls: []string{"CreateContainer"}}
	for want, change := range map[string]func(w *FaultWindow){
		"":                       func(*FaultWindow) {},
		"forever: want a pod":    func(w *FaultWindow) { w.Pod = "" },
		"forever: want a pod, t": func(w *FaultWindow) { w.Class = FaultErrorAfter },
		"forever: want calls of": func(w *FaultWindow) { w.Calls = []string{"RemoveContainer"} },
		"nth":                    func(w *FaultWindow) { w.Nth = -1 },
	} {
		w := good
		change(&w)
		if err := w.validate(spec); (err != nil) != (want != "") ||
			err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
