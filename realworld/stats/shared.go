package stats

import (
	"context"
	"sync"
	"time"
)

// failureAge is for how long a failure is told again without another attempt.
const failureAge = time.Second

// shared is a measurement that is made when someone asks for it, if the last one is too old, by
// one goroutine for all who wait for it.
type shared[T any] struct {
	source  *Source
	age     time.Duration
	measure func(context.Context) T
	failed  func(T) bool // nil: never

	mu     sync.Mutex
	last   T
	began  time.Time     // of the last; zero: there is none
	making chan struct{} // closed when the one that is being made is there; nil: none is
}

// begin begins a measurement if the last one is too old. It returns what is closed when there is
// one to be had; nil if there is already.
func (s *shared[T]) begin() chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, age := s.source.opts.Now(), s.age
	if s.failed != nil && s.failed(s.last) {
		age = failureAge
	}
	if old := now.Sub(s.began); !s.began.IsZero() && old >= 0 && old < age {
		return nil
	}
	if s.making == nil {
		s.making = make(chan struct{})
		s.source.work.Go(func() { s.make(now) })
	}
	return s.making
}

// get returns a measurement that was begun no longer than age ago, or what ends the wait for it.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	var none T
	if making := s.begin(); making != nil {
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

// make measures. It is the source's context that ends it, not that of a client: others wait too.
func (s *shared[T]) make(began time.Time) {
	made := s.measure(s.source.ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last, s.began = made, began
	close(s.making)
	s.making = nil
}
