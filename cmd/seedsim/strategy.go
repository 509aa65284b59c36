package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"seedlet.dev/sim/plan"
)

// strategy is the flag for the order in which plans have what is due close together happen.
type strategy struct {
	order plan.Order // empty: what the seed draws
}

func (s *strategy) add(c *cobra.Command) {
	c.Flags().Var(s, "strategy", strategyUsage)
}

const strategyUsage = "the order of what is due close together: uniform (by time), priority " +
	"(latencies by the kind of call) or pct (by priorities of the actors); " +
	"absent: uniform or priority, by the seed"

// String implements pflag.Value.
func (s *strategy) String() string { return string(s.order) }

// Type implements pflag.Value.
func (s *strategy) Type() string { return "order" }

// Set implements pflag.Value.
func (s *strategy) Set(text string) error {
	if !slices.Contains(plan.Orders, plan.Order(text)) {
		return fmt.Errorf("want one of %v", plan.Orders)
	}
	s.order = plan.Order(text)
	return nil
}

// generate returns the plan of a scenario and a seed with this strategy.
func (s *strategy) generate(scenario *plan.Scenario, seed uint64) (*plan.Plan, error) {
	p, err := plan.Generate(scenario, seed)
	if err == nil && s.order != "" {
		p.Spec.Order = s.order
	}
	return p, err
}

// flagText is the flag as part of a command; empty if it is absent.
func (s *strategy) flagText() string {
	if s.order == "" {
		return ""
	}
	return " --strategy " + s.String()
}
