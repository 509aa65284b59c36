package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/shrink"
	"seedlet.dev/sim/trace"
)

// source is where a plan comes from: the generator, by a seed of a scenario, or a file.
type source struct {
	seed     uint64
	strategy strategy
	file     string
}

func (s *source) flags(c *cobra.Command, withFile bool) {
	c.Flags().Uint64Var(&s.seed, "seed", 1, "the seed of the plan")
	s.strategy.add(c)
	if withFile {
		c.Flags().StringVar(&s.file, "plan", "",
			"run the plan in this file, which names its scenario, instead of generating one")
	}
}

// args checks the arguments besides flags: the scenario, which may be left out if there is a plan.
func (s *source) args(c *cobra.Command, args []string) error {
	if s.file != "" && len(args) == 0 {
		return nil
	}
	return exactArgs(1)(c, args)
}

// plan returns the plan for the arguments besides flags. A scenario that is given beside a file
// must be that of the plan.
func (s *source) plan(args []string) (*plan.Plan, error) {
	if s.file == "" {
		scenario, err := findOne(args[0])
		if err != nil {
			return nil, err
		}
		return s.strategy.generate(scenario, s.seed)
	}
	if s.strategy.order != "" {
		return nil, fmt.Errorf("--strategy %s: a plan has its own, spec.order", s.strategy.order)
	}
	data, err := os.ReadFile(s.file)
	if err != nil {
		return nil, fmt.Errorf("--plan: %w", err)
	}
	p, err := plan.Parse(s.file, data)
	if err != nil || len(args) == 0 {
		return p, err
	}
	scenario, err := findOne(args[0])
	if err == nil && p.Spec.Scenario != scenario.Metadata.Name {
		err = fmt.Errorf("%s: it is a plan of scenario %s, not of %s", s.file,
			p.Spec.Scenario, args[0])
	}
	return p, err
}

func planCommand() *cobra.Command {
	var from source
	c := &cobra.Command{
		Use:   "plan SCENARIO --seed N",
		Short: "Print the plan of a run as a file, for replay --plan",
		Args:  exactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			p, err := from.plan(args)
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(p.YAML())
			return err
		},
	}
	from.flags(c, false)
	return c
}

func replayCommand() *cobra.Command {
	var from source
	var until uint64
	var dump string
	var log logFlags
	var files reportFlags
	c := &cobra.Command{
		Use:   "replay SCENARIO (--seed N | --plan FILE)",
		Short: "Run one seed or plan, and print what happens",
		Long: "Run one seed or plan, and print what happens: as lines with --log, as a page for a\n" +
			"browser with --html, as a trace for ui.perfetto.dev with --trace. Page and trace are\n" +
			"written when the run has ended.",
		Args: from.args,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := from.plan(args)
			if err != nil {
				return err
			}
			if until == 0 && c.Flags().Changed("until") {
				return fmt.Errorf("--until 0: events are counted from 1")
			}
			if dump != "" && until == 0 {
				return fmt.Errorf("--dump %s: needs --until EVENT, the event to dump the state at",
					dump)
			}
			if err := files.open(dump); err != nil {
				return err
			}
			return replay(c.OutOrStdout(), p, until, dump, &log, &files)
		},
	}
	from.flags(c, true)
	c.Flags().Uint64Var(&until, "until", 0, "stop after the event of this number")
	c.Flags().StringVar(&dump, "dump", "",
		"with --until, write the agent's state after that event to a file; - is the standard output")
	log.add(c)
	files.add(c)
	return c
}

// logFlags say what of a run is printed.
type logFlags struct {
	isOn bool
	pod  string
	from virtualTime
	only []string
}

func (l *logFlags) add(c *cobra.Command) {
	c.Flags().BoolVar(&l.isOn, "log", false,
		"print every event and effect of the agent, every fact, and what the plan does")
	c.Flags().StringVar(&l.pod, "pod", "", "with --log, only lines about a pod, by name")
	c.Flags().Var(&l.from, "from",
		"with --log, only lines from a virtual time on, such as 1m30s or 1:30")
	c.Flags().StringSliceVar(&l.only, "only", nil,
		"with --log, only lines of these kinds: events, effects, facts, plan")
}

// lineKinds are the kinds of lines, by their names for --only.
var lineKinds = map[string]rune{"events": trace.KindEvent, "effects": trace.KindEffect,
	"facts": trace.KindFact, "plan": trace.KindPlan}

