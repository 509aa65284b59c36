package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"seedlet.dev/sim"
	"seedlet.dev/sim/plan"
	timeline "seedlet.dev/sim/report"
)

// reportFlags say which files a replayed run is shown in.
type reportFlags struct {
	html, trace string
	outputs     []output
}

// output is a file that is open for writing.
type output struct {
	flag  string
	file  *os.File
	write func(*timeline.Run, io.Writer) error
}

func (f *reportFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.html, "html", "",
		"write the run to this file as a page: pods, faults, causes and effects over virtual time")
	c.Flags().StringVar(&f.trace, "trace", "",
		"write the run to this file as a trace in Chrome's format, for ui.perfetto.dev")
}

// open creates the files before the run, so that a wrong path costs no time.
func (f *reportFlags) open(dump string) error {
	flags := []struct{ name, path string }{{"--dump", dump}, {"--html", f.html}, {"--trace", f.trace}}
	for i, a := range flags {
		for _, b := range flags[i+1:] {
			if a.path != "" && filepath.Clean(a.path) == filepath.Clean(b.path) {
				return fmt.Errorf("%s %s: %s writes to the same file", b.name, b.path, a.name)
			}
		}
	}
	for _, o := range []struct {
		flag, path string
		write      func(*timeline.Run, io.Writer) error
	}{
		{"--html", f.html, (*timeline.Run).WriteHTML}, {"--trace", f.trace, (*timeline.Run).WriteTrace},
	} {
		if o.path == "" {
			continue
		}
		file, err := os.Create(o.path)
		if err != nil {
			return fmt.Errorf("%s: %w", o.flag, err)
		}
		f.outputs = append(f.outputs, output{o.flag, file, o.write})
	}
	if len(f.outputs) > 0 { // what reads the lines may end before the files are written
		signal.Ignore(syscall.SIGPIPE)
	}
	return nil
}

// attach has the run recorded, if there are files to write, and returns what writes them.
func (f *reportFlags) attach(p *plan.Plan, o *sim.Options) (finish func(*sim.Verdict) error) {
	if len(f.outputs) == 0 {
		return func(*sim.Verdict) error { return nil }
	}
	recorder := timeline.New(p)
	recorder.Attach(p, o)
	return func(v *sim.Verdict) error {
		run := recorder.Finish(v)
		for _, out := range f.outputs {
			if err := out.finish(run); err != nil {
				return fmt.Errorf("%s: %w", out.flag, err)
			}
		}
		return nil
	}
}

func (o *output) finish(run *timeline.Run) error {
	progress := newProgress(os.Stderr)
	progress.every = 2 * time.Second
	buffered := bufio.NewWriterSize(&countingWriter{w: o.file, wrote: func(n int64) {
		progress.show("%s %s: %d MB written", o.flag, o.file.Name(), n>>20)
	}}, 1<<16)
	err := o.write(run, buffered)
	if err == nil {
		err = buffered.Flush()
	}
	progress.end()
	if closed := o.file.Close(); err == nil {
		err = closed
	}
	return err
}

// countingWriter reports how many bytes have been written.
type countingWriter struct {
	w     io.Writer
	count int64
	wrote func(int64)
}

// Write implements io.Writer.
func (c *countingWriter) Write(data []byte) (int, error) {
	n, err := c.w.Write(data)
	c.count += int64(n)
	c.wrote(c.count)
	return n, err
}
