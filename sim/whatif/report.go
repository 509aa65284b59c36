package whatif

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"seedlet.dev/sim/plan"
)

// Report is what became of the pods in all runs.
type Report struct {
	Event   Event
	Runs    int
	Seeds   [2]uint64 // the first and the last
	Rows    []Row     // by workload
	Worst   uint64    // the seed of the worst run
	Notes   []string
	Cut     []Cut // runs that an oracle ended
	input   *Input
	readyAt time.Duration
}

// Row is one workload. Counts are of pods in all runs.
type Row struct {
	Workload      string
	Pods          int // of one run
	Clean, Killed int
	// Ready is how long the pods took to be Ready again, sorted; zero for a pod that always was.
	Ready    []time.Duration
	Restarts []int // of each pod, sorted
	NotReady int
	Turns    []int  // of each eviction, among those of its run, sorted
	Unready  int    // pods that were not Ready when the event came
	IsGone   bool   // the event ends the pods for good
	Worst    uint64 // seed
	IsWorse  bool   // the worst run is worse than one in which nothing happens
}

// caveats say what of an event is not as in a cluster.
var caveats = map[Event]string{
	Reboot:       "; the power is cut, as in a crash: no hook runs",
	Drain:        "; PodDisruptionBudgets are not simulated, pods of DaemonSets stay",
	NodeShutdown: "; the machine boots again, pods that have ended are not made again",
	MemoryPressure: "; another program takes memory, and gives it back; pods that were evicted are " +
		"not made again",
	DiskPressure: "; something else fills the disk, and is removed; pods that were evicted are not " +
		"made again",
}

// Cut is an invariant of the simulator that did not hold, which ended runs early.
type Cut struct {
	Oracle, Message string
	Runs            int
	Seed            uint64 // of the first run
}

// badness is how bad a run was for a workload, the worst first.
type badness struct {
	notReady, evicted, killed int
	again                     time.Duration
	restarts                  int
}

func (b badness) compare(o badness) int {
	return cmp.Or(cmp.Compare(b.notReady, o.notReady), cmp.Compare(b.evicted, o.evicted),
		cmp.Compare(b.killed, o.killed), cmp.Compare(b.again, o.again),
		cmp.Compare(b.restarts, o.restarts))
}

func (b *badness) add(p *podOutcome, isGone bool) {
	if p.isLeftNotReady(isGone) {
		b.notReady++
	}
	if p.evicted > 0 {
		b.evicted++
	}
	if p.killed {
		b.killed++
	}
	b.again, b.restarts = max(b.again, p.again), b.restarts+p.restarts
}

// isLeftNotReady reports whether the event took the pod's readiness for good.
func (p *podOutcome) isLeftNotReady(isGone bool) bool {
	return !isGone && p.evicted == 0 && p.wasReady && !p.isReady && !p.succeeded
}

func newReport(in *Input, o Options, outcomes []outcome) *Report {
	rep := &Report{Event: o.Event, Runs: o.Runs, input: in,
		Seeds: [2]uint64{o.Seed, o.Seed + uint64(o.Runs) - 1}, Worst: o.Seed}
	var worst badness
	total := make([]badness, len(outcomes))
	for w, load := range in.Workloads {
		row := Row{Workload: load.String(), Pods: len(load.Pods), Worst: o.Seed,
			IsGone: in.ends(load, o.Event)}
		var worstHere badness
		for i := range outcomes {
			var here badness
			for k := range outcomes[i].pods[w] {
				p := &outcomes[i].pods[w][k]
				row.add(p)
				here.add(p, row.IsGone)
				total[i].add(p, row.IsGone)
			}
			if here.compare(worstHere) > 0 {
				worstHere, row.Worst, row.IsWorse = here, o.Seed+uint64(i), true
			}
		}
		slices.Sort(row.Ready)
		slices.Sort(row.Restarts)
		slices.Sort(row.Turns)
		rep.Rows = append(rep.Rows, row)
	}
	for i := range outcomes {
		if total[i].compare(worst) > 0 {
			worst, rep.Worst = total[i], o.Seed+uint64(i)
		}
		rep.addCut(&outcomes[i], o.Seed+uint64(i))
	}
	return rep
}