// printer returns the printer that the flags ask for; nil for none.
func (l *logFlags) printer(p *plan.Plan, write func(string)) (*trace.Printer, error) {
	if !l.isOn {
		if l.pod != "" || l.from != 0 || len(l.only) > 0 {
			return nil, errors.New("--pod, --from and --only need --log")
		}
		return nil, nil
	}
	if l.pod != "" && p.Spec.PodNamed(l.pod) == nil {
		var names []string
		for i := range p.Spec.Pods {
			names = append(names, p.Spec.Pods[i].Name)
		}
		return nil, fmt.Errorf("--pod %s: the plan has %s", l.pod, strings.Join(names, ", "))
	}
	printer := &trace.Printer{Write: write, From: time.Duration(l.from)}
	if l.pod != "" {
		printer.Pod = plan.ManifestName(p.Spec.PodNamed(l.pod).Manifest)
	}
	for _, name := range l.only {
		kind, known := lineKinds[name]
		if !known {
			return nil, fmt.Errorf("--only %s: want events, effects, facts or plan", name)
		}
		printer.Kinds += string(kind)
	}
	return printer, nil
}

func replay(w io.Writer, p *plan.Plan, until uint64, dump string, log *logFlags,
	files *reportFlags) error {
	out := bufio.NewWriter(w)
	defer out.Flush()
	opts := sim.Options{Until: until}
	printer, err := log.printer(p, func(line string) { fmt.Fprintln(out, line) })
	if err != nil {
		return err
	}
	if printer != nil {
		printer.Attach(p, &opts)
	}
	finish := files.attach(p, &opts)
	verdict, err := sim.Run(p, opts)
	if err != nil {
		return err
	}
	if err := finish(verdict); err != nil {
		return err
	}
	if until != 0 && verdict.State == nil && verdict.Failure == nil {
		return fmt.Errorf("--until %d: the run has only %d events", until, verdict.Events)
	}
	if dump != "" && verdict.State != nil {
		var state bytes.Buffer
		if err := json.Indent(&state, verdict.State, "", "  "); err != nil {
			return err
		}
		state.WriteByte('\n')
		if dump == "-" {
			_, err = state.WriteTo(out)
		} else {
			err = os.WriteFile(dump, state.Bytes(), 0o644)
		}
		if err != nil {
			return fmt.Errorf("--dump: %w", err)
		}
	}
	fmt.Fprintf(out, "%s: %d events, %d effects, %d incarnations of the agent, %d restarts of "+
		"containers, %v virtual, hash %016x\n", p.Metadata.Name, verdict.Events,
		verdict.Effects, verdict.Incarnations, verdict.Restarts, verdict.Virtual.Round(time.Millisecond),
		verdict.Hash)
	if f := verdict.Failure; f != nil {
		fmt.Fprintf(out, "FAIL at %v, event %d: %s: %s\n%s", f.Virtual, f.Event, f.Oracle, f.Message,
			f.Stack)
		return errFailed
	}
	return nil
}

func shrinkCommand() *cobra.Command {
	var from source
	var tries int
	var to string
	c := &cobra.Command{
		Use:   "shrink SCENARIO (--seed N | --plan FILE)",
		Short: "Reduce a failing plan to a small one that fails by the same oracle",
		Long: "Reduce a failing plan to a small one that fails by the same oracle, about the same\n" +
			"pod. An interrupt ends the search; the smallest plan so far is printed.",
		Args: from.args,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := from.plan(args)
			if err != nil {
				return err
			}
			progress := newProgress(os.Stderr)
			ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt)
			defer stop()
			small, verdict, err := shrink.Minimize(ctx, p, tries, func(tried, entries int) {
				progress.show("%d tries, %d entries", tried, entries)
			})
			progress.end()
			if err != nil {
				return err
			}
			if verdict.Failure == nil {
				return fmt.Errorf("%s does not fail: nothing to shrink", p.Metadata.Name)
			}
			fmt.Fprintf(c.ErrOrStderr(), "%d entries of %d: %s: %s\n", small.EntryCount(),
				p.EntryCount(), verdict.Failure.Oracle, verdict.Failure.Message)
			if to != "" {
				return os.WriteFile(to, small.YAML(), 0o644)
			}
			_, err = c.OutOrStdout().Write(small.YAML())
			return err
		},
	}
	from.flags(c, true)
	c.Flags().IntVar(&tries, "tries", 600, "the maximum number of plans to run")
	c.Flags().StringVarP(&to, "output", "o", "",
		"write the plan to this file, instead of the standard output")
	return c
}
