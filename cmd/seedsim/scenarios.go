package main

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim"
	"seedlet.dev/sim/oracle"
)

// all are the scenarios there are, by name.
func all() ([]*sim.Scenario, error) {
	files, err := fs.Glob(scenarios.Files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var list []*sim.Scenario
	for _, file := range files {
		s, err := load(scenarios.Files, file)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

func load(dir fs.FS, file string) (*sim.Scenario, error) {
	data, err := fs.ReadFile(dir, file)
	if err != nil {
		return nil, err
	}
	return sim.ParseScenario(file, data, dir)
}

// find is the scenario of the given name, or in the given file, or all of them.
func find(name string) ([]*sim.Scenario, error) {
	if isFile(name) {
		s, err := load(os.DirFS("."), strings.TrimPrefix(name, "./"))
		if err != nil {
			return nil, err
		}
		return []*sim.Scenario{s}, nil
	}
	list, err := all()
	if err != nil || name == "all" {
		return list, err
	}
	var names []string
	for _, s := range list {
		if s.Metadata.Name == name {
			return []*sim.Scenario{s}, nil
		}
		names = append(names, s.Metadata.Name)
	}
	return nil, fmt.Errorf("unknown scenario %q; there are %s, all, or a .yaml file", name,
		strings.Join(names, ", "))
}

// isFile says whether a scenario is given by its file.
func isFile(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// one is like find, but all is not one.
func one(name string) (*sim.Scenario, error) {
	list, err := find(name)
	switch {
	case err != nil:
		return nil, err
	case name == "all":
		return nil, fmt.Errorf("scenario all cannot be used here; name one of those in " +
			"'seedsim list'")
	}
	return list[0], nil
}

// seeds is a range of seeds, both ends included.
type seeds struct{ from, to uint64 }

// seedsMax bounds what is kept of the runs of one command.
const seedsMax = 100_000

func parseSeeds(text string) (seeds, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 63)
	if err == nil {
		var to uint64
		if to, err = strconv.ParseUint(last, 10, 63); err == nil && from <= to {
			if to-from >= seedsMax {
				return seeds{}, fmt.Errorf("--seeds %s: at most %d at once", text, seedsMax)
			}
			return seeds{from, to}, nil
		}
	}
	return seeds{}, fmt.Errorf("--seeds %q: must be A-B with A not above B, as in 1-200", text)
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the scenarios",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := all()
			for _, s := range list {
				fmt.Fprintf(c.OutOrStdout(), "%-16s %s\n", s.Metadata.Name, s.Spec.Description)
			}
			return err
		},
	}
}

func oraclesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "oracles",
		Short: "List what every run is judged by",
		Args:  exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, entry := range oracle.Catalogue() {
				fmt.Fprintf(c.OutOrStdout(), "%-18s %s\n", entry.Name, entry.Sentence)
			}
			return nil
		},
	}
}

// exactly checks the number of arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%s takes %d arguments, has %d: usage: %s", c.Name(), n, len(args),
				c.UseLine())
		}
		return nil
	}
}
