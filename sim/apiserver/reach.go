package apiserver

import "time"

// Reach is whether the agent gets through to the server.
type Reach string

// What may be the matter.
const (
	Reached      Reach = ""
	Refused      Reach = "refused"      // the server is down: connections are refused and broken
	Silent       Reach = "silent"       // the network loses everything
	Unauthorized Reach = "unauthorized" // the server does not know who asks
)

// request is one that the network has lost and still tries to deliver.
type request struct {
	since  time.Time
	arrive func()
}

// sentAgain is for how long it does.
const sentAgain = 20 * time.Second

// SetReach changes whether the agent gets through. A server that was down has lost what watches
// could go on from. A network that works again delivers some of what was sent meanwhile.
func (s *Server) SetReach(r Reach) {
	if r == s.reach {
		return
	}
	was := s.reach
	s.reach = r
	s.outage++
	switch r {
	case Refused:
		s.wire.Break(0)
		s.Forget()
	case Silent:
		s.lookForSilence()
	case Unauthorized:
		s.breakWatches()
	}
	if was == Silent && r != Silent {
		held := s.held
		s.held = nil
		for _, request := range held {
			if s.opts.Agenda.Now().Sub(request.since) < sentAgain {
				s.opts.Agenda.After(s.between(0, time.Second), request.arrive)
			}
		}
		s.resumeWatches()
	}
}

// Forget has the server forget how objects came to be, as it does in time and when it restarts:
// watches break, and cannot go on from where they were.
func (s *Server) Forget() {
	s.store.oldest = s.store.version + 1
	s.store.changes = nil
	s.breakWatches()
}

// between draws a duration of at least least and less than most.
func (s *Server) between(least, most time.Duration) time.Duration {
	return least + time.Duration(s.jitter.Int64N(int64(most-least)))
}
