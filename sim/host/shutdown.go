package host

import (
	"cmp"
	"time"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The simulated logind. As the real one does, it announces a shutdown, waits for all locks that
// delay it, but not for ever, and then has the machine go down. The agent's lock ends with its
// process. While a shutdown is under way, logind gives no lock away
// (https://www.freedesktop.org/wiki/Software/systemd/inhibit).

// Shutdown is a shutdown of the machine.
type Shutdown struct {
	OthersFor time.Duration // for how long another program has a lock as well
	PowerOff  func()        // is called when the machine goes down
}

// logind is the state of the shutdowns.
type logind struct {
	lock     bool // the agent's
	watched  bool // the agent hears of shutdowns
	asked    time.Duration
	busUntil time.Time // until when the system bus is down

	underWay *Shutdown
	since    time.Time
}

// announcementDelay is how long logind's signal takes to the agent.
const announcementDelay = 2 * time.Millisecond

// ShutDown begins a shutdown, unless one is under way.
func (h *Host) ShutDown(s Shutdown) {
	l := &h.logind
	if l.underWay != nil {
		return
	}
	now := h.opts.Agenda.Now()
	l.underWay, l.since = &s, now
	h.recordShutdown(truth.ShutdownAnnounced, h.unwatched())
	h.announce(false)
	for _, at := range []time.Duration{s.OthersFor, h.delayMax()} {
		h.opts.Agenda.At(now.Add(at), func() { h.goDownUnlessDelayed(&s) })
	}
}

// delayMax returns how long logind waits for locks: its default, or what it is configured to.
func (h *Host) delayMax() time.Duration {
	const usual = 5 * time.Second
	return cmp.Or(h.opts.InhibitDelayMax, max(h.logind.asked, usual))
}

// goDownUnlessDelayed has the machine go down for a shutdown that is under way if no lock is left,
// or if logind has waited for long enough.
func (h *Host) goDownUnlessDelayed(s *Shutdown) {
	l := &h.logind
	if l.underWay != s {
		return
	}
	waited := h.opts.Agenda.Now().Sub(l.since)
	if waited < h.delayMax() && (l.lock || waited < s.OthersFor) {
		return
	}
	l.underWay = nil
	s.PowerOff()
}

// CancelShutdown takes back the shutdown that is under way.
func (h *Host) CancelShutdown() {
	if h.logind.underWay == nil {
		return
	}
	h.logind.underWay = nil
	h.recordShutdown(truth.ShutdownCancelled, h.unwatched())
	h.announce(true)
}

// RepeatAnnouncement announces the shutdown that is under way once more.
func (h *Host) RepeatAnnouncement() {
	if h.logind.underWay != nil {
		h.recordShutdown(truth.ShutdownRepeated, h.unwatched())
		h.announce(false)
	}
}

// LoseBus ends the connection on which the agent hears of shutdowns. There is no other one for a
// while. The locks stay.
func (h *Host) LoseBus(down time.Duration) {
	l := &h.logind
	l.busUntil = h.opts.Agenda.Now().Add(down)
	if l.watched {
		l.watched = false
		h.notify(&world.ShutdownUnwatched{Reason: "the system bus has closed the connection"})
	}
}

// unwatched returns the cause of an announcement that the agent does not hear.
func (h *Host) unwatched() string {
	if h.logind.watched {
		return ""
	}
	return truth.CauseUnwatched
}

func (h *Host) announce(cancelled bool) {
	if h.logind.watched {
		h.notify(&world.MachineShutdown{Cancelled: cancelled})
	}
}

func (h *Host) notify(body any) {
	h.wire.DeliverAt(h.opts.Agenda.Now().Add(announcementDelay), body)
}

// delay serves DelayShutdown.
func (h *Host) delay(call *wire.Call, m *world.DelayShutdown) {
	l, now := &h.logind, h.opts.Agenda.Now()
	switch {
	case now.Before(l.busUntil):
		call.Fail(world.Errorf(world.KindUnavailable, call.Name, "the system bus does not respond"))
	case l.underWay != nil:
		l.watched = true
		call.Fail(world.Errorf(world.KindConflict, call.Name, "a shutdown is under way"))
	default:
		if !l.lock {
			h.recordShutdown(truth.ShutdownDelayed, "")
		}
		l.lock, l.watched, l.asked = true, true, m.AtLeast
		call.Reply(&world.ShutdownDelayed{Max: h.delayMax()})
	}
}

// permit serves PermitShutdown.
func (h *Host) permit(call *wire.Call) {
	call.Reply(&world.Done{})
	h.releaseLock("")
}

// releaseLock takes the agent's lock away. A shutdown that waited for it alone goes on.
func (h *Host) releaseLock(cause string) {
	l := &h.logind
	if !l.lock {
		return
	}
	l.lock = false
	h.recordShutdown(truth.ShutdownPermitted, cause)
	if s := l.underWay; s != nil {
		h.opts.Agenda.After(announcementDelay, func() { h.goDownUnlessDelayed(s) })
	}
}

// loseAgent is called when the agent's process has ended.
func (h *Host) loseAgent() {
	h.logind.watched = false
	h.releaseLock(truth.CauseKilled)
}

func (h *Host) recordShutdown(kind truth.Kind, cause string) {
	h.opts.Truth.Add(truth.Fact{Time: h.opts.Agenda.Now(), Kind: kind, Cause: cause})
}
