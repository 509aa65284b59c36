// Package rapidplan draws plans for property tests with pgregory.net/rapid. It is a package of its
// own, so that a program that runs plans does not depend on rapid.
//
// Start reading at Plans, and at the example.
package rapidplan

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"seedlet.dev/sim/plan"
)

// seedsMax is enough seeds for any test, and few enough to be made smaller in a few attempts.
const seedsMax = 1 << 20

// Plans returns a generator of valid plans: one of the scenarios, a seed, and some of the pods,
// happenings and responses of the plan that plan.Generate draws for them. It panics without a
// scenario, and stops the test at a scenario of which no plan can be drawn.
//
// What a property may rely on:
//
//   - Every plan is valid, and sim.Run returns no error for it.
//   - No invariant of the simulation demands what the plan does not allow: objects that pods need
//     are created, and what the scenario expects of its pods is left out.
//   - Metadata.Name, and the scenario and the seed in Spec, name the plan of which this one is a
//     part.
//   - rapid makes a plan that fails smaller by leaving out pods, with all that happens to them,
//     happenings, what handlers answer and what processes write. shrink.Minimize goes on where an
//     oracle has failed: it also moves and shortens what is left.
func Plans(scenarios ...*plan.Scenario) *rapid.Generator[*plan.Plan] {
	if len(scenarios) == 0 {
		panic("rapidplan: want at least one scenario, have none")
	}
	return rapid.Custom(func(t *rapid.T) *plan.Plan {
		s := scenarios[rapid.IntRange(0, len(scenarios)-1).Draw(t, "scenario")]
		p, err := plan.Generate(s, rapid.Uint64Range(1, seedsMax).Draw(t, "seed"))
		if err != nil {
			t.Fatal(err)
		}
		choose(t, &p.Spec)
		if err := p.Validate(); err != nil {
			panic(fmt.Sprintf("rapidplan: a part of %s is not valid: %v", p.Metadata.Name, err))
		}
		return p
	})
}

// choose leaves out any pods, happenings and entries of behaviours. No choice changes what a choice
// before it is about, so that rapid can leave out one thing and keep the others.
func choose(t *rapid.T, s *plan.Spec) {
	s.Expectations = nil
	happenings := some(t, "happenings", s.Happenings, happeningsPerDraw)
	s.Pods = some(t, "pods", s.Pods, len(s.Pods))
	s.Happenings = slices.Concat(objectActs(s), possibleHappenings(s, happenings))
	for i := range s.Pods {
		s.Pods[i].Behaviours = slices.Clone(s.Pods[i].Behaviours)
		for k := range s.Pods[i].Behaviours {
			b := &s.Pods[i].Behaviours[k]
			b.Responses = some(t, "answers", b.Responses, len(b.Responses))
			b.Writes = some(t, "writes", b.Writes, len(b.Writes))
		}
	}
}

// happeningsPerDraw keeps about a third of the happenings in a plan.
const happeningsPerDraw = 16

// objectActs returns the acts on objects of the API server that the pods may need: those whose
// names are in a manifest, and those that pods select by labels.
func objectActs(s *plan.Spec) (acts []plan.Happening) {
	var manifests strings.Builder
	for i := range s.Pods {
		manifests.Write(s.Pods[i].ManifestJSON())
	}
	for i := range s.Happenings {
		h := &s.Happenings[i]
		if !isObjectAct(h) {
			continue
		}
		object := s.ObjectNamed(h.Act.Object)
		metadata, _ := object.Manifest["metadata"].(map[string]any)
		name := fmt.Sprintf("%q", metadata["name"])
		if strings.Contains(manifests.String(), name) ||
			strings.Contains(manifests.String(), `"signerName"`) {
			acts = append(acts, *h)
		}
	}
	return acts
}

func isObjectAct(h *plan.Happening) bool { return h.Act != nil && h.Act.Object != "" }

// possibleHappenings returns the others of a list, less those of pods that were left out.
func possibleHappenings(s *plan.Spec, list []plan.Happening) (possible []plan.Happening) {
	for i := range list {
		h := &list[i]
		deed, _ := h.Deed()
		isLeftOut := func(pod string) bool { return pod != "" && s.PodNamed(pod) == nil }
		if isObjectAct(h) || isLeftOut(deed.PodEntry()) || h.When != nil && isLeftOut(h.When.Pod) {
			continue
		}
		possible = append(possible, *h)
	}
	return possible
}

// some returns some entries of a list, in their order: five on the average of each few. They are
// drawn as lists of indexes, of which rapid leaves out many at once.
func some[T any](t *rapid.T, name string, list []T, few int) []T {
	var chosen []T
	for start := 0; start < len(list); start += few {
		n := min(few, len(list)-start)
		indexes := rapid.SliceOfNDistinct(rapid.IntRange(start, start+n-1), 0, n, rapid.ID[int]).
			Draw(t, name)
		slices.Sort(indexes)
		for _, i := range indexes {
			chosen = append(chosen, list[i])
		}
	}
	return chosen
}
