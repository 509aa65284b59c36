package plan

import (
	"errors"
	"fmt"
	"time"
)

// Pressure sets what the machine uses besides its pods, from its time until the next one.
type Pressure struct {
	MemoryMiB int `json:"memoryMiB,omitempty"`
	Processes int `json:"processes,omitempty"` // with their threads
	DiskMiB   int `json:"diskMiB,omitempty"`
	// ThousandInodes are those of files besides the pods'.
	ThousandInodes int `json:"thousandInodes,omitempty"`
}

// PressureRange is how often, and by how much, what the machine uses changes. Nothing changes after
// the faults have healed.
type PressureRange struct {
	Changes   Count `json:"changes,omitempty"`
	MemoryMiB Count `json:"memoryMiB,omitempty"`
	Processes Count `json:"processes,omitempty"`
	// FinalMemoryMiB and FinalProcesses are in use at the end, when the faults heal.
	FinalMemoryMiB Count `json:"finalMemoryMiB,omitempty"`
	FinalProcesses Count `json:"finalProcesses,omitempty"`

	DiskMiB        Count `json:"diskMiB,omitempty"`
	ThousandInodes Count `json:"thousandInodes,omitempty"`
	// FinalDiskMiB is in use at the end; all inodes of the machine's own files are free then.
	FinalDiskMiB Count `json:"finalDiskMiB,omitempty"`
}

// addPressures generates the changes of what the machine uses.
func (g *generator) addPressures() {
	p := &g.scenario.Spec.Pressures
	if p.Changes.Most == 0 {
		return
	}
	r := g.stream("pressures")
	for range p.Changes.draw(r) {
		at := g.randomTime(r)
		g.add(at, &Pressure{MemoryMiB: p.MemoryMiB.draw(r), Processes: p.Processes.draw(r),
			DiskMiB: p.DiskMiB.draw(r), ThousandInodes: p.ThousandInodes.draw(r)})
	}
	g.add(g.plan.Spec.Duration, &Pressure{MemoryMiB: p.FinalMemoryMiB.draw(r),
		Processes: p.FinalProcesses.draw(r), DiskMiB: p.FinalDiskMiB.draw(r)})
}

// Length implements Deed.
func (p *Pressure) Length() Duration { return 0 }

// PodEntry implements Deed.
func (p *Pressure) PodEntry() string { return "" }

func (p *Pressure) validate(*Spec) error {
	if min(p.MemoryMiB, p.Processes, p.DiskMiB, p.ThousandInodes) < 0 {
		return fmt.Errorf("memoryMiB: want amounts of 0 or more, have %+v", *p)
	}
	return nil
}

// Load is what the processes of a container use from a time on.
type Load struct {
	At        Duration `json:"at"`                  // since the start of the process
	MemoryMiB int      `json:"memoryMiB,omitempty"` // absent: as before
	Processes int      `json:"processes,omitempty"` // absent: as before
}

// LoadRange is a Load that a container may have.
type LoadRange struct {
	At        Span  `json:"at"`
	MemoryMiB Count `json:"memoryMiB,omitempty"`
	Processes Count `json:"processes,omitempty"`
	// Probability is the share of containers that have the load. Absent: every container.
	Probability *Share `json:"probability,omitempty"`
}

func (l *Load) validate() error {
	if min(l.MemoryMiB, l.Processes) < 0 {
		return errors.New("want 0 or more memoryMiB and processes")
	}
	return nil
}

// loads generates the loads of a container. Each entry has a stream of its own.
func (g *generator) loads(pod string, b *BehaviourRange) []Load {
	var all []Load
	for i := range b.Loads {
		r, l := g.stream(fmt.Sprintf("loads %s %s %d", pod, b.Container, i)), &b.Loads[i]
		if l.Probability != nil && r.Float64() >= l.Probability.draw(r) {
			continue
		}
		all = append(all, Load{At: Duration(time.Duration(l.At.draw(r))),
			MemoryMiB: l.MemoryMiB.draw(r), Processes: l.Processes.draw(r)})
	}
	return all
}