func (r *Row) add(p *podOutcome) {
	switch {
	case p.killed:
		r.Killed++
	case p.ended:
		r.Clean++
	}
	if p.evicted > 0 {
		r.Turns = append(r.Turns, p.evicted)
	}
	r.Restarts = append(r.Restarts, p.restarts)
	if !p.wasReady {
		r.Unready++
	}
	switch {
	case p.isLeftNotReady(r.IsGone):
		r.NotReady++
	case !r.IsGone && p.evicted == 0 && p.wasReady && (p.isReady || p.again > 0):
		r.Ready = append(r.Ready, p.again)
	}
}

// addCut counts a violation with those of the same oracle.
func (rep *Report) addCut(o *outcome, seed uint64) {
	if o.failure == nil {
		return
	}
	i := slices.IndexFunc(rep.Cut, func(c Cut) bool { return c.Oracle == o.failure.Oracle })
	if i < 0 {
		i = len(rep.Cut)
		rep.Cut = append(rep.Cut, Cut{Oracle: o.failure.Oracle, Message: o.failure.Message, Seed: seed})
	}
	rep.Cut[i].Runs++
}

// HasFailed reports whether an oracle found something wrong in the agent or the simulator, rather
// than pods that do not settle.
func (rep *Report) HasFailed() bool {
	return slices.ContainsFunc(rep.Cut, func(c Cut) bool { return c.Oracle != "progress" })
}

// WorstPlan returns the plan of the worst run.
func (rep *Report) WorstPlan() *plan.Plan {
	return rep.input.plan(rep.Worst, rep.Event, rep.readyAt)
}

// Write writes the table and the notes.
func (rep *Report) Write(w io.Writer) error {
	var text strings.Builder
	tab := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	evictions := ""
	if rep.Event.isPressure() {
		evictions = "EVICTED\tTURN p50\t"
	}
	fmt.Fprintln(tab, "WORKLOAD\tPODS\t"+evictions+"ENDED CLEANLY\tKILLED\tREADY AGAIN p50\tp99\t"+
		"RESTARTS p50\tMAX\tNOT READY\tWORST SEED")
	for i := range rep.Rows {
		fmt.Fprintln(tab, strings.Join(rep.Rows[i].cells(rep.Event), "\t"))
	}
	tab.Flush()
	fmt.Fprintf(&text, "\n%s, %d runs, seeds %d to %d%s\n", rep.Event, rep.Runs, rep.Seeds[0],
		rep.Seeds[1], caveats[rep.Event])
	for i := range rep.Rows {
		if r := &rep.Rows[i]; r.Unready > 0 {
			fmt.Fprintf(&text, "%s: %d of %d pods were not Ready when the event came\n", r.Workload,
				r.Unready, r.Pods*rep.Runs)
		}
	}
	for _, note := range rep.Notes {
		fmt.Fprintln(&text, note)
	}
	for _, c := range rep.Cut {
		fmt.Fprintf(&text, "%d runs, first seed %d: %s: %s\n", c.Runs, c.Seed, c.Oracle, c.Message)
	}
	_, err := io.WriteString(w, text.String())
	return err
}

func (r *Row) cells(event Event) []string {
	cells := []string{r.Workload, fmt.Sprint(r.Pods)}
	switch {
	case event.isPressure() && len(r.Turns) > 0:
		cells = append(cells, fmt.Sprint(len(r.Turns)), fmt.Sprint(percentile(r.Turns, 50)))
	case event.isPressure():
		cells = append(cells, "0", "-")
	}
	cells = append(cells, fmt.Sprint(r.Clean), fmt.Sprint(r.Killed))
	if len(r.Ready) == 0 {
		cells = append(cells, "-", "-")
	} else {
		for _, percent := range []int{50, 99} {
			cells = append(cells, fmt.Sprintf("%.1fs", percentile(r.Ready, percent).Seconds()))
		}
	}
	if len(r.Restarts) == 0 {
		cells = append(cells, "-", "-")
	} else {
		cells = append(cells, fmt.Sprint(percentile(r.Restarts, 50)),
			fmt.Sprint(r.Restarts[len(r.Restarts)-1]))
	}
	seed := "-"
	if r.IsWorse {
		seed = fmt.Sprint(r.Worst)
	}
	notReady := fmt.Sprint(r.NotReady)
	if r.IsGone {
		notReady = "-"
	}
	return append(cells, notReady, seed)
}
