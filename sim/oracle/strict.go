package oracle

import (
	"seedlet.dev/sim/truth"
)

// strict fires when an excuse is taken in a run in which there is nothing to excuse yet: until the
// first fault, strike, anomaly or panic of the plan. An excuse that is given without a cause
// switches other oracles off in every run.
type strict struct{}

func (*strict) describe() Entry {
	return Entry{"strict", "Before the first trouble of a run no oracle takes an excuse: no call " +
		"can have failed, no clock is wrong, no agent was restarted, and nothing was lost or " +
		"removed by hand."}
}

func (*strict) checkFact(m *model, f *truth.Fact) *finding {
	if m.calmExcuse != "" {
		return findingf("an excuse was taken without a cause: %s", m.calmExcuse)
	}
	if !m.isCalm() {
		return nil
	}
	p, c := m.pods[f.PodUID], m.containers[f.ContainerID]
	switch {
	case m.agentStarts > 1, m.agentDown && m.agentStarts > 0:
		// Many excuses compare a time with agentStartedAt themselves.
		m.excuse(true, "the agent was restarted")
	case p != nil && p.hadPowerLoss, c != nil && c.hadPowerLoss:
		m.excuse(true, "the machine lost power")
	case p != nil && (p.removedByHand || p.countLost):
		m.excuse(true, "a sandbox was removed by hand")
	case p != nil && p.panics > 0:
		m.excuse(true, "the agent panicked")
	case c != nil && c.wasLost:
		m.excuse(true, "the runtime lost a container")
	case f.Kind == truth.ContainerExited && isOfTrouble[f.Cause]:
		m.excuse(true, "a container exited by "+f.Cause)
	}
	return nil
}

// isOfTrouble are the causes of exits that come from outside of the pods.
var isOfTrouble = map[string]bool{truth.CauseKilled: true, truth.CauseRuntime: true,
	truth.CauseReboot: true, truth.CauseAdministrator: true}

// isCalm reports whether nothing has gone wrong in the run so far, as far as the plan says.
func (m *model) isCalm() bool { return m.opts.IsCalm != nil && m.opts.IsCalm() }

// excuse returns whether an excuse is given. In a calm run none may be: strict reports the first.
func (m *model) excuse(given bool, what string) bool {
	if given && m.calmExcuse == "" && m.isCalm() {
		m.calmExcuse = what
	}
	return given
}
