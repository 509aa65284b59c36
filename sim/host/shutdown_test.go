package host

import (
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
)

// shutdownWorld is a host whose power goes off.
type shutdownWorld struct {
	*simWorld
	offAfter  time.Duration // since the announcement; -1: the machine is up
	announced time.Time
}

func newShutdownWorld(t *testing.T) *shutdownWorld {
	return &shutdownWorld{simWorld: newWorld(t), offAfter: -1}
}

func (w *shutdownWorld) shutDown(others time.Duration) {
	w.announced = w.agenda.Now()
	w.host.ShutDown(Shutdown{OthersFor: others, PowerOff: func() {
		w.offAfter = w.agenda.Now().Sub(w.announced)
	}})
}

// lock takes the agent's lock, and returns the kind of the error.
func (w *shutdownWorld) lock(atLeast time.Duration) world.ErrorKind {
	if _, err := w.call(&world.DelayShutdown{AtLeast: atLeast}); err != nil {
		return err.Kind
	}
	return ""
}

func (w *shutdownWorld) run() {
	for w.agenda.Run() {
	}
}

func (w *shutdownWorld) expect(t *testing.T, offAfter time.Duration, facts ...string) {
	t.Helper()
	if w.offAfter != offAfter || !slices.Equal(w.facts, facts) {
		t.Errorf("off after %v, want %v; %q, want %q", w.offAfter, offAfter, w.facts, facts)
	}
}

func TestLockDelaysShutdown(t *testing.T) {
	w := newShutdownWorld(t)
	w.lock(30 * time.Second)
	w.shutDown(0)
	w.run()
	w.expect(t, 30*time.Second, "ShutdownDelayed  0", "ShutdownAnnounced  0")
	if _, isAnnounced := w.completion.Body.(*world.MachineShutdown); !isAnnounced {
		t.Errorf("the agent hears %v", w.completion.Body)
	}
}

func TestShutdownWithoutLock(t *testing.T) {
	w := newShutdownWorld(t)
	w.shutDown(0)
	w.run()
	w.expect(t, 0, "ShutdownAnnounced  0 unwatched")
}

func TestReleaseOfLock(t *testing.T) {
	w := newShutdownWorld(t)
	w.lock(30 * time.Second)
	w.shutDown(8 * time.Second)
	if kind := w.lock(30 * time.Second); kind != world.KindConflict {
		t.Errorf("%q while a shutdown is under way", kind)
	}
	if _, err := w.call(&world.PermitShutdown{}); err != nil {
		t.Error(err)
	}
	w.run()
	w.expect(t, 8*time.Second, "ShutdownDelayed  0", "ShutdownAnnounced  0", "ShutdownPermitted  0")
}

func TestDeathOfAgentReleasesLock(t *testing.T) {
	w := newShutdownWorld(t)
	w.lock(30 * time.Second)
	w.shutDown(0)
	w.host.Disconnect()
	w.run()
	w.expect(t, 0, "ShutdownDelayed  0", "ShutdownAnnounced  0",
		"ShutdownPermitted  0 killed")
}

func TestCancelledShutdown(t *testing.T) {
	w := newShutdownWorld(t)
	w.lock(30 * time.Second)
	w.shutDown(0)
	w.host.CancelShutdown()
	w.host.CancelShutdown()
	w.run()
	if m, ok := w.completion.Body.(*world.MachineShutdown); !ok || !m.Cancelled {
		t.Errorf("the agent hears %v", w.completion.Body)
	}
	w.expect(t, -1, "ShutdownDelayed  0", "ShutdownAnnounced  0", "ShutdownCancelled  0")
}

// Without a bus the agent hears nothing, but its lock stays.
func TestLostBus(t *testing.T) {
	w := newShutdownWorld(t)
	w.lock(30 * time.Second)
	w.host.LoseBus(time.Minute)
	w.run()
	if lost, ok := w.completion.Body.(*world.ShutdownUnwatched); !ok ||
		!strings.Contains(lost.Reason, "bus") {
		t.Errorf("the agent hears %v", w.completion.Body)
	}
	if kind := w.lock(30 * time.Second); kind != world.KindUnavailable {
		t.Errorf("%q without a bus", kind)
	}
	w.shutDown(0)
	w.run()
	w.expect(t, 30*time.Second, "ShutdownDelayed  0", "ShutdownAnnounced  0 unwatched")
}
