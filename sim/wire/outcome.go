package wire

import (
	"time"

	"seedlet.dev/world"
)

// Outcome is the outcome that is injected into one call: its latencies and faults. The zero
// Outcome takes no time and succeeds.
type Outcome struct {
	RequestLatency  time.Duration // from the agent to the port
	ResponseLatency time.Duration // from the port to the agent

	// ErrorBefore fails the call without an effect, After fails it after its effect.
	ErrorBefore, ErrorAfter *world.Error

	// ResponseLost drops the response: the agent's side fails the call at its deadline with
	// KindTimeout, as gRPC does. The effect still happens, EffectDelay after the call was received. A
	// local port reports the timeout when the call has ended.
	ResponseLost bool

	// Duplicated delivers a notification of the port a second time, EffectDelay after the first.
	Duplicated bool

	// EffectDelay is added to the usual duration of the work of the port, so the effect may come after
	// the deadline. In a call that takes effect in stages the delay lies between them.
	EffectDelay time.Duration
}

// CallID identifies a call or notification among all of a run. It does not depend on calls about
// other pods, so a plan in which these differ leaves the outcome of the call as it was.
type CallID struct {
	Name string
	Pod  string // the UID of the pod that the call is about; empty: none
	Nth  int    // from zero, among those of this name and pod, over all incarnations of the agent
	Hash uint64 // of the name and the pod; the same in every process
}

// FaultSource decides the outcomes of calls. A decision must depend only on the arguments and on
// the plan, not on earlier decisions, so that an edited plan changes little else.
type FaultSource interface {
	Decide(id CallID, now time.Time) Outcome
}

// EffectObserver is a FaultSource that observes which calls have taken effect without the agent
// learning of it.
type EffectObserver interface {
	ObserveEffect(call string, how Unreported)
}

// Unreported is why the agent does not learn of the effect of a call.
type Unreported int

// The reasons: the call fails after its effect, the response is lost, or the agent no longer waits.
const (
	EffectFailed Unreported = iota
	EffectLost
	EffectLate
)

// faultFree is a FaultSource without faults.
type faultFree struct{}

func (faultFree) Decide(CallID, time.Time) Outcome {
	return Outcome{RequestLatency: 200 * time.Microsecond, ResponseLatency: 200 * time.Microsecond}
}
