package whatif

import (
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/eviction"
	"seedlet.dev/sim/disk"
	"seedlet.dev/sim/plan"
)

// Pressure on the node: a program besides the pods takes memory, or space of the disk, in steps,
// until less is left than the threshold of evictions, and gives it back later.

const (
	mib = 1 << 20
	// pressureSteps is in how many steps the program takes the last part.
	pressureSteps = 12
	// backoffMax is how long a container that the kernel has ended waits for its next run at most.
	backoffMax = 5 * time.Minute
	// memoryDefault is what a container uses that requests no memory, in MiB.
	memoryDefault = 64
	// shortageMin is by how much the node falls short at least, in MiB.
	shortageMin = 64
)

var (
	// pressureStep is the time between two steps, and pressureHeld how long the last one lasts.
	pressureStep = plan.Span{Least: 4 * time.Second, Most: 12 * time.Second}
	pressureHeld = plan.Span{Least: time.Minute, Most: 3 * time.Minute}
	// shortage is by how much the node falls short, in percent of what the pods use.
	shortage = plan.Count{Least: 10, Most: 40}
)

// isPressure reports whether an event lets the node run out of a resource.
func (e Event) isPressure() bool { return e == MemoryPressure || e == DiskPressure }

// pressures returns the steps of a pressure that begins at a time.
func (in *Input) pressures(event Event, p *plan.Plan, at time.Duration,
	r *rand.Rand) []plan.Happening {
	var used int
	for i := range p.Spec.Pods {
		used += usage(event, &p.Spec.Pods[i])
	}
	short := max(used*drawCount(shortage, r)/100, shortageMin)
	capacity, threshold := in.Node.threshold(event)
	most := max(capacity-threshold-used+short, 0)
	var all []plan.Happening
	add := func(amount int) {
		h := plan.Happening{At: plan.Duration(at), Pressure: &plan.Pressure{}}
		if event == MemoryPressure {
			h.Pressure.MemoryMiB = amount
		} else {
			h.Pressure.DiskMiB = amount
		}
		all = append(all, h)
	}
	for left := pressureSteps - 1; left >= 0; left-- {
		add(max(most-2*short*left/pressureSteps, 0))
		if left > 0 {
			at += draw(pressureStep, r)
		}
	}
	at += draw(pressureHeld, r)
	add(0)
	return all
}

// usage returns what the processes of a pod use in the long run, in MiB.
func usage(event Event, p *plan.Pod) (sum int) {
	for i := range p.Behaviours {
		b := &p.Behaviours[i]
		for _, l := range b.Loads {
			if event == MemoryPressure {
				sum += l.MemoryMiB
			}
		}
		for _, w := range b.Writes {
			if event == DiskPressure {
				sum += w.KiB >> 10
			}
		}
	}
	return sum
}

// threshold returns what the node has of a resource, and from what on it evicts pods at once: the
// highest of the thresholds that are about it; 0: none is.
func (n *Node) threshold(event Event) (capacity, threshold int) {
	signals := []eviction.Signal{eviction.MemoryAvailable}
	bytes := n.plan.MemoryBytes()
	if event == DiskPressure {
		signals = []eviction.Signal{eviction.NodefsAvailable, eviction.ImagefsAvailable}
		bytes = disk.RootFilesystem.CapacityBytes
	}
	evictions := eviction.New(n.config(), "", false)
	for _, t := range evictions.Thresholds {
		for _, signal := range signals {
			if amount := t.Amount.Of(bytes); t.Signal == signal && t.Grace == 0 {
				threshold = max(threshold, int(amount.Value()/mib))
			}
		}
	}
	return int(bytes / mib), threshold
}

// pressureNote says what is odd about the node for an event; empty: nothing.
func (n *Node) pressureNote(event Event) string {
	if _, threshold := n.threshold(event); !event.isPressure() || threshold > 0 {
		return ""
	}
	if event == DiskPressure {
		return "the node has no hard threshold of nodefs.available or imagefs.available"
	}
	return "the node has no hard threshold of memory.available: only the kernel ends processes"
}

// drawUsage draws what the processes of a container use. Without an entry that is the memory that
// it requests, and no space.
func (e *behaviourEntry) drawUsage(b *plan.Behaviour, c *podContainer, r *rand.Rand) {
	if c.runsOnce {
		return
	}
	amount := memoryDefault
	request, isSet := c.Resources.Requests[v1.ResourceMemory]
	switch {
	case e.MemoryMiB != nil:
		amount = drawCount(*e.MemoryMiB, r)
	case isSet && request.Value() >= mib:
		amount = int(request.Value() / mib)
	}
	b.Loads = []plan.Load{{MemoryMiB: amount}}
	if e.DiskMiB != nil {
		b.Writes = []plan.FileWrite{{Path: "/tmp/data", KiB: drawCount(*e.DiskMiB, r) << 10}}
	}
}

func drawCount(c plan.Count, r *rand.Rand) int { return c.Least + r.IntN(c.Most-c.Least+1) }

// checkUsage checks that the pods fit on the node before the event: otherwise it is short of memory
// or space from the start.
func (in *Input) checkUsage(event Event) error {
	if !event.isPressure() {
		return nil
	}
	used, p := 0, in.plan(1, event, 0)
	for i := range p.Spec.Pods {
		used += usage(event, &p.Spec.Pods[i])
	}
	if capacity, threshold := in.Node.threshold(event); used > capacity-threshold {
		return fmt.Errorf("--event %s: the pods use %d MiB, but the node has %d MiB, and evicts pods "+
			"when less than %d MiB of them are available", event, used, capacity, threshold)
	}
	return nil
}
