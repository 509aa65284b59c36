package oracle

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// dates fires when a date that the agent has written does not follow the machine's date. That a
// change of the date changes no interval is checked by the oracles of the intervals.
type dates struct{}

func (*dates) describe() Entry {
	return Entry{"dates", "The renewal of the lease, the heartbeats of the Node and new transitions " +
		"of its conditions have the machine's date at that time, and after a change of the date " +
		"the lease and the heartbeats have the new one within 25 s."}
}

const (
	// dateSlack is how long after the date was taken it may be written: the time of a request, of
	// one attempt that has failed, and less than a second since dates are written in whole seconds.
	dateSlack = 10 * time.Second
	// dateNoticeBound is how long after a change of the date the agent may write the old one: a
	// request that was in flight, the period of the lease, and the next request.
	dateNoticeBound = 25 * time.Second
	// dateWatchBound is how long after a change of the date it is looked for in the objects.
	dateWatchBound = time.Minute
)

// dateOffset returns how far the machine's date is ahead.
func (m *model) dateOffset(at time.Time) time.Duration {
	if m.opts.DateOffset == nil {
		return 0
	}
	offset := m.opts.DateOffset(at)
	m.excuse(offset != 0, "the date of the machine")
	return offset
}

// mayBeDate reports whether a date was that of the machine shortly before a time. While a request
// is in transit, the date may be changed more than once.
func (m *model) mayBeDate(date, at time.Time) bool {
	for back := time.Duration(0); back <= transitSlack; back += time.Millisecond {
		then := at.Add(-back)
		if d := then.Add(m.dateOffset(then)).Sub(date); d > -time.Second && d < 2*time.Second {
			return true
		}
	}
	for back := time.Duration(0); back <= dateSlack; back += time.Second / 2 {
		then := at.Add(-back)
		for _, offset := range []time.Duration{m.dateOffset(then),
			m.dateOffset(then.Add(-time.Second / 2))} {
			if d := then.Add(offset).Sub(date); d > -time.Second && d < 2*time.Second {
				return true
			}
		}
	}
	return false
}

var dateCalls = []string{"GetObject", "CreateObject", "UpdateObject", "PatchObject", "ReadMachine",
	"WatchObjects", "ObjectChanged"}

func (*dates) checkFact(m *model, f *truth.Fact) *finding {
	if m.opts.DateOffset == nil || f.Write == nil || f.Write.Incarnation == 0 ||
		m.anyFaultPossible(f.Time.Add(-reconnectBound), f.Time, dateCalls...) {
		return nil
	}
	before, after := &f.Write.Before, &f.Write.After
	switch {
	case after.Lease != nil && after.Lease.Spec.RenewTime != nil:
		if date := after.Lease.Spec.RenewTime.Time; !m.mayBeDate(date, f.Time) {
			return findingf("the lease was renewed with the date %v, which was %v", date,
				f.Time.Add(m.dateOffset(f.Time)))
		}
	case after.Node != nil:
		for _, c := range after.Node.Status.Conditions {
			earlier := conditionOf(before.Node, c.Type)
			date, transition := c.LastHeartbeatTime.Time, c.LastTransitionTime.Time
			switch {
			case !date.Equal(earlier.LastHeartbeatTime.Time) && !m.mayBeDate(date, f.Time):
				return findingf("the heartbeat of condition %s of the Node has the date %v, which was "+
					"%v", c.Type, date, f.Time.Add(m.dateOffset(f.Time)))
			case c.Status != earlier.Status && !m.mayBeDate(transition, f.Time):
				return findingf("the transition of condition %s of the Node to %s has the date %v, which "+
					"was %v", c.Type, c.Status, transition, f.Time.Add(m.dateOffset(f.Time)))
			}
		}
	}
	return nil
}

// conditionOf returns a condition of the Node; its zero value if the Node does not have it.
func conditionOf(node *v1.Node, condition v1.NodeConditionType) v1.NodeCondition {
	if node != nil {
		for _, c := range node.Status.Conditions {
			if c.Type == condition {
				return c
			}
		}
	}
	return v1.NodeCondition{}
}

func (*dates) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.opts.DateOffset == nil || m.agentDown || m.objects.node == nil {
		return nil
	}
	since := later(m.agentStartedAt, m.objects.nodeCreatedAt)
	age := m.ageOfDate(now)
	if age < dateNoticeBound || age > dateWatchBound || !since.Before(now.Add(-age-time.Second)) ||
		m.anyFaultPossible(now.Add(-age-reconnectBound), now, dateCalls...) {
		return nil
	}
	date := now.Add(m.dateOffset(now))
	isOld := func(written time.Time) bool {
		d := date.Sub(written)
		return !written.IsZero() && (d < -time.Second || d > age+2*time.Second)
	}
	if at := m.objects.leaseDate; isOld(at) {
		return findingf("the date was changed to %v, and the lease has %v", date, at)
	}
	if at := conditionOf(m.objects.node, v1.NodeReady).LastHeartbeatTime.Time; isOld(at) {
		return findingf("the date was changed to %v, and the Node's heartbeat has %v", date, at)
	}
	return nil
}

// ageOfDate returns for how many seconds the date has not been changed; more than dateWatchBound if
// for longer than that.
func (m *model) ageOfDate(now time.Time) time.Duration {
	age := time.Duration(0)
	for age <= dateWatchBound && m.dateOffset(now.Add(-age)) == m.dateOffset(now) {
		age += time.Second
	}
	return age
}
