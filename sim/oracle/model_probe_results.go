package oracle

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
)

// probeResults is the set of all states that a probe may have in the agent, as far as facts tell:
// a reply may have been lost, may have come too late, or may not have reached an agent that died.
// A served result that no state has is wrong.
type probeResults struct {
	successThreshold, failureThreshold int32 // of the probe
	states                             []probeState
	latestAt                           time.Time    // of the latest reply
	previous                           []probeState // the states before that reply

	// The latest times at which a result was possible that is not possible any more.
	lastSuccess, lastOther, lastFailure time.Time
}

// probeState is one state that a probe may have in the agent, as the kubelet's probe worker has
// it.
type probeState struct {
	result probeResult // after the thresholds
	last   probeResult // the latest reply
	streak int32       // consecutive replies like the latest one, up to the threshold
}

type probeResult int8

const (
	resultUnknown probeResult = iota
	resultSuccess
	resultFailure
)

// replySet is a set of what a reply may have been to the agent.
type replySet int8

const (
	maySucceed replySet = 1 << iota
	mayFail
	mayBeLost
)

// newProbeResults returns the results of a probe that has had no reply.
func newProbeResults(p *v1.Probe) probeResults {
	if p == nil {
		return probeResults{}
	}
	return probeResults{successThreshold: max(p.SuccessThreshold, 1),
		failureThreshold: max(p.FailureThreshold, 1), states: []probeState{{}}}
}

func (s *probeResults) clone() probeResults {
	c := *s
	c.states = slices.Clone(s.states)
	return c
}

// canBe reports whether the result may be r.
func (s *probeResults) canBe(r probeResult) bool {
	return slices.ContainsFunc(s.states, func(o probeState) bool { return o.result == r })
}

// canBeOther reports whether the result may be another one than success.
func (s *probeResults) canBeOther() bool { return s.canBe(resultUnknown) || s.canBe(resultFailure) }

// noteTimes records which results are possible until now.
func (s *probeResults) noteTimes(now time.Time) {
	if s.canBe(resultSuccess) {
		s.lastSuccess = now
	}
	if s.canBeOther() {
		s.lastOther = now
	}
	if s.canBe(resultFailure) {
		s.lastFailure = now
	}
}

// apply adds a reply.
func (s *probeResults) apply(now time.Time, replies replySet) {
	s.noteTimes(now)
	s.previous, s.latestAt = s.states, now
	s.states = nil
	for _, state := range s.previous {
		if replies&mayBeLost != 0 {
			s.add(state)
		}
		if replies&maySucceed != 0 {
			s.add(s.next(state, resultSuccess))
		}
		if replies&mayFail != 0 {
			s.add(s.next(state, resultFailure))
		}
	}
}

// next returns the state after one more reply.
func (s *probeResults) next(state probeState, reply probeResult) probeState {
	threshold := s.successThreshold
	if reply == resultFailure {
		threshold = s.failureThreshold
	}
	if state.last != reply {
		state.last, state.streak = reply, 0
	}
	state.streak = min(state.streak+1, threshold)
	if state.streak >= threshold {
		state.result = reply
	}
	return state
}

func (s *probeResults) add(state probeState) {
	if !slices.Contains(s.states, state) {
		s.states = append(s.states, state)
	}
}

// assume removes all states but those with result r, if there are any: the agent's next action
// has shown the result.
func (s *probeResults) assume(r probeResult) {
	if s.canBe(r) {
		s.states = slices.DeleteFunc(slices.Clone(s.states),
			func(o probeState) bool { return o.result != r })
	}
}

// addFailures adds the states after any number of failures.
func (s *probeResults) addFailures(now time.Time) {
	s.noteTimes(now)
	s.states = slices.Clone(s.states)
	for i := 0; i < len(s.states); i++ {
		s.add(s.next(s.states[i], resultFailure))
	}
}

// applyAgentRestart accounts for a restart of the agent, which loses the streak and possibly the
// result. The given results may be in the pod's record.
func (s *probeResults) applyAgentRestart(now time.Time, results ...probeResult) {
	s.noteTimes(now)
	states := slices.Clone(s.states)
	if now.Sub(s.latestAt) < 2*transitSlack {
		states = append(states, s.previous...)
	}
	s.states = nil
	for _, state := range states {
		s.add(state)
		s.add(probeState{result: state.result})
	}
	for _, r := range results {
		s.add(probeState{result: r})
	}
}
