package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/trace"
	"seedlet.dev/sim/why"
)

func whyCommand() *cobra.Command {
	var from source
	var opts why.Options
	var jobs int
	c := &cobra.Command{
		Use:   "why SCENARIO (--seed N | --plan FILE)",
		Short: "Find the step that decides a failure",
		Long: "Replay a failing run up to an event, let chance go another way from there, and count\n" +
			"how often the same oracle fails: many times each, for events that come closer and closer\n" +
			"to the one that decides. Prints the share of failures by event, and the decisive step.",
		Args: from.args,
		RunE: func(c *cobra.Command, args []string) error {
			if opts.Runs < 1 {
				return fmt.Errorf("--runs %d: must be at least 1", opts.Runs)
			}
			if err := checkJobs(jobs); err != nil {
				return err
			}
			p, err := from.plan(args)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			opts.Each = func(n int, do func(int)) { inParallel(n, jobs, neverStops, do) }
			note := newProgress(os.Stderr)
			opts.Progress = func(done, all int) { note.show("%d of about %d events tried", done, all) }
			found, err := why.Explain(ctx, p, opts)
			note.end()
			switch {
			case errors.Is(err, context.Canceled):
				return errors.New("interrupted before the decisive step was found")
			case errors.Is(err, why.ErrPasses):
				return fmt.Errorf("%s does not fail", p.Metadata.Name)
			case err != nil:
				return err
			}
			return printExplanation(c.OutOrStdout(), p, found)
		},
	}
	from.flags(c, true)
	c.Flags().IntVar(&opts.Runs, "runs", 20, "the number of runs from each event")
	addJobs(c, &jobs)
	return c
}

// printExplanation prints the share of failures by event, and what happened at the decisive one.
func printExplanation(w io.Writer, p *plan.Plan, e *why.Explanation) error {
	f := e.Failure
	fmt.Fprintf(w, "FAIL at %v, event %d: %s: %s\n\n", f.Virtual, f.Event, f.Oracle, f.Message)
	fmt.Fprintf(w, "%10s  %8s\n", "same up to", "failures")
	const width = 40
	for _, point := range e.Points {
		bar := strings.Repeat("█", int(point.Share()*width+0.5))
		fmt.Fprintf(w, "%10d  %3d/%-4d  %s\n", point.Event, point.Failures, point.Runs, bar)
	}
	if e.Decisive == 0 {
		fmt.Fprintf(w, "\nThe plan decides: nearly all runs of it fail, whatever chance does.\n")
		return nil
	}
	lines, err := linesOfEvent(p, e.Decisive)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\nDecisive: event %d\n%s\n", e.Decisive, strings.Join(lines, "\n"))
	return nil
}

// linesOfEvent returns the lines of the log from the event before up to the end of an event's
// effects.
func linesOfEvent(p *plan.Plan, event uint64) ([]string, error) {
	var lines []string
	opts := sim.Options{Until: event}
	printer := &trace.Printer{Write: func(line string) { lines = append(lines, line) },
		Kinds: string([]rune{trace.KindEvent, trace.KindEffect, trace.KindFact, trace.KindPlan})}
	printer.Attach(p, &opts)
	if _, err := sim.Run(p, opts); err != nil {
		return nil, err
	}
	begin := 0
	for i, line := range lines {
		if strings.HasPrefix(line, fmt.Sprintf("#%d ", event-1)) {
			begin = i
		}
	}
	return lines[begin:], nil
}
