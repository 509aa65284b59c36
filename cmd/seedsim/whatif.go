package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"

	"seedlet.dev/sim"
	"seedlet.dev/sim/whatif"
)

func whatifCommand() *cobra.Command {
	var flags whatifFlags
	c := &cobra.Command{
		Use:   "whatif -f FILE|DIR --event EVENT",
		Short: "Simulate what an event on a node does to the pods of your own manifests",
		Long: "Simulate one node with the pods of manifests many times, let an event come at another\n" +
			"moment each time, and print by workload how the pods ended and when they were Ready\n" +
			"again. docs/whatif.md explains the table.",
		Args: exactArgs(0),
		RunE: func(c *cobra.Command, _ []string) error { return flags.run(c) },
	}
	flags.add(c)
	return c
}

// whatifFlags say what is simulated.
type whatifFlags struct {
	files                  []string
	event, node, behaviour string
	runs, jobs             int
	seed                   uint64
	report                 reportFlags
}

func (f *whatifFlags) add(c *cobra.Command) {
	c.Flags().StringSliceVarP(&f.files, "filename", "f", nil,
		"manifests: a file, or a folder of .yaml, .yml and .json files; can be repeated")
	c.Flags().StringVar(&f.event, "event", "",
		"what happens: runtime-restart, reboot, drain, node-shutdown, memory-pressure, disk-pressure "+
			"or agent-restart")
	c.Flags().StringVar(&f.node, "node", "",
		"a file with a Node (labels, capacity), a KubeletConfiguration, or both")
	c.Flags().StringVar(&f.behaviour, "behaviour", "",
		"a file that says how the programs of containers behave")
	c.Flags().IntVar(&f.runs, "runs", 1000, "the number of runs")
	c.Flags().Uint64Var(&f.seed, "seed", 1, "the seed of the first run")
	addJobs(c, &f.jobs)
	c.Flags().StringVar(&f.report.html, "html", "",
		"write the worst run to this file as a page: pods, causes and effects over virtual time")
}

func (f *whatifFlags) run(c *cobra.Command) error {
	in, event, err := f.read()
	if err != nil {
		return err
	}
	if err := f.report.open(""); err != nil {
		return err
	}
	note := newProgress(os.Stderr)
	var done atomic.Int64
	rep, err := whatif.Run(in, whatif.Options{Event: event, Runs: f.runs, Seed: f.seed,
		Each: func(n int, do func(int)) { inParallel(n, f.jobs, neverStops, do) },
		Progress: func() {
			n := done.Add(1)
			note.mu.Lock()
			defer note.mu.Unlock()
			note.show("%d of %d runs", n, f.runs)
		}})
	note.end()
	if err != nil {
		return err
	}
	if err := rep.Write(c.OutOrStdout()); err != nil {
		return err
	}
	if err := f.show(rep); err != nil {
		return err
	}
	if rep.HasFailed() {
		return errFailed
	}
	return nil
}

// show writes the page of the worst run, if there is a file for it.
func (f *whatifFlags) show(rep *whatif.Report) error {
	if f.report.html == "" {
		return nil
	}
	p, opts := rep.WorstPlan(), sim.Options{}
	finish := f.report.attach(p, &opts)
	verdict, err := sim.Run(p, opts)
	if err != nil {
		return err
	}
	return finish(verdict)
}

// read checks the flags, and reads the files.
func (f *whatifFlags) read() (*whatif.Input, whatif.Event, error) {
	switch {
	case len(f.files) == 0:
		return nil, "", errors.New("-f: want a file or a folder of manifests, have none")
	case f.runs < 1:
		return nil, "", fmt.Errorf("--runs %d: must be at least 1", f.runs)
	}
	if err := checkJobs(f.jobs); err != nil {
		return nil, "", err
	}
	event, err := whatif.ParseEvent(f.event)
	if err != nil {
		return nil, "", fmt.Errorf("--event: %w", err)
	}
	var files []whatif.File
	for _, name := range f.files {
		found, err := manifestFiles(name)
		if err != nil {
			return nil, "", fmt.Errorf("-f: %w", err)
		}
		files = append(files, found...)
	}
	in, err := whatif.Read(files)
	if err != nil {
		return nil, "", err
	}
	for _, more := range []struct {
		flag, path string
		read       func(whatif.File) error
	}{{"--node", f.node, in.ReadNode}, {"--behaviour", f.behaviour, in.ReadBehaviour}} {
		if more.path == "" {
			continue
		}
		data, err := os.ReadFile(more.path)
		if err != nil {
			return nil, "", fmt.Errorf("%s: %w", more.flag, err)
		}
		if err := more.read(whatif.File{Name: more.path, Data: data}); err != nil {
			return nil, "", err
		}
	}
	return in, event, nil
}

// manifestFiles returns a file, or the manifests of a folder by their names.
func manifestFiles(name string) ([]whatif.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	paths := []string{name}
	if info.IsDir() {
		entries, err := os.ReadDir(name) // sorted
		if err != nil {
			return nil, err
		}
		paths = nil
		for _, e := range entries {
			if !e.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"},
				filepath.Ext(e.Name())) {
				paths = append(paths, filepath.Join(name, e.Name()))
			}
		}
		if len(paths) == 0 {
			return nil, fmt.Errorf("%s: the folder has no .yaml, .yml or .json file", name)
		}
	}
	var files []whatif.File
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, whatif.File{Name: path, Data: data})
	}
	return files, nil
}
