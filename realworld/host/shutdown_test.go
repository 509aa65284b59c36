package host

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// policy lets every client own every name and send signals to every other, as the system bus lets
// them send signals.
const policy = `<busconfig>
<type>session</type>
<listen>unix:dir=%DIR%</listen>
<policy context="default">
<allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/>
</policy>
</busconfig>`

// startBus starts a private bus, and returns its address.
func startBus(t *testing.T) string {
	t.Helper()
	daemon, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("skipped: there is no dbus-daemon")
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "bus.conf")
	text := strings.Replace(policy, "%DIR%", dir, 1)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(daemon, "--nofork", "--print-address", "--config-file="+config)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func connectTo(t *testing.T, address string) *dbus.Conn {
	t.Helper()
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // a test may have closed it
	return conn
}

// logind is a stand-in for logind.
type logind struct {
	conn     *dbus.Conn
	delayMax uint64 // microseconds
	locks    atomic.Int32
}

// Get returns the only property that is asked for.
func (l *logind) Get(string, string) (dbus.Variant, *dbus.Error) {
	return dbus.MakeVariant(l.delayMax), nil
}

// Inhibit returns a lock.
func (l *logind) Inhibit(_, _, _, _ string) (dbus.UnixFD, *dbus.Error) {
	l.locks.Add(1)
	r, w, err := os.Pipe()
	if err != nil {
		return 0, dbus.MakeFailedError(err)
	}
	go func() { // the lock is released when the other end is closed
		_, _ = r.Read(make([]byte, 1)) // ends with the last descriptor of w
		l.locks.Add(-1)
	}()
	time.AfterFunc(time.Second, func() { _ = w.Close() }) // the copy that was sent remains
	return dbus.UnixFD(w.Fd()), nil
}

func startLogind(t *testing.T, address string, delayMax time.Duration) *logind {
	t.Helper()
	l := &logind{conn: connectTo(t, address), delayMax: uint64(delayMax.Microseconds())}
	err := errors.Join(l.conn.Export(l, logindPath, logindInterface),
		l.conn.Export(l, logindPath, "org.freedesktop.DBus.Properties"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.conn.RequestName(logindName, 0); err != nil {
		t.Fatal(err)
	}
	return l
}

// watchOn returns a watch of a bus, and what it delivers.
func watchOn(t *testing.T, address string) (*shutdownWatch, chan any) {
	delivered := make(chan any, 100)
	w := &shutdownWatch{root: t.TempDir(), deliver: func(body any) { delivered <- body },
		connect: func(ctx context.Context) (*dbus.Conn, error) {
			return dbus.Connect(address, dbus.WithContext(ctx))
		}}
	t.Cleanup(w.close)
	return w, delivered
}

// Only what logind itself sends is a shutdown: any client of the bus may send a signal to the
// agent's connection.
func TestForgedShutdownIsIgnored(t *testing.T) {
	address := startBus(t)
	l := startLogind(t, address, time.Minute)
	w, delivered := watchOn(t, address)
	answer, err := w.delay(t.Context(), &world.DelayShutdown{AtLeast: 30 * time.Second})
	if err != nil || *answer.(*world.ShutdownDelayed) != (world.ShutdownDelayed{Max: time.Minute}) {
		t.Fatal(answer, err)
	}
	attacker := connectTo(t, address)
	for _, destination := range []string{"", w.conn.Names()[0]} {
		headers := map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(logindPath),
			dbus.FieldInterface: dbus.MakeVariant(logindInterface),
			dbus.FieldMember:    dbus.MakeVariant(shutdownSignal),
			dbus.FieldSignature: dbus.MakeVariant(dbus.SignatureOf(true)),
		}
		if destination != "" {
			headers[dbus.FieldDestination] = dbus.MakeVariant(destination)
		}
		forged := &dbus.Message{Type: dbus.TypeSignal, Headers: headers, Body: []any{true}}
		if call := attacker.Send(forged, nil); call != nil && call.Err != nil {
			t.Fatal(call.Err)
		}
	}
	// The bus keeps the order of one client only: what the attacker has sent is delivered once it has
	// an answer.
	if err := attacker.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
	for _, body := range [][]any{{"true"}, {}, {true, true}, {false}} {
		if err := l.conn.Emit(logindPath, logindInterface+"."+shutdownSignal, body...); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case got := <-delivered:
		if cancelled, ok := got.(*world.MachineShutdown); !ok || !cancelled.Cancelled {
			t.Errorf("delivered %+v, want the cancellation that logind has sent", got)
		}
	case <-time.After(porttest.Patience):
		t.Error("the signal of logind is not delivered")
	}
}

// If logind cannot be made to wait longer, the lock is taken all the same, and released once.
func TestDelayThatCannotBeRaised(t *testing.T) {
	address := startBus(t)
	l := startLogind(t, address, 5*time.Second)
	w, _ := watchOn(t, address)
	for range 2 { // the second time the earlier lock is replaced
		answer, err := w.delay(t.Context(), &world.DelayShutdown{AtLeast: 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		got := answer.(*world.ShutdownDelayed)
		if got.Max != 5*time.Second || !strings.Contains(got.Problem, "making logind read") {
			t.Errorf("answer %+v", got)
		}
	}
	waitForLocks(t, l, 1)
	if err := w.permit(); err != nil {
		t.Error(err)
	}
	waitForLocks(t, l, 0)
}

func waitForLocks(t *testing.T, l *logind, want int32) {
	t.Helper()
	for deadline := time.Now().Add(porttest.Patience); l.locks.Load() != want; {
		if time.Now().After(deadline) {
			t.Fatalf("%d locks are held, want %d", l.locks.Load(), want)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A bus that accepts connections and never answers is given up at the end of the call.
func TestSilentBus(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "bus")
	silent, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }() // nothing was asked of it
	w, _ := watchOn(t, "unix:path="+socket)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if answer, err := w.delay(ctx, &world.DelayShutdown{}); err == nil {
		t.Errorf("answer %+v", answer)
	}
}
