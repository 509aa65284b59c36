package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/sweep"
)

func sweepCommand() *cobra.Command {
	var flags sweepFlags
	c := &cobra.Command{
		Use:   "sweep SCENARIO (--seed N | --plan FILE)",
		Short: "Run one plan without faults again and again, with a strike after another effect",
		Long: "Run one plan without faults once for each effect of the agent that changes\n" +
			"something, with a strike right after it. Without a flag for the strike: by each.",
		Args: flags.from.args,
		RunE: func(c *cobra.Command, args []string) error {
			rep, err := flags.run(args)
			if err != nil || rep == nil {
				return err
			}
			return rep.print(c.OutOrStdout(), flags.asJSON)
		},
	}
	flags.add(c)
	return c
}

// sweepFlags say what is swept.
type sweepFlags struct {
	from             source
	strikes          map[sweep.Strike]*bool
	change           int // only after the change of this number; zero: all
	every            int
	output           string
	jobs             int
	asJSON, failFast bool
}

func (f *sweepFlags) add(c *cobra.Command) {
	f.from.flags(c, true)
	f.strikes = map[sweep.Strike]*bool{}
	for strike, text := range map[sweep.Strike]string{ //ordered: flags are sorted
		sweep.KillAgent: "kill the agent", sweep.Reboot: "reboot the machine",
		sweep.RestartRuntime: "restart the container runtime"} {
		f.strikes[strike] = c.Flags().Bool(string(strike), false, text+" after the effect")
	}
	c.Flags().IntVar(&f.change, "after", 0, "strike only after the change of this number")
	c.Flags().IntVar(&f.every, "every", 1, "a sample: strike after each change of this many")
	c.Flags().StringVarP(&f.output, "output", "o", "",
		"with --after and one strike, write the plan to this file and run nothing")
	addJobs(c, &f.jobs)
	c.Flags().BoolVar(&f.asJSON, "json", false, "print the result as a JSON object")
	c.Flags().BoolVar(&f.failFast, "fail-fast", false, "stop at the first failure")
}

// chosen returns the strikes of the flags.
func (f *sweepFlags) chosen() []sweep.Strike {
	all := slices.DeleteFunc(slices.Clone(sweep.Strikes), func(s sweep.Strike) bool {
		return !*f.strikes[s]
	})
	if len(all) == 0 {
		return sweep.Strikes
	}
	return all
}

// run sweeps a scenario. It returns no report if it has only written a plan.
func (f *sweepFlags) run(args []string) (*report, error) {
	strikes := f.chosen()
	if err := checkJobs(f.jobs); err != nil {
		return nil, err
	}
	switch {
	case f.every < 1:
		return nil, fmt.Errorf("--every %d: must be at least 1", f.every)
	case f.output != "" && (f.change < 1 || len(strikes) != 1):
		return nil, fmt.Errorf("-o %s: needs --after and one strike", f.output)
	}
	p, err := f.from.plan(args)
	if err != nil {
		return nil, err
	}
	name := p.Spec.Scenario
	if len(args) > 0 {
		name = args[0] // or its file
	}
	points, err := sweep.Points(p)
	if err != nil {
		return nil, err
	}
	all := len(points)
	points = slices.DeleteFunc(points, func(at sweep.Point) bool {
		return f.change != 0 && at.Nth != f.change || at.Nth%f.every != 0
	})
	if len(points) == 0 {
		return nil, fmt.Errorf("--after %d: the plan has %d changes before the faults would heal",
			f.change, all)
	}
	if f.output != "" {
		return nil, os.WriteFile(f.output, sweep.WithStrike(p, strikes[0], points[0]).YAML(), 0o644)
	}
	var tasks []*task
	for _, s := range strikes {
		for _, at := range points {
			tasks = append(tasks, &task{name: name, seed: p.Spec.Seed,
				scenario: &plan.Scenario{Metadata: plan.Metadata{Name: p.Spec.Scenario}},
				sweep:    &sweepPoint{p, s, at}})
		}
	}
	rep, err := runAll(tasks, f.jobs, f.failFast, newProgress(os.Stderr))
	if err != nil {
		return nil, err
	}
	rep.Scenario, rep.Seeds = name, fmt.Sprint(p.Spec.Seed)
	rep.What = fmt.Sprintf("%s seed %d, %s after each of %d changes", name, p.Spec.Seed,
		joined(strikes), len(points))
	return rep, nil
}

func joined(strikes []sweep.Strike) string {
	var names []string
	for _, s := range strikes {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// sweepPoint is one run of a sweep.
type sweepPoint struct {
	calm   *plan.Plan
	strike sweep.Strike
	at     sweep.Point
}

func (s *sweepPoint) plan() *plan.Plan { return sweep.WithStrike(s.calm, s.strike, s.at) }

// String says which run it is.
func (s *sweepPoint) String() string {
	return fmt.Sprintf("%s after change %d, %s", s.strike, s.at.Nth, s.at.Call)
}

func (s *sweepPoint) replayCommand(name string, seed uint64) string {
	return fmt.Sprintf("seedsim sweep %s --seed %d --%s --after %d -o plan.yaml && "+
		"seedsim replay %s --plan plan.yaml --log", name, seed, s.strike, s.at.Nth, name)
}
