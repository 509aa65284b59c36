package oracle

import (
	"strings"
	"time"

	"seedlet.dev/sim/truth"
)

// systemOOM fires when an Event reports that the machine was out of memory although the kernel has
// ended no such process, as after an exit at the limit of a container; when it reports one twice;
// and when an agent that runs does not report one.
type systemOOM struct {
	unreported []truth.Fact // in the order of their times
}

func (*systemOOM) describe() Entry {
	return Entry{"system-oom", "A SystemOOM Event is recorded once for each process that the kernel " +
		"has ended because the machine was out of memory while the agent ran, and for nothing else."}
}

const (
	reasonSystemOOM = "SystemOOM"
	// oomReportBound is how long the Event may take: there is no call in between.
	oomReportBound = 5 * time.Second
	// unreportedOOMsMax is how many are remembered.
	unreportedOOMsMax = 1000
)

func (o *systemOOM) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind == truth.EventRecorded && f.Reason == reasonSystemOOM {
		return o.findWrongEvent(f)
	}
	late := o.findMissingEvent(m, f.Time)
	if f.Kind == truth.SystemOOM && len(o.unreported) < unreportedOOMsMax {
		o.unreported = append(o.unreported, *f)
	}
	return late
}

func (o *systemOOM) findWrongEvent(f *truth.Fact) *finding {
	for i, oom := range o.unreported {
		if strings.HasSuffix(f.Message, ", "+oom.Message) {
			o.unreported = append(o.unreported[:i], o.unreported[i+1:]...)
			return nil
		}
	}
	return findingf("an Event says %q, but the kernel has ended no such process", f.Message)
}

// findMissingEvent returns a process of which no Event was recorded in time. An agent that was not
// running then, or not for long enough after that, does not know of it.
func (o *systemOOM) findMissingEvent(m *model, now time.Time) *finding {
	for len(o.unreported) > 0 && now.Sub(o.unreported[0].Time) > oomReportBound {
		oom := o.unreported[0]
		o.unreported = o.unreported[1:]
		if m.agentUpSince(oom.Time) {
			return findingf("no Event says that the machine was out of memory (%s, at %s)", oom.Message,
				oom.Time.Format(time.TimeOnly))
		}
	}
	return nil
}
