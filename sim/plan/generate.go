package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/wire"
)

// Generate returns the plan of a scenario and a seed. It fails if a manifest of the scenario does
// not decode as a pod.
//
// Each concern draws from a random stream of its own, so a change of one concern leaves the others
// as they were. Each seed leaves whole classes of faults and changes out and weighs the others
// differently (swarm testing): a bug that a frequent fault hides is found by the seeds without it.
func Generate(s *Scenario, seed uint64) (*Plan, error) {
	g := &generator{scenario: s, seed: seed, plan: &Plan{
		APIVersion: APIVersion, Kind: "Plan",
		Metadata: Metadata{Name: fmt.Sprintf("%s-%d", s.Metadata.Name, seed)},
		Spec: Spec{
			Scenario: s.Metadata.Name, Seed: seed, Order: OrderUniform,
			Settle: s.Spec.Settle, Node: s.Spec.Node, Expectations: s.Spec.Expectations,
		},
	}}
	if g.stream("order").IntN(3) == 0 {
		g.plan.Spec.Order = OrderPriority
	}
	g.plan.Spec.Duration = Duration(s.Spec.Duration.draw(g.stream("duration")))
	if quiet := g.stream("quiet"); quiet.IntN(4) == 0 {
		g.plan.Spec.Quiet = Duration(quietLong)
		if quiet.IntN(4) == 0 {
			g.plan.Spec.Quiet = Duration(quietLongest)
		}
	}
	g.chooseVariant()
	g.addPods()
	g.addImages()
	g.addManifestChanges()
	g.addFaults()
	g.addStrikes()
	g.addShutdowns()
	g.addAnomalies()
	g.addActs()
	g.addRequests()
	g.addPressures()
	g.addPlugins()
	g.addCSIDrivers()
	g.addISCSI()
	g.addFC()
	g.addTakeOver()
	g.plan.Spec.Growths = s.Spec.Growths.draw(g.stream("growths"))
	g.plan.Spec.AttachedMost = s.Spec.AttachedMost.draw(g.stream("attached most"))
	g.plan.Spec.BindsWithin = Duration(s.Spec.BindsWithin.draw(g.stream("binds within")))
	g.plan.Spec.Signers = slices.Concat(s.Spec.Signers, g.signers)
	g.sortHappenings()
	err := g.decodeManifests()
	if err == nil {
		err = g.plan.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("drawing seed %d of %s: %w", seed, s.Metadata.Name, err)
	}
	return g.plan, nil
}

// generator holds a plan under construction.
type generator struct {
	scenario *Scenario
	seed     uint64
	plan     *Plan
	objects  []Object // of the API server
	signers  []Signer // of certificates, that pods of a pool may need

	// untouchedFiles and untouchedPods, those of the API server, are the pods that the plan has
	// created and not changed so far.
	untouchedFiles []manifestFile
	untouchedPods  []Pod
}

// stream returns the random stream of a concern. Its name is part of what a seed means.
func (g *generator) stream(name string) *rand.Rand { return wire.Stream(g.seed, name) }

// swarmWeight draws the weight of a class in this seed. It is zero for a third of the seeds, unless
// the scenario has the class in every seed.
func (g *generator) swarmWeight(class string, always bool) float64 {
	r := g.stream("swarm " + class)
	if r.IntN(3) == 0 && !always {
		return 0
	}
	return 0.5 + r.Float64()
}

// occurrences draws how many entries of a class the plan gets.
func (g *generator) occurrences(class string, c Count, always bool) int {
	n := c.draw(g.stream("times " + class))
	weighted := int(float64(float64(n)*g.swarmWeight(class, always)) + 0.5) // as Share.draw
	if always {
		return max(weighted, c.Least)
	}
	return weighted
}

// podOccurrences draws how many entries about a pod the plan gets: none if it has no pods.
func (g *generator) podOccurrences(class string, c Count, always bool) int {
	if len(g.plan.Spec.Pods) == 0 {
		return 0
	}
	return g.occurrences(class, c, always)
}

// randomTime draws a time before the faults heal.
func (g *generator) randomTime(r *rand.Rand) Duration {
	at := time.Duration(r.Int64N(int64(g.plan.Spec.Duration)))
	return Duration(max(at.Round(time.Millisecond), time.Millisecond))
}

// chooseVariant draws which variant of the configuration the node has.
func (g *generator) chooseVariant() {
	variants := g.scenario.Spec.Variants
	if len(variants) == 0 {
		return
	}
	config := maps.Clone(variants[g.stream("variant").IntN(len(variants))])
	for field, value := range g.plan.Spec.Node.Config { //ordered: into a map
		config[field] = value
	}
	g.plan.Spec.Node.Config = config
}

// decodeManifests decodes the manifests of the static pods.
func (g *generator) decodeManifests() error {
	g.plan.decoded = map[string]*v1.Pod{}
	for i := range g.plan.Spec.Pods {
		if g.plan.Spec.Pods[i].API {
			continue
		}
		text := g.plan.Spec.Pods[i].ManifestJSON()
		static, err := decodeManifest(text)
		if err != nil {
			return fmt.Errorf("spec.pods[%d].%w", i, err)
		}
		g.plan.decoded[string(text)] = static
	}
	return nil
}
