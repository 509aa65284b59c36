package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
	v1 "k8s.io/api/core/v1"
)

// screen shows the pods: on a terminal as a table that is redrawn in place, otherwise as a line for
// each change of a pod.
type screen struct {
	out        io.Writer
	terminal   bool
	start      time.Time
	tableLines int               // lines of the table on the terminal now
	printed    map[string]string // by pod, the last line printed
}

func newScreen(out *os.File) *screen {
	return &screen{
		out: out, terminal: term.IsTerminal(int(out.Fd())),
		start: time.Now(), printed: map[string]string{},
	}
}

func (s *screen) draw(pods []v1.Pod, now time.Time) {
	if s.terminal {
		s.redraw(pods, now)
		return
	}
	for i := range pods {
		pod := &pods[i]
		line := fmt.Sprintf("%-20s %-18s ready %s  restarts %d",
			pod.Name, podStatus(pod), ready(pod), restarts(pod))
		if s.printed[pod.Name] != line {
			s.printed[pod.Name] = line
			fmt.Fprintf(s.out, "%5.1fs  %s  age %s\n", now.Sub(s.start).Seconds(), line,
				age(pod, now))
		}
	}
}

// redraw writes the table over the previous one.
func (s *screen) redraw(pods []v1.Pod, now time.Time) {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "NAME\tSTATUS\tREADY\tRESTARTS\tAGE\tIP")
	for i := range pods {
		pod := &pods[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", pod.Name, podStatus(pod), ready(pod),
			restarts(pod), age(pod, now), pod.Status.PodIP)
	}
	_ = w.Flush() // into memory
	fmt.Fprintln(&text, "(Ctrl-C to stop)")
	if s.tableLines > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA", s.tableLines) // up to where the table began
	}
	fmt.Fprint(s.out, "\x1b[J"+text.String()) // clear to the end of the screen, then write
	s.tableLines = strings.Count(text.String(), "\n")
}
