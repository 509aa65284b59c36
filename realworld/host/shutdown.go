package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"seedlet.dev/realworld/replacefile"
	"seedlet.dev/world"
)

// The part of logind's D-Bus API that delays shutdowns
// (https://www.freedesktop.org/wiki/Software/systemd/inhibit).
const (
	logindName      = "org.freedesktop.login1"
	logindInterface = "org.freedesktop.login1.Manager"
	logindPath      = dbus.ObjectPath("/org/freedesktop/login1")
	shutdownSignal  = "PrepareForShutdown"
)

// logindConfig is the file by which logind is configured to wait longer: the kubelet's, relative to
// the root of the machine's files.
const logindConfig = "etc/systemd/logind.conf.d/99-kubelet.conf"

// shutdownWatch is the connection to logind, with the lock that delays a shutdown.
type shutdownWatch struct {
	address string // of the system bus
	deliver func(body any)
	root    string // of the machine's files

	access sync.Mutex
	conn   *dbus.Conn
	lock   *os.File // nil: none
	end    context.CancelFunc
	work   sync.WaitGroup
}

// delay takes the lock, and replaces an earlier connection and an earlier lock. Signals are
// received before the lock is taken, so that none is missed. While a shutdown is under way, an
// earlier lock stays: without it the machine would go down at once.
func (w *shutdownWatch) delay(ctx context.Context, m *world.DelayShutdown) (any, error) {
	const call = "DelayShutdown"
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end) // a bus that does not answer is given up
	signals := newLogindSignals()
	conn, err := connectForSignals(life, w.address, signals)
	if err != nil {
		end()
		return nil, world.Errorf(world.KindUnavailable, call, "connecting to the system bus: %v", err)
	}
	delayed, lock, err := w.prepare(ctx, conn, signals, m.AtLeast)
	if !stop() && err == nil { // too late: the connection is closed
		_ = lock.Close()
		err = ctx.Err()
	}
	isUnderWay := hasDBusName(err, logindName+".OperationInProgress")
	if err != nil && !isUnderWay {
		end()
		_ = conn.Close() // the error says more
		return nil, world.Errorf(world.KindUnavailable, call, "%v", err)
	}
	w.access.Lock()
	defer w.access.Unlock()
	if !isUnderWay {
		_ = w.release() // a new lock is held
		w.lock = lock
	}
	if w.end != nil {
		w.end()
	}
	w.conn, w.end = conn, end
	w.work.Go(func() { w.report(life, conn, signals) })
	if isUnderWay { // and may be cancelled
		return nil, world.Errorf(world.KindConflict, call, "%v", err)
	}
	return delayed, nil
}

// prepare has logind wait long enough, subscribes to its signal, and takes the lock. It returns how
// long logind waits: if that cannot be raised, some time is better than none.
func (w *shutdownWatch) prepare(ctx context.Context, conn *dbus.Conn, signals *logindSignals,
	atLeast time.Duration) (*world.ShutdownDelayed, *os.File, error) {
	manager := conn.Object(logindName, logindPath)
	most, err := delayMax(ctx, manager)
	if err != nil {
		return nil, nil, err
	}
	delayed := &world.ShutdownDelayed{Max: most}
	if most < atLeast {
		raised, err := w.raiseDelay(ctx, conn, manager, atLeast)
		if delayed.Max = max(most, raised); err != nil {
			delayed.Problem = err.Error()
		}
	}
	if err := signals.subscribe(ctx, conn); err != nil {
		return nil, nil, fmt.Errorf("subscribing to %s of logind: %w", shutdownSignal, err)
	}
	lock, err := takeLock(ctx, w.address)
	return delayed, lock, err
}

