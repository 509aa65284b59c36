package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"seedlet.dev/scenarios"
	"seedlet.dev/sim/oracle"
	"seedlet.dev/sim/plan"
)

// allScenarios returns the scenarios of the project, sorted by name.
func allScenarios() ([]*plan.Scenario, error) {
	files, err := fs.Glob(scenarios.Files, "*.yaml")
	if err != nil {
		return nil, err
	}
	var list []*plan.Scenario
	for _, file := range files {
		s, err := plan.ReadScenario(scenarios.Files, file)
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// find returns the scenario of a name or a file, or all scenarios.
func find(name string) ([]*plan.Scenario, error) {
	if isFile(name) {
		root, file := ".", filepath.ToSlash(filepath.Clean(name))
		if !filepath.IsLocal(name) { // a path of fs.FS does not lead out of its root
			absolute, err := filepath.Abs(name)
			if err != nil {
				return nil, err
			}
			root, file = "/", strings.TrimPrefix(filepath.ToSlash(absolute), "/")
		}
		s, err := plan.ReadScenario(os.DirFS(root), file)
		if err != nil { // which has the path below the root
			return nil, errors.New(strings.Replace(err.Error(), file, name, 1))
		}
		return []*plan.Scenario{s}, nil
	}
	list, err := allScenarios()
	if err != nil || name == "all" {
		return list, err
	}
	var names []string
	for _, s := range list {
		if s.Metadata.Name == name {
			return []*plan.Scenario{s}, nil
		}
		names = append(names, s.Metadata.Name)
	}
	return nil, fmt.Errorf("unknown scenario %q; there are %s, all, or a .yaml file", name,
		strings.Join(names, ", "))
}

// isFile reports whether a scenario is given by its file.
func isFile(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// findOne is find for a single scenario.
func findOne(name string) (*plan.Scenario, error) {
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

// seedsMax bounds the memory that the verdicts of one command take.
const seedsMax = 100_000

// parseSeeds reads a range of seeds that one command runs.
func parseSeeds(text string) (seeds, error) {
	r, err := parseAnySeeds(text)
	if err == nil && r.length() > seedsMax {
		return seeds{}, fmt.Errorf("--seeds %s: at most %d at once", text, seedsMax)
	}
	return r, err
}

// parseAnySeeds reads a range of seeds of any length.
func parseAnySeeds(text string) (seeds, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 63)
	if err == nil {
		var to uint64
		if to, err = strconv.ParseUint(last, 10, 63); err == nil && from <= to {
			return seeds{from, to}, nil
		}
	}
	return seeds{}, fmt.Errorf("--seeds %q: must be A-B with A not above B, as in 1-200", text)
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the scenarios",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := allScenarios()
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
		Short: "List the oracles that check every run",
		Args:  exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error {
			for _, entry := range oracle.Catalogue() {
				fmt.Fprintf(c.OutOrStdout(), "%-20s %s\n", entry.Name, entry.Invariant)
			}
			return nil
		},
	}
}

// exactArgs returns a check of the number of arguments.
func exactArgs(n int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return fmt.Errorf("%s: the number of arguments besides flags is %d, want %d: usage: %s",
				c.Name(), len(args), n, c.UseLine())
		}
		return nil
	}
}
