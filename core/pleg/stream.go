package pleg

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The values for the stream of container events (KEP-3386).
const (
	EventedRelistPeriod    = 300 * time.Second // period of relists while the stream is reliable
	EventedRelistThreshold = 10 * time.Minute  // RelistThreshold while the stream is reliable

	streamLifetime = 10 * time.Minute // maximum duration of one stream
	streamOverlap  = time.Minute      // a stream and its successor are both open for this long
	// streamSettleTime is how long after its request a stream becomes reliable: the runtime does not
	// report when it starts to send events.
	streamSettleTime = 10 * time.Second
	streamRetryFirst = time.Second
	streamRetryMax   = 32 * time.Second
)

// StreamOwner is the owner of the streams' operations.
var StreamOwner = timer.Key{Component: "events"}

// Stream is the state of the runtime's stream of container events. The stream makes relists rare,
// not superfluous: events may be lost, late or duplicated. So an event only advances the state that
// a list has shown, or requests a relist.
type Stream struct {
	Enabled     bool `json:"enabled"`               // the feature gate EventedPLEG
	Unsupported bool `json:"unsupported,omitempty"` // the runtime has no such call: never issued again

	Op         world.OpID `json:"op,omitempty"`         // the newest stream
	PreviousOp world.OpID `json:"previousOp,omitempty"` // the stream that Op replaces
	OpenedAt   time.Time  `json:"openedAt"`             // when Op was issued
	// ContinuousSince is since when streams have been open without a gap; zero: none is open.
	ContinuousSince time.Time `json:"continuousSince"`
	LostAt          time.Time `json:"lostAt"`   // when the last reliable stream broke
	NextAt          time.Time `json:"nextAt"`   // back-off after that
	Failures        int       `json:"failures"` // consecutive

	// Opened reports whether Op is in OpenedTotal: the runtime has sent an event.
	Opened      bool   `json:"opened,omitempty"`
	OpenedTotal uint64 `json:"openedTotal"` // number of streams
	BrokenTotal uint64 `json:"brokenTotal"` // number of streams
	FailedTotal uint64 `json:"failedTotal"` // those that broke, or that the runtime does not have
	EventsTotal uint64 `json:"eventsTotal"` // number of events
}

// Plan opens a stream if none is open, and its successor before its time is up. It returns when to
// plan again.
func (s *Stream) Plan(effects *op.Effects) time.Time {
	if !s.Enabled || s.Unsupported {
		return time.Time{}
	}
	due := s.NextAt
	if s.Op != 0 {
		due = s.OpenedAt.Add(streamLifetime - streamOverlap)
	}
	if effects.Now().Before(due) {
		return due
	}
	s.OpenedTotal, s.Opened = s.OpenedBy(effects.Now()), false
	s.PreviousOp, s.OpenedAt = s.Op, effects.Now()
	s.Op = effects.Issue(StreamOwner, "", streamLifetime, &runtimeapi.GetEventsRequest{})
	if s.ContinuousSince.IsZero() {
		s.ContinuousSince = s.OpenedAt
	}
	return s.OpenedAt.Add(streamLifetime - streamOverlap)
}

// HandleEvent counts an event. It shows that the newest stream is open, if there is no other.
func (s *Stream) HandleEvent() {
	s.EventsTotal++
	if s.Op != 0 && s.PreviousOp == 0 && !s.Opened {
		s.Opened = true
		s.OpenedTotal++
	}
}

// OpenedBy returns the number of streams that were opened, as known at a time: a request alone
// opens none.
func (s *Stream) OpenedBy(now time.Time) uint64 {
	if s.Op != 0 && !s.Opened && s.isSettled(now) {
		return s.OpenedTotal + 1
	}
	return s.OpenedTotal
}

// isSettled reports whether the newest stream was requested streamSettleTime ago.
func (s *Stream) isSettled(now time.Time) bool {
	return !now.Before(s.OpenedAt.Add(streamSettleTime))
}

// HandleCompletion applies the end of a stream. An end without an error is a failure as well: the
// runtime has closed the stream, which the kubelet counts as an error (io.EOF).
func (s *Stream) HandleCompletion(id world.OpID, ev world.Event, effects *op.Effects) {
	settled := s.isSettled(ev.Time)
	switch id {
	case s.PreviousOp:
		s.PreviousOp = 0
		if !settled {
			s.ContinuousSince = s.OpenedAt // events in between may have been lost
		}
		return
	case s.Op:
		if ev.Time.Sub(s.ContinuousSince) > streamSettleTime {
			s.LostAt = ev.Time // the loss of a stream that was never reliable has no effect
		}
		s.OpenedTotal = s.OpenedBy(ev.Time)
		s.Op, s.ContinuousSince = 0, time.Time{}
	default:
		return
	}
	s.FailedTotal++
	if ev.Err.Has(world.KindUnimplemented) {
		s.Unsupported = true
		effects.Log(world.LevelInfo,
			"the runtime does not support container events, relisting every second")
		return
	}
	s.BrokenTotal++
	if settled {
		s.Failures = 0
	}
	s.Failures++
	wait := timer.Backoff(s.Failures, streamRetryFirst, streamRetryMax)
	s.NextAt = ev.Time.Add(wait)
	if ev.Err != nil {
		effects.Log(world.LevelWarning, "the stream of container events ended", "err", ev.Err.Error(),
			"retryIn", wait.String())
	}
}

// isReliable reports whether events can replace relists since a relist issued at asOf: everything
// before the stream became reliable is in the lists.
func (s *Stream) isReliable(asOf time.Time) bool {
	return !s.ContinuousSince.IsZero() && asOf.After(s.ContinuousSince.Add(streamSettleTime))
}

// Event is one event of the stream, about a container or a sandbox. Its time is not used: it is of
// another clock (upstream #127814).
type Event struct {
	UID  string // of the pod; empty if the event does not contain it
	ID   string // of the container or sandbox
	Type runtimeapi.ContainerEventType
}

// ParseEvent parses an event of the runtime.
func ParseEvent(body *runtimeapi.ContainerEventResponse) Event {
	ev := Event{ID: body.ContainerId, Type: body.ContainerEventType,
		UID: body.GetPodSandboxStatus().GetMetadata().GetUid()}
	for _, c := range body.ContainersStatuses {
		if ev.UID == "" && c.GetId() == ev.ID {
			ev.UID = c.GetLabels()[LabelPodUID]
		}
	}
	return ev
}
