package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/verify"
)

func verifyCommand() *cobra.Command {
	var from source
	c := &cobra.Command{
		Use:   "verify SCENARIO (--seed N | --plan FILE)",
		Short: "Check that a plan has one run only, also over restores of the agent's snapshot",
		Long: "Run a plan twice, then with the agent replaced by its restored snapshot after every\n" +
			"event, and compare all events, effects, facts and the verdict. If the runs differ, print\n" +
			"the first event that does, the restore that it takes, and what of the agent's state differs.",
		Args: from.args,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := from.plan(args)
			if err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			note := newProgress(os.Stderr)
			result, err := verify.Run(ctx, p, func(name string) { note.show("%s", name) })
			note.end()
			if errors.Is(err, context.Canceled) {
				return errors.New("interrupted before the runs could be compared")
			}
			if err != nil {
				return err
			}
			return printVerification(c.OutOrStdout(), p, result)
		},
	}
	from.flags(c, true)
	return c
}

// printVerification prints what was verified, or the first difference.
func printVerification(w io.Writer, p *plan.Plan, r *verify.Result) error {
	d := r.Divergence
	if d == nil {
		fmt.Fprintf(w, "%s: the same %d events over two runs and %d restores, hash %016x\n",
			p.Metadata.Name, r.Events, r.Events, r.Verdict.Hash)
		return nil
	}
	switch {
	case d.Event > 0:
		fmt.Fprintf(w, "DIVERGES at event %d, with %s\n", d.Event, d.With)
	case len(d.Facts) > 0:
		fmt.Fprintf(w, "DIVERGES with %s: events and effects are the same, a fact is not\n", d.With)
	default:
		fmt.Fprintf(w, "DIVERGES with %s\n", d.With)
	}
	for _, line := range append(d.State, d.Facts...) {
		fmt.Fprintln(w, "  "+line)
	}
	return errFailed
}
