package apiserver

import (
	"slices"
	"time"

	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// CallObject is the name under which a FaultSource is asked what happens to a change on its way to
// a watch.
const CallObject = "ObjectChanged"

// watching is a watch, as the agent's side keeps it up: it connects, lists, is told of changes,
// and when that breaks it begins again.
type watching struct {
	id    world.WatchID
	about world.Watched

	connection int  // which one; what is on its way on an earlier one is lost
	open       bool // the server sends changes on it
	tries      int  // that have failed, one after the other

	told    uint64       // the version up to which the agent knows; zero: it has seen no list
	sent    uint64       // the version up to which it is on its way
	arrives time.Time    // when the newest of it does
	failing *world.Error // what the agent was told last, if no list came after it
}

// Delays of a watch that has to begin again, as client-go's reflector has them or less, and how
// long it takes to find out that nobody is there.
const (
	retryLeast, retryMost = 200 * time.Millisecond, 10 * time.Second
	deafLeast, deafMost   = 5 * time.Second, 25 * time.Second
)

func (s *Server) watch(body *world.WatchObjects) {
	w := &watching{id: body.Watch, about: body.Watched}
	s.watches = append(s.watches, w)
	s.connect(w)
}

func (s *Server) unwatch(id world.WatchID) {
	s.watches = slices.DeleteFunc(s.watches, func(w *watching) bool { return w.id == id })
}

// connect asks for a watch. What the server says is said when the request has come there.
func (s *Server) connect(w *watching) {
	w.connection++
	w.open = false
	fate := s.wire.Draw("WatchObjects")
	s.later(w, fate.Receive+fate.EffectDelay, func() {
		switch {
		case s.reach == Refused:
			s.fail(w, world.KindUnavailable, "connection refused")
		case s.reach == Silent || fate.Lost:
			s.later(w, s.between(deafLeast, deafMost), func() {
				s.fail(w, world.KindTimeout, "no answer")
			})
		case s.reach == Unauthorized:
			s.fail(w, world.KindRefused, "Unauthorized")
		case fate.Before != nil:
			s.fail(w, fate.Before.Kind, fate.Before.Message)
		default:
			s.opened(w, fate)
		}
	})
}

// opened begins to send: what the agent has missed, if that is known, else all there is.
func (s *Server) opened(w *watching, fate wire.Fate) {
	if why := s.forbidsWatching(&w.about); why != "" {
		s.fail(w, world.KindRefused, why)
		return
	}
	w.open, w.tries, w.arrives = true, 0, time.Time{}
	if w.told == 0 || w.failing != nil || w.told+1 < s.store.oldest {
		list := s.store.list(func(o *world.Object) bool { return s.isAbout(w, o) })
		s.send(w, s.store.version, fate, &world.ObjectsListed{Watch: w.id, Objects: list})
		w.sent = s.store.version
		return
	}
	w.sent = w.told
	s.pump(w)
}

// fail tells why the watch sees nothing, if that is new, and tries again in a while.
func (s *Server) fail(w *watching, kind world.ErrorKind, message string) {
	w.connection++
	w.open = false
	if w.failing == nil || w.failing.Kind != kind || w.failing.Message != message {
		w.failing = &world.Error{Kind: kind, Op: "WatchObjects", Message: message}
		s.tell(world.Event{Time: s.opts.Agenda.Now(),
			Body: &world.WatchFailing{Watch: w.id, Err: w.failing}})
	}
	delay := min(retryLeast<<min(w.tries, 10), retryMost)
	w.tries++
	s.later(w, s.between(delay, 2*delay), func() { s.connect(w) })
}

// pump sends every change that the watch is about and that has not been sent.
func (s *Server) pump(w *watching) {
	if !w.open {
		return
	}
	changes := s.store.changes
	from, _ := slices.BinarySearchFunc(changes, w.sent+1, func(c change, version uint64) int {
		return int(int64(c.version) - int64(version))
	})
	for _, c := range changes[from:] {
		var body any
		switch before, after := s.isAbout(w, &c.before), s.isAbout(w, &c.after); {
		case after:
			body = &world.ObjectChanged{Watch: w.id, Object: c.after}
		case before:
			body = &world.ObjectGone{Watch: w.id, Object: c.before}
		default:
			continue
		}
		s.send(w, c.version, s.wire.Draw(CallObject), body)
	}
	w.sent = s.store.version
}

// isAbout says whether a watch is about an object.
func (s *Server) isAbout(w *watching, o *world.Object) bool {
	r, meta := o.Get()
	if r != w.about.Resource || meta == nil ||
		w.about.Namespace != "" && meta.GetNamespace() != w.about.Namespace ||
		w.about.Name != "" && meta.GetName() != w.about.Name {
		return false
	}
	return o.Pod == nil || o.Pod.Spec.NodeName == s.opts.Node
}

// send brings something to the agent, after all that was sent before it.
func (s *Server) send(w *watching, version uint64, fate wire.Fate, body any) {
	now := s.opts.Agenda.Now()
	at := now.Add(fate.Receive + fate.EffectDelay)
	if !at.After(w.arrives) {
		at = w.arrives.Add(time.Nanosecond)
	}
	w.arrives = at
	s.later(w, at.Sub(now), func() {
		if s.reach == Silent {
			return // it is sent again
		}
		w.told = max(w.told, version)
		if _, list := body.(*world.ObjectsListed); list {
			w.failing = nil
		}
		s.tell(world.Event{Time: s.opts.Agenda.Now(), Body: body})
	})
}

// later has do run after a while, unless the watch has ended or is on another connection by then.
func (s *Server) later(w *watching, d time.Duration, do func()) {
	connection := w.connection
	s.opts.Agenda.After(d, func() {
		if w.connection == connection && slices.Contains(s.watches, w) {
			do()
		}
	})
}

// breakWatches ends every connection at once.
func (s *Server) breakWatches() {
	for _, w := range s.watches {
		s.again(w)
	}
}

// again has a watch begin again after a moment.
func (s *Server) again(w *watching) {
	w.connection++
	w.open = false
	s.later(w, s.between(0, time.Second), func() { s.connect(w) })
}

// lookForSilence has every watch find out in a while that its connection is dead.
func (s *Server) lookForSilence() {
	outage := s.outage
	for _, w := range s.watches {
		if !w.open {
			continue
		}
		s.later(w, s.between(deafLeast, deafMost), func() {
			if s.outage == outage {
				s.fail(w, world.KindTimeout, "no answer")
			}
		})
	}
}

// resumeWatches sends again what was lost on connections that nobody has found dead: half of the
// time they have outlived the silence.
func (s *Server) resumeWatches() {
	for _, w := range s.watches {
		switch {
		case !w.open:
		case w.told == 0 || w.failing != nil || s.jitter.Uint64()&1 == 0:
			s.again(w)
		default:
			w.connection++
			w.sent = w.told
			s.pump(w)
		}
	}
}
