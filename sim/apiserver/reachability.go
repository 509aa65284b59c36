package apiserver

import "time"

// Reachability is the state of the connection between the agent and the server.
type Reachability string

// The states of the connection.
const (
	Reachable    Reachability = ""
	ServerDown   Reachability = "refused"      // the server is down: connections are refused and reset
	NetworkDown  Reachability = "silent"       // the network drops all packets
	Unauthorized Reachability = "unauthorized" // the server does not accept the agent's credentials
)

// delayedRequest is a request that the network has dropped and that is still retransmitted.
type delayedRequest struct {
	sent    time.Time
	receive func()
}

// retransmissionLimit is how long a dropped request is retransmitted.
const retransmissionLimit = 20 * time.Second

// SetReachability changes the state of the connection. A server that was down has lost its history,
// so watches cannot resume. A network that is restored delivers some of the requests that were sent
// meanwhile.
func (s *Server) SetReachability(r Reachability) {
	if r == s.reachability {
		return
	}
	previous := s.reachability
	s.reachability = r
	s.reachabilityChanges++
	switch r {
	case ServerDown:
		s.wire.Crash(0)
		s.CompactHistory()
	case NetworkDown:
		s.timeOutWatches()
	case Unauthorized:
		s.breakWatches()
	}
	if previous == NetworkDown && r != NetworkDown {
		delayed := s.delayed
		s.delayed = nil
		for _, request := range delayed {
			if s.opts.Agenda.Now().Sub(request.sent) < retransmissionLimit {
				s.opts.Agenda.After(s.durationBetween(0, time.Second), request.receive)
			}
		}
		s.resumeWatches()
	}
}

// CompactHistory drops the server's history of changes, as a compaction or a restart does: watches
// break and cannot resume.
func (s *Server) CompactHistory() {
	s.store.oldestKnown = s.store.version + 1
	s.store.changes = nil
	s.breakWatches()
}

// durationBetween draws a duration of at least minimum and less than limit.
func (s *Server) durationBetween(minimum, limit time.Duration) time.Duration {
	return minimum + time.Duration(s.jitter.Int64N(int64(limit-minimum)))
}
