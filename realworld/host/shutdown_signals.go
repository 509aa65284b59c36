package host

import (
	"context"
	"sync"

	"github.com/godbus/dbus/v5"
)

// logindSignals receives the signals of a connection. What is subscribed to limits broadcasts only:
// every client of the bus may send any signal to the agent's own name, as many as it likes. So
// signals are judged when they arrive, by their sender, for which the bus vouches, and nothing
// is kept of those that logind has not sent. (The handler that godbus has itself starts a goroutine
// for each signal that waits, and they may overtake each other.)
type logindSignals struct {
	announced chan bool     // shutdowns and cancellations, in their order
	ended     chan struct{} // closed when the connection has ended
	restarted chan struct{} // logind has a new owner: it has forgotten a shutdown under way

	access sync.Mutex
	owner  string // the name of logind's connection; empty: it has none
	known  bool   // the bus has said who the owner is
}

// announcedMax is how many announcements wait. Of more, the oldest is of no interest any more.
const announcedMax = 16

func newLogindSignals() *logindSignals {
	return &logindSignals{announced: make(chan bool, announcedMax), ended: make(chan struct{}),
		restarted: make(chan struct{}, 1)}
}

const (
	busName            = "org.freedesktop.DBus"
	ownerChangedSignal = "NameOwnerChanged"
)

// subscribe subscribes to the announcements of logind and to changes of the owner of its name, and
// asks for the owner.
func (s *logindSignals) subscribe(ctx context.Context, conn *dbus.Conn) error {
	err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(busName),
		dbus.WithMatchInterface(busName), dbus.WithMatchMember(ownerChangedSignal),
		dbus.WithMatchArg(0, logindName))
	if err != nil {
		return err
	}
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchSender(logindName),
		dbus.WithMatchObjectPath(logindPath), dbus.WithMatchInterface(logindInterface),
		dbus.WithMatchMember(shutdownSignal)); err != nil {
		return err
	}
	var owner string
	err = conn.BusObject().CallWithContext(ctx, busName+".GetNameOwner", 0, logindName).Store(&owner)
	if err == nil {
		s.setOwner(owner, false)
	}
	return err
}

// setOwner records the owner of logind's name. isChange is set for a change: an answer may be
// older.
func (s *logindSignals) setOwner(owner string, isChange bool) {
	s.access.Lock()
	defer s.access.Unlock()
	if isChange || !s.known {
		s.owner, s.known = owner, true
	}
}

func (s *logindSignals) isOwner(sender string) bool {
	s.access.Lock()
	defer s.access.Unlock()
	return s.owner != "" && s.owner == sender
}

// DeliverSignal handles a signal that has arrived, before the next one is read.
func (s *logindSignals) DeliverSignal(iface, name string, signal *dbus.Signal) {
	switch {
	case iface == busName && name == ownerChangedSignal && signal.Sender == busName:
		if changed, owner := ownerChange(signal.Body); changed == logindName {
			s.setOwner(owner, true)
			if owner != "" {
				select {
				case s.restarted <- struct{}{}:
				default: // it was noted already
				}
			}
		}
	case iface == logindInterface && name == shutdownSignal && signal.Path == logindPath &&
		len(signal.Body) == 1 && s.isOwner(signal.Sender):
		if active, ok := signal.Body[0].(bool); ok {
			s.announce(active)
		}
	}
}

// ownerChange returns the name and the new owner of a change.
func ownerChange(body []any) (name, owner string) {
	if len(body) != 3 {
		return "", ""
	}
	name, _ = body[0].(string)
	owner, _ = body[2].(string)
	return name, owner
}

// announce hands on an announcement. It is called by one goroutine only.
func (s *logindSignals) announce(active bool) {
	select {
	case s.announced <- active:
		return
	default:
	}
	select {
	case <-s.announced: // the oldest
	default:
	}
	s.announced <- active
}

// Terminate is called when the connection has ended.
func (s *logindSignals) Terminate() { close(s.ended) }
