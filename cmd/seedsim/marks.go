package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"seedlet.dev/sim/marks"
	"seedlet.dev/sim/plan"
)

func marksCommand() *cobra.Command {
	var seedRange string
	var order string
	var jobs int
	var asJSON bool
	c := &cobra.Command{
		Use:   "marks [SCENARIO…] --seeds A-B",
		Short: "Say which interesting situations the runs of scenarios reach",
		Long: "Say which marks the runs of scenarios reach: situations in which a trouble meets an\n" +
			"operation, with the first run that reaches each. Without a scenario: all of them.",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := parseSeeds(seedRange)
			if err != nil {
				return err
			}
			if err := checkJobs(jobs); err != nil {
				return err
			}
			chosen := []strategy{{plan.OrderUniform}, {plan.OrderPCT}}
			if order != "both" {
				chosen = make([]strategy, 1)
				if err := chosen[0].Set(order); err != nil && order != "" {
					return fmt.Errorf("--strategy %s: %w, or both", order, err)
				}
			}
			all, err := tasksOf(args, r, chosen)
			if err != nil {
				return err
			}
			rep, err := runAll(all, jobs, false, newProgress(os.Stderr))
			if err != nil {
				return err
			}
			runs := len(all) / len(chosen)
			counts := countMarks(all[:runs])
			if len(chosen) > 1 {
				err = printComparison(c.OutOrStdout(), counts, countMarks(all[runs:]), runs, asJSON)
			} else {
				err = printMarks(c.OutOrStdout(), counts, runs, asJSON)
			}
			if err != nil {
				return err
			}
			if len(rep.Failures) > 0 {
				rep.What = strings.Join(args, ", ") + " seeds " + seedRange
				return rep.print(c.ErrOrStderr(), false)
			}
			return nil
		},
	}
	c.Flags().StringVar(&seedRange, "seeds", "1-20", "the range of seeds, as A-B")
	addJobs(c, &jobs)
	c.Flags().BoolVar(&asJSON, "json", false, "print the result as a JSON object")
	c.Flags().StringVar(&order, "strategy", "", strategyUsage+"; both compares uniform and pct")
	return c
}

// tasksOf returns the runs of scenarios, by their names or files, with every seed, by one strategy
// after another; of all scenarios if there are no names.
func tasksOf(names []string, r seeds, by []strategy) ([]*task, error) {
	if len(names) == 0 {
		names = []string{"all"}
	}
	var tasks []*task
	for _, s := range by {
		for _, name := range names {
			list, err := find(name)
			if err != nil {
				return nil, err
			}
			tasks = append(tasks, newTasks(list, name, r, s)...)
		}
	}
	return tasks, nil
}

// markCount is a mark and the runs that reach it.
type markCount struct {
	marks.Mark
	Runs  int    `json:"runs"`
	First *first `json:"first,omitempty"` // absent: no run reaches it
}

// first is the first run that reaches a mark, in the order of scenarios and seeds.
type first struct {
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
}

// countMarks returns the marks of the catalogue with the runs that reach them.
func countMarks(tasks []*task) []markCount {
	var counts []markCount
	for _, m := range marks.Catalogue() {
		counts = append(counts, markCount{Mark: m})
	}
	for _, t := range tasks {
		for id := range t.verdict.Marks.All() {
			if counts[id].Runs++; counts[id].First == nil {
				counts[id].First = &first{t.scenario.Metadata.Name, t.seed}
			}
		}
	}
	return counts
}

// printMarks prints which marks were reached, then those that were not. The calls that a trouble
// was not met by are in one line.
func printMarks(w io.Writer, counts []markCount, runs int, asJSON bool) error {
	reached := 0
	for i := range counts {
		if counts[i].Runs > 0 {
			reached++
		}
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"runs": runs, "reached": reached, "marks": counts})
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MARK\tRARE\tRUNS\tFIRST")
	for i := range counts {
		if m := &counts[i]; m.Runs > 0 {
			fmt.Fprintf(table, "%s\t%s\t%d\t%s seed %d\n", m.Name, rareWord(&m.Mark), m.Runs,
				m.First.Scenario, m.First.Seed)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	printMissed(w, counts)
	fmt.Fprintf(w, "\n%d of %d marks reached by %d runs\n", reached, len(counts), runs)
	return nil
}

// printComparison prints how many runs reach each mark by either strategy.
func printComparison(w io.Writer, uniform, pct []markCount, runs int, asJSON bool) error {
	type row struct {
		marks.Mark
		Uniform int `json:"uniform"`
		PCT     int `json:"pct"`
	}
	var rows []row
	var reached, alone [2]int // by uniform, by pct; and not by the other
	for i := range uniform {
		m := row{uniform[i].Mark, uniform[i].Runs, pct[i].Runs}
		rows = append(rows, m)
		for by, n := range []int{m.Uniform, m.PCT} {
			if n > 0 {
				reached[by]++
				if m.Uniform == 0 || m.PCT == 0 {
					alone[by]++
				}
			}
		}
	}
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"runs": runs, "marks": rows})
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MARK\tRARE\tUNIFORM\tPCT")
	for i := range rows {
		if m := &rows[i]; m.Uniform > 0 || m.PCT > 0 {
			fmt.Fprintf(table, "%s\t%s\t%d\t%d\n", m.Name, rareWord(&m.Mark), m.Uniform, m.PCT)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nof %d marks, %d runs by each strategy reach: uniform %d, %d of them alone; "+
		"pct %d, %d of them alone\n", len(rows), runs, reached[0], alone[0], reached[1], alone[1])
	return nil
}

func rareWord(m *marks.Mark) string {
	if m.Rare {
		return "rare"
	}
	return "-"
}

// printMissed prints the marks that no run reached: those that are not rare one by one, with the
// others of a trouble in a line.
func printMissed(w io.Writer, counts []markCount) {
	fmt.Fprintln(w, "\nnever reached:")
	var line, trouble string
	end := func() {
		if line != "" {
			fmt.Fprintf(w, "  rare: %s\n", line)
		}
		line, trouble = "", ""
	}
	for i := range counts {
		m := &counts[i]
		if m.Runs > 0 {
			continue
		}
		at := strings.LastIndexByte(m.Name, ' ')
		switch {
		case !m.Rare:
			fmt.Fprintf(w, "  %s\n", strings.TrimSpace(m.Name+"  "+m.About))
		case at < 0:
			fmt.Fprintf(w, "  rare: %s  %s\n", m.Name, m.About)
		case m.Name[:at] != trouble:
			end()
			line, trouble = m.Name, m.Name[:at]
		default:
			line += ", " + m.Name[at+1:]
		}
	}
	end()
}
