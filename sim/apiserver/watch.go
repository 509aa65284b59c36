package apiserver

import (
	"slices"
	"time"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// CallObject is the name by which a FaultSource decides the outcomes of changes that are sent to a
// watch.
const CallObject = "ObjectChanged"

// watcher is the agent's side of a watch. Like client-go's reflector it connects, lists, receives
// changes, and reconnects when the connection breaks.
type watcher struct {
	id     world.WatchID
	target world.WatchTarget

	connection int  // number of the current connection; events of earlier ones are lost
	open       bool // the server sends changes on the connection
	failures   int  // consecutive failures to connect

	delivered     uint64       // version that the agent has seen; zero: it has seen no list
	sent          uint64       // version that has been sent
	lastArrival   time.Time    // of the newest event that has been sent
	reportedError *world.Error // last WatchFailing, nil after a list
}

// Delays before a watch reconnects, no longer than those of client-go's reflector, and the time
// until a dead connection is detected.
const (
	retryDelayMin, retryDelayMax         = 200 * time.Millisecond, 10 * time.Second
	networkTimeoutMin, networkTimeoutMax = 5 * time.Second, 25 * time.Second
)

func (s *Server) watch(body *world.WatchObjects) {
	w := &watcher{id: body.Watch, target: body.WatchTarget}
	s.watches = append(s.watches, w)
	s.connectWatch(w)
}

func (s *Server) unwatch(id world.WatchID) {
	s.watches = slices.DeleteFunc(s.watches, func(w *watcher) bool { return w.id == id })
}

// connectWatch sends a watch request. The server handles it when the request arrives.
func (s *Server) connectWatch(w *watcher) {
	w.connection++
	w.open = false
	outcome := s.wire.NextOutcome("WatchObjects")
	s.afterOnConnection(w, outcome.RequestLatency+outcome.EffectDelay, func() {
		switch {
		case s.reachability == ServerDown:
			s.failWatch(w, world.KindUnavailable, "connection refused")
		case s.reachability == NetworkDown || outcome.ResponseLost:
			s.afterOnConnection(w, s.durationBetween(networkTimeoutMin, networkTimeoutMax), func() {
				s.failWatch(w, world.KindTimeout, "no answer")
			})
		case s.reachability == Unauthorized:
			s.failWatch(w, world.KindRefused, "Unauthorized")
		case outcome.ErrorBefore != nil:
			s.failWatch(w, outcome.ErrorBefore.Kind, outcome.ErrorBefore.Message)
		default:
			s.serveWatch(w, outcome)
		}
	})
}

// serveWatch starts to send: the changes that the agent has missed if they are in the history,
// otherwise a list.
func (s *Server) serveWatch(w *watcher, outcome wire.Outcome) {
	if reason := s.watchDenialReason(&w.target); reason != "" {
		s.failWatch(w, world.KindRefused, reason)
		return
	}
	w.open, w.failures, w.lastArrival = true, 0, time.Time{}
	if w.delivered == 0 || w.reportedError != nil || w.delivered+1 < s.store.oldestKnown {
		list := slices.DeleteFunc(slices.Clone(s.store.list(w.target.Resource)),
			func(o world.Object) bool { return !s.isWatched(w, &o) })
		s.send(w, s.store.version, outcome, &world.ObjectsListed{Watch: w.id, Objects: list})
		w.sent = s.store.version
		return
	}
	w.sent = w.delivered
	s.sendChanges(w)
}

// failWatch reports a failure of the watch, unless it has been reported, and schedules a reconnect.
func (s *Server) failWatch(w *watcher, kind world.ErrorKind, message string) {
	w.connection++
	w.open = false
	if w.reportedError == nil || w.reportedError.Kind != kind || w.reportedError.Message != message {
		w.reportedError = &world.Error{Kind: kind, Op: "WatchObjects", Message: message}
		s.deliver(world.Event{Time: s.opts.Agenda.Now(),
			Body: &world.WatchFailing{Watch: w.id, Err: w.reportedError}})
	}
	delay := min(retryDelayMin<<min(w.failures, 10), retryDelayMax)
	w.failures++
	s.afterOnConnection(w, s.durationBetween(delay, 2*delay), func() { s.connectWatch(w) })
}

// sendChanges sends every change that the watch covers and that has not been sent.
func (s *Server) sendChanges(w *watcher) {
	if !w.open {
		return
	}
	changes := s.store.changes
	first, _ := slices.BinarySearchFunc(changes, w.sent+1, func(c change, version uint64) int {
		return int(int64(c.version) - int64(version))
	})
	for _, c := range changes[first:] {
		var body any
		switch before, after := s.isWatched(w, &c.before), s.isWatched(w, &c.after); {
		case after:
			body = &world.ObjectChanged{Watch: w.id, Object: c.after}
		case before:
			body = &world.ObjectGone{Watch: w.id, Object: c.before}
		default:
			continue
		}
		s.send(w, c.version, s.wire.NextOutcome(CallObject), body)
	}
	w.sent = s.store.version
}

// isWatched reports whether a watch covers an object.
func (s *Server) isWatched(w *watcher, o *world.Object) bool {
	r, meta := o.Meta()
	if r != w.target.Resource || meta == nil ||
		w.target.Namespace != "" && meta.GetNamespace() != w.target.Namespace ||
		w.target.Name != "" && meta.GetName() != w.target.Name {
		return false
	}
	if r := o.CertificateRequest; r != nil {
		return string(r.Spec.NodeName) == s.opts.Node
	}
	return o.Pod == nil || o.Pod.Spec.NodeName == s.opts.Node
}

// send delivers an event of a watch after all its earlier events.
func (s *Server) send(w *watcher, version uint64, outcome wire.Outcome, body any) {
	now := s.opts.Agenda.Now()
	at := now.Add(outcome.RequestLatency + outcome.EffectDelay)
	if !at.After(w.lastArrival) {
		at = w.lastArrival.Add(time.Nanosecond)
	}
	w.lastArrival = at
	s.afterOnConnection(w, at.Sub(now), func() {
		if s.reachability == NetworkDown {
			return // resumeWatches sends it again
		}
		w.delivered = max(w.delivered, version)
		if _, list := body.(*world.ObjectsListed); list {
			w.reportedError = nil
		}
		s.deliver(world.Event{Time: s.opts.Agenda.Now(), Body: body})
	})
}

// afterOnConnection runs do after a delay, unless the watch has ended or reconnected by then.
func (s *Server) afterOnConnection(w *watcher, d time.Duration, do func()) {
	connection := w.connection
	s.opts.Agenda.After(d, func() {
		if w.connection == connection && slices.Contains(s.watches, w) {
			do()
		}
	})
}

// breakWatches breaks every connection at once.
func (s *Server) breakWatches() {
	for _, w := range s.watches {
		s.reconnectWatch(w)
	}
}

// reconnectWatch reconnects a watch after a short delay.
func (s *Server) reconnectWatch(w *watcher) {
	w.connection++
	w.open = false
	s.afterOnConnection(w, s.durationBetween(0, time.Second), func() { s.connectWatch(w) })
}

// timeOutWatches makes every open watch detect its dead connection after a delay.
func (s *Server) timeOutWatches() {
	changes := s.reachabilityChanges
	for _, w := range s.watches {
		if !w.open {
			continue
		}
		s.afterOnConnection(w, s.durationBetween(networkTimeoutMin, networkTimeoutMax), func() {
			if s.reachabilityChanges == changes {
				s.failWatch(w, world.KindTimeout, "no answer")
			}
		})
	}
}

// resumeWatches handles the connections that were not detected as dead while the network was down.
// Half of them have survived and resume with the changes that were lost; the others reconnect.
func (s *Server) resumeWatches() {
	for _, w := range s.watches {
		switch {
		case !w.open:
		case w.delivered == 0 || w.reportedError != nil || s.jitter.Uint64()&1 == 0:
			s.reconnectWatch(w)
		default:
			w.connection++
			w.sent = w.delivered
			s.sendChanges(w)
		}
	}
}