// takeLock takes the lock of logind, on a connection of its own that can get descriptors: the lock
// is one. The lock is held while its descriptor is open, also after the connection has ended.
func takeLock(ctx context.Context, address string) (*os.File, error) {
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("connecting for the lock of logind: %w", err)
	}
	defer func() { _ = conn.Close() }() // nothing is sent any more
	var fd dbus.UnixFD
	call := conn.Object(logindName, logindPath).CallWithContext(ctx, logindInterface+".Inhibit", 0,
		"shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay")
	if err := call.Store(&fd); err != nil {
		closeDescriptors(call.Body)
		return nil, fmt.Errorf("taking the lock of logind: %w", err)
	}
	syscall.CloseOnExec(int(fd))
	return os.NewFile(uintptr(fd), "the lock of logind"), nil
}

// delayMax returns how long logind waits for the owners of locks.
func delayMax(ctx context.Context, manager dbus.BusObject) (time.Duration, error) {
	var value dbus.Variant
	err := manager.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, logindInterface,
		"InhibitDelayMaxUSec").Store(&value)
	if err != nil {
		return 0, fmt.Errorf("reading InhibitDelayMaxUSec of logind: %w", err)
	}
	micros, ok := value.Value().(uint64)
	if !ok {
		return 0, fmt.Errorf("InhibitDelayMaxUSec of logind is %s, want a number", value)
	}
	return time.Duration(min(micros, 1<<40)) * time.Microsecond, nil
}

// raiseDelay configures logind to wait longer, and returns how long it then waits: another file may
// set it to less, and it takes a moment to read its files.
func (w *shutdownWatch) raiseDelay(ctx context.Context, conn *dbus.Conn, manager dbus.BusObject,
	atLeast time.Duration) (time.Duration, error) {
	path := filepath.Join(w.root, logindConfig)
	text := fmt.Sprintf("# Written by seedlet for its shutdownGracePeriod\n[Login]\n"+
		"InhibitDelayMaxSec=%.0f\n", atLeast.Seconds())
	if err := replacefile.WritePublic(path, []byte(text), 0o755); err != nil {
		return 0, fmt.Errorf("configuring logind: %w", err)
	}
	err := conn.Object("org.freedesktop.systemd1", "/org/freedesktop/systemd1").CallWithContext(ctx,
		"org.freedesktop.systemd1.Manager.KillUnit", 0, "systemd-logind.service", "all",
		int32(syscall.SIGHUP)).Err
	if err != nil {
		return 0, fmt.Errorf("making logind read its configuration: %w", err)
	}
	for wait := 50 * time.Millisecond; ; wait *= 2 {
		most, err := delayMax(ctx, manager)
		if err != nil || most >= atLeast || wait > 2*time.Second {
			return most, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return most, ctx.Err()
		}
	}
}

// closeDescriptors closes the descriptors in an answer that is not as expected.
func closeDescriptors(body []any) {
	for _, value := range body {
		if fd, ok := value.(dbus.UnixFD); ok {
			_ = syscall.Close(int(fd)) // no other part of the agent has it
		}
	}
}

// report reports what logind announces until the connection ends.
func (w *shutdownWatch) report(life context.Context, conn *dbus.Conn, signals *logindSignals) {
	for {
		select {
		case <-life.Done():
			_ = conn.Close() // nothing is sent any more
			return
		case active := <-signals.announced:
			w.deliver(&world.MachineShutdown{Cancelled: !active})
		case <-signals.restarted:
			w.deliver(&world.ShutdownUnwatched{Reason: "logind has been restarted"})
		case <-signals.ended:
			if life.Err() == nil {
				w.deliver(&world.ShutdownUnwatched{Reason: "the system bus has closed the connection"})
			}
			return
		}
	}
}

// permit releases the lock.
func (w *shutdownWatch) permit() error {
	w.access.Lock()
	defer w.access.Unlock()
	return w.release()
}

func (w *shutdownWatch) release() error {
	if w.lock == nil {
		return nil
	}
	err := w.lock.Close()
	w.lock = nil
	return err
}

// close ends the connection, and releases the lock.
func (w *shutdownWatch) close() {
	_ = w.permit() // the lock ends with the process in any case
	w.access.Lock()
	if w.end != nil {
		w.end()
	}
	w.access.Unlock()
	w.work.Wait()
}
