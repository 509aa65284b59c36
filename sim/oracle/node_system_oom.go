package oracle

import (
	"fmt"
	"strings"
	"time"

	"seedlet.dev/sim/truth"
)

// systemOOM fires when an Event reports that the machine was out of memory although the kernel has
// ended no such process, as after an exit at the limit of a container; when it reports one twice;
// when an agent that runs does not report one; and when there are more Events than the rate allows,
// or the number of processes without an Event of their own is wrong.
type systemOOM struct {
	unreported []unreportedOOM // in the order of their times
	// omitted is the number of processes for which the rate left no Event, which are reported
	// together; uncertain that of those of which the agent may or may not have heard.
	omitted, uncertain int
	// pacedUntil is when oomEventsBurst Events are allowed at once again, by the agent that was
	// started at startedAt.
	pacedUntil, startedAt time.Time
}

// unreportedOOM is a process without an Event so far. An Event of its own is allowed at allowedAt,
// by those that the agent can have recorded before it heard of the process.
type unreportedOOM struct {
	at, allowedAt time.Time
	message       string
}

func (*systemOOM) describe() Entry {
	return Entry{"system-oom", "A SystemOOM Event is recorded once for each process that the kernel " +
		"has ended because the machine was out of memory while the agent ran, and for nothing else. " +
		"There are ten at once and one in ten minutes; the next one has the number of the processes " +
		"that have none."}
}

const (
	reasonSystemOOM  = "SystemOOM"
	oomsMessage      = "System OOM encountered, victim processes without an Event of their own: "
	oomEventsBurst   = 10
	oomEventInterval = 10 * time.Minute
	// oomReportBound is how long the Event may take: there is no call in between.
	oomReportBound = 5 * time.Second
	// unreportedOOMsMax is how many are remembered.
	unreportedOOMsMax = 1000
)

func (o *systemOOM) checkFact(m *model, f *truth.Fact) *finding {
	if !o.startedAt.Equal(m.agentStartedAt) { // the new agent knows nothing of before
		*o = systemOOM{startedAt: m.agentStartedAt}
	}
	if f.Kind == truth.EventRecorded && f.Reason == reasonSystemOOM {
		return o.findWrongEvent(f)
	}
	late := o.findMissingEvent(m, f.Time)
	if f.Kind == truth.SystemOOM && len(o.unreported) < unreportedOOMsMax {
		o.unreported = append(o.unreported, unreportedOOM{f.Time, o.allowedAt(), f.Message})
	}
	return late
}

func (o *systemOOM) findWrongEvent(f *truth.Fact) *finding {
	allowedAt := o.allowedAt()
	o.pacedUntil = later(o.pacedUntil, f.Time).Add(oomEventInterval)
	for i := range o.unreported {
		if oom := &o.unreported[i]; f.Time.Sub(oom.at) <= transitSlack {
			oom.allowedAt = o.allowedAt()
		}
	}
	if f.Time.Before(allowedAt) {
		return findingf("an Event says %q, but another one is allowed at %s only", f.Message,
			allowedAt.Format(time.TimeOnly))
	}
	if strings.HasPrefix(f.Message, oomsMessage) {
		return o.findWrongNumber(f)
	}
	for i, oom := range o.unreported {
		if strings.HasSuffix(f.Message, ", "+oom.message) {
			o.unreported = append(o.unreported[:i], o.unreported[i+1:]...)
			return nil
		}
	}
	return findingf("an Event says %q, but the kernel has ended no such process", f.Message)
}

// allowedAt returns from when on another Event is allowed.
func (o *systemOOM) allowedAt() time.Time {
	return o.pacedUntil.Add(-(oomEventsBurst - 1) * oomEventInterval)
}

// findWrongNumber checks an Event about the processes that have none of their own. Those of the
// last moment may not be known to the agent yet.
func (o *systemOOM) findWrongNumber(f *truth.Fact) *finding {
	most := o.omitted + len(o.unreported) + o.uncertain
	for number := o.omitted; number <= most; number++ {
		if f.Message == oomsMessage+fmt.Sprint(number) {
			o.unreported = o.unreported[min(number-o.omitted, len(o.unreported)):]
			o.omitted, o.uncertain = 0, 0
			return nil
		}
	}
	return findingf("an Event says %q, but the kernel has ended %d to %d processes without one",
		f.Message, o.omitted, most)
}

// findMissingEvent returns a process of which no Event was recorded in time. An agent that was not
// running then, or not for long enough after that, does not know of it.
func (o *systemOOM) findMissingEvent(m *model, now time.Time) *finding {
	for len(o.unreported) > 0 && now.Sub(o.unreported[0].at) > oomReportBound {
		oom := o.unreported[0]
		o.unreported = o.unreported[1:]
		switch {
		case !m.agentUpSince(oom.at):
			o.uncertain++
		case oom.at.Before(oom.allowedAt):
			o.omitted++
		default:
			return findingf("no Event says that the machine was out of memory (%s, at %s)", oom.message,
				oom.at.Format(time.TimeOnly))
		}
	}
	if o.omitted > 0 && now.After(o.allowedAt().Add(oomReportBound)) && !m.agentDown {
		return findingf("no Event says that the kernel has ended %d processes without one", o.omitted)
	}
	return nil
}
