package stats

import (
	"context"
	"sync"
	"time"
)

// failureAge is how long a failure is returned again without another attempt.
const failureAge = time.Second

// sharedMeasurement is a measurement that runs on request if the last one is too old, on one
// goroutine for all callers that wait for it.
type sharedMeasurement[T any] struct {
	source  *Source
	maxAge  time.Duration
	measure func(context.Context) T
	failed  func(T) bool // nil for never

	mu        sync.Mutex
	last      T
	startedAt time.Time     // of the last one; zero if there is none
	done      chan struct{} // closed when the running measurement ends; nil if none is running
}

// start starts a measurement if the last one is too old. It returns a channel that is closed when
// one is available; nil if one is available now.
func (s *sharedMeasurement[T]) start() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, age := s.source.opts.Now(), s.maxAge
	if s.failed != nil && s.failed(s.last) {
		age = failureAge
	}
	if old := now.Sub(s.startedAt); !s.startedAt.IsZero() && old >= 0 && old < age {
		return nil
	}
	if s.done == nil {
		s.done = make(chan struct{})
		s.source.work.Go(func() { s.run(now) })
	}
	return s.done
}

// get returns a measurement that started no longer than maxAge ago, or the error that ended the
// wait.
func (s *sharedMeasurement[T]) get(ctx context.Context) (T, error) {
	var none T
	if making := s.start(); making != nil {
		select {
		case <-making:
		case <-ctx.Done():
			return none, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.source.ctx.Err()
}

// run measures. The context of the source bounds it, not that of one client, because other clients
// may wait for it too.
func (s *sharedMeasurement[T]) run(began time.Time) {
	made := s.measure(s.source.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.startedAt = made, began
	close(s.done)
	s.done = nil
}
