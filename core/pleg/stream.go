package pleg

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The numbers of the stream of events (KEP-3386).
const (
	PeriodEvented       = 300 * time.Second // between relists while events are told
	ThresholdMaxEvented = 10 * time.Minute  // as ThresholdMax, while events are told

	streamFor     = 10 * time.Minute // the longest that one stream is kept
	streamOverlap = time.Minute      // for which a stream and the one that takes over are both open
	// streamSettle is how long after it was asked for a stream surely tells: nothing says when it
	// begins to.
	streamSettle    = 10 * time.Second
	streamRetry     = time.Second
	streamRetryMost = 32 * time.Second
)

// StreamOwner is who the streams' operations belong to.
var StreamOwner = timer.Key{Component: "events"}

// Stream is what is known about the runtime's stream of container events. It makes the relist
// seldom, never superfluous: an event may be lost, late or doubled, so it only moves on what a
// list has shown, or has another list asked for.
type Stream struct {
	On        bool `json:"on"`                  // the feature gate EventedPLEG
	Unoffered bool `json:"unoffered,omitempty"` // the runtime has none: not asked for again

	Op       world.OpID `json:"op,omitempty"`     // the newest stream
	Before   world.OpID `json:"before,omitempty"` // the one that it takes over from
	OpenedAt time.Time  `json:"openedAt"`         // when Op was asked for
	Since    time.Time  `json:"since"`            // there has been one all the time; zero: is none
	LostAt   time.Time  `json:"lostAt"`           // when the last one broke that told
	NextAt   time.Time  `json:"nextAt"`           // back-off after that
	Failures int        `json:"failures"`         // in a row

	Broken uint64 `json:"broken"` // streams, in all
	Taken  uint64 `json:"taken"`  // events, in all
}

// Plan opens a stream if there is none, and another one before its time is up.
func (s *Stream) Plan(out *op.Out) time.Time {
	if !s.On || s.Unoffered {
		return time.Time{}
	}
	due := s.NextAt
	if s.Op != 0 {
		due = s.OpenedAt.Add(streamFor - streamOverlap)
	}
	if out.Now().Before(due) {
		return due
	}
	s.Before, s.OpenedAt = s.Op, out.Now()
	s.Op = out.Ask(StreamOwner, "", streamFor, &runtimeapi.GetEventsRequest{})
	if s.Since.IsZero() {
		s.Since = s.OpenedAt
	}
	return s.OpenedAt.Add(streamFor - streamOverlap)
}

// Answered takes the end of a stream.
func (s *Stream) Answered(id world.OpID, ev world.Event, out *op.Out) {
	settled := !ev.Time.Before(s.OpenedAt.Add(streamSettle))
	switch id {
	case s.Before:
		s.Before = 0
		if !settled {
			s.Since = s.OpenedAt // what happened in between may not have been told
		}
		return
	case s.Op:
		if ev.Time.Sub(s.Since) > streamSettle {
			s.LostAt = ev.Time // one that never told anything is no loss
		}
		s.Op, s.Since = 0, time.Time{}
	default:
		return
	}
	if ev.Err.Has(world.KindInvalid) {
		s.Unoffered = true
		out.Log(world.LevelInfo, "the runtime has no stream of events: only lists tell")
		return
	}
	s.Broken++
	if settled {
		s.Failures = 0
	}
	s.Failures++
	wait := timer.Backoff(s.Failures, streamRetry, streamRetryMost)
	s.NextAt = ev.Time.Add(wait)
	if ev.Err != nil {
		out.Log(world.LevelWarning, "the stream of events has ended", "error", ev.Err.Error(),
			"retryIn", wait.String())
	}
}

// telling says whether events may be relied on as of a relist that was asked for then: what
// happened before the stream surely told is in the list.
func (s *Stream) telling(asOf time.Time) bool {
	return !s.Since.IsZero() && asOf.After(s.Since.Add(streamSettle))
}

// Event is one event of the stream: something has happened to a container, or to a sandbox. When
// is not kept: it is the time of another clock (upstream #127814).
type Event struct {
	UID  string // of the pod; empty if the event does not tell
	ID   string // of the container or sandbox
	Type runtimeapi.ContainerEventType
}

// ReadEvent reads what the runtime tells.
func ReadEvent(body *runtimeapi.ContainerEventResponse) Event {
	ev := Event{ID: body.ContainerId, Type: body.ContainerEventType,
		UID: body.GetPodSandboxStatus().GetMetadata().GetUid()}
	for _, c := range body.ContainersStatuses {
		if ev.UID == "" && c.GetId() == ev.ID {
			ev.UID = c.GetLabels()[LabelPodUID]
		}
	}
	return ev
}
