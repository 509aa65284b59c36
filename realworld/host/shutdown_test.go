package host

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	address, _ := startBusToKill(t)
	return address
}

// startBusToKill starts a private bus, and returns its address and its process.
func startBusToKill(t *testing.T) (string, *os.Process) {
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
	return strings.TrimSpace(line), cmd.Process
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

func (l *logind) held() int { return int(l.locks.Load()) }

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
	w := &shutdownWatch{root: t.TempDir(), address: address,
		deliver: func(body any) { delivered <- body }}
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
	forge(t, attacker, "")
	forge(t, attacker, w.conn.Names()[0])
	awaitDelivery(t, attacker)
	for _, body := range [][]any{{"true"}, {}, {true, true}, {false}} {
		if err := l.conn.Emit(logindPath, logindInterface+"."+shutdownSignal, body...); err != nil {
			t.Fatal(err)
		}
	}
	expectAnnouncement(t, delivered, true)
}

// Descriptors in messages of others do not stay open, wherever in the message they are.
func TestDescriptorsOfOthersAreNotKept(t *testing.T) {
	address := startBus(t)
	l := startLogind(t, address, time.Minute)
	w, delivered := watchOn(t, address)
	if _, err := w.delay(t.Context(), &world.DelayShutdown{AtLeast: 30 * time.Second}); err != nil {
		t.Fatal(err)
	}
	waitForLocks(t, l.held, 1)
	sent, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer sent.Close()
	fd := dbus.UnixFD(sent.Fd())
	before := openDescriptors(t)
	for range 50 {
		attacker, err := dbus.Connect(address) // the bus ends connections that send what is refused
		if err != nil {
			t.Fatal(err)
		}
		body := []any{[]dbus.UnixFD{fd, fd}, dbus.MakeVariant(fd)}
		attacker.Send(&dbus.Message{Type: dbus.TypeSignal, Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:        dbus.MakeVariant(logindPath),
			dbus.FieldInterface:   dbus.MakeVariant(logindInterface),
			dbus.FieldMember:      dbus.MakeVariant(shutdownSignal),
			dbus.FieldDestination: dbus.MakeVariant(w.conn.Names()[0]),
			dbus.FieldSignature:   dbus.MakeVariant(dbus.SignatureOf(body...)),
		}, Body: body}, nil)
		_ = attacker.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err // it has been delivered
		_ = attacker.Close()                                               // it may be closed
	}
	if err := l.conn.Emit(logindPath, logindInterface+"."+shutdownSignal, true); err != nil {
		t.Fatal(err)
	}
	expectAnnouncement(t, delivered, false)
	if now := openDescriptors(t); now > before+20 {
		t.Errorf("%d descriptors are open, %d before", now, before)
	}
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestAddressOfBus(t *testing.T) {
	dir := t.TempDir()
	l, err := net.Listen("unix", filepath.Join(dir, "a b"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for address, want := range map[string]string{
		"unix:path=" + dir + "/none;unix:guid=1,path=" + dir + "/a%20b": "",
		"unix:path=" + dir + "/none":                                    "no such file",
		"unix:abstract=/none" + dir:                                     "connection refused",
		"tcp:host=localhost":                                            "no address of a Unix socket",
		"":                                                              "no address of a Unix socket",
	} {
		socket, err := dialBus(t.Context(), address)
		if err == nil {
			_ = socket.Close()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", address, err, want)
		}
	}
}

// forge sends the signal of logind without being logind, to a client or to all.
func forge(t *testing.T, attacker *dbus.Conn, destination string) {
	t.Helper()
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

// awaitDelivery waits until the bus has delivered what a client has sent: it keeps the order of one
// client only.
func awaitDelivery(t *testing.T, client *dbus.Conn) {
	t.Helper()
	if err := client.BusObject().Call("org.freedesktop.DBus.GetId", 0).Err; err != nil {
		t.Fatal(err)
	}
}

func expectAnnouncement(t *testing.T, delivered chan any, cancelled bool) {
	t.Helper()
	select {
	case got := <-delivered:
		if s, ok := got.(*world.MachineShutdown); !ok || s.Cancelled != cancelled {
			t.Errorf("delivered %+v, want what logind has sent (cancelled: %t)", got, cancelled)
		}
	case <-time.After(porttest.Patience):
		t.Error("the signal of logind is not delivered")
	}
}

// A flood of forged signals leaves nothing behind, and announcements of logind keep their order.
func TestFloodOfForgedShutdowns(t *testing.T) {
	address := startBus(t)
	l := startLogind(t, address, time.Minute)
	w, delivered := watchOn(t, address)
	if _, err := w.delay(t.Context(), &world.DelayShutdown{AtLeast: time.Second}); err != nil {
		t.Fatal(err)
	}
	attacker, before := connectTo(t, address), runtime.NumGoroutine()
	for i := range 20_000 {
		if forge(t, attacker, w.conn.Names()[0]); i%1000 == 0 {
			awaitDelivery(t, attacker)
		}
	}
	awaitDelivery(t, attacker)
	if now := runtime.NumGoroutine(); now > before+20 {
		t.Errorf("%d goroutines, %d before", now, before)
	}
	for i := range 10 {
		if err := l.conn.Emit(logindPath, logindInterface+"."+shutdownSignal, i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10 {
		expectAnnouncement(t, delivered, i%2 == 1)
	}
}

// After a restart of logind its new connection announces shutdowns, and no longer the old one. The
// restart is reported, as it forgets a shutdown that was under way.
func TestRestartOfLogind(t *testing.T) {
	address := startBus(t)
	old := startLogind(t, address, time.Minute)
	w, delivered := watchOn(t, address)
	if _, err := w.delay(t.Context(), &world.DelayShutdown{AtLeast: time.Second}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.conn.ReleaseName(logindName); err != nil {
		t.Fatal(err)
	}
	restarted := startLogind(t, address, time.Minute)
	for _, body := range []struct {
		from      *logind
		cancelled bool
	}{{old, true}, {restarted, false}} {
		err := body.from.conn.Emit(logindPath, logindInterface+"."+shutdownSignal, !body.cancelled)
		if err != nil {
			t.Fatal(err)
		}
		awaitDelivery(t, body.from.conn)
	}
	for restarted, announced := false, false; !restarted || !announced; {
		select {
		case got := <-delivered: // in any order
			s, isAnnounced := got.(*world.MachineShutdown)
			if _, isRestart := got.(*world.ShutdownUnwatched); isRestart && !restarted {
				restarted = true
			} else if announced = isAnnounced && !s.Cancelled; !announced {
				t.Fatalf("delivered %+v", got)
			}
		case <-time.After(porttest.Patience):
			t.Fatalf("restart reported: %t, shutdown announced: %t", restarted, announced)
		}
	}
}

// The end of the bus is reported, and the lock is taken again on the next one.
func TestEndOfBus(t *testing.T) {
	address, bus := startBusToKill(t)
	startLogind(t, address, time.Minute)
	w, delivered := watchOn(t, address)
	if _, err := w.delay(t.Context(), &world.DelayShutdown{AtLeast: time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := bus.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-delivered:
		if _, ok := got.(*world.ShutdownUnwatched); !ok {
			t.Errorf("delivered %+v", got)
		}
	case <-time.After(porttest.Patience):
		t.Error("the end of the bus is not reported")
	}
	if answer, err := w.delay(t.Context(), &world.DelayShutdown{}); err == nil {
		t.Errorf("without a bus: %+v", answer)
	}
	next := startBus(t)
	l := startLogind(t, next, time.Minute)
	w.address = next
	if _, err := w.delay(t.Context(), &world.DelayShutdown{AtLeast: time.Second}); err != nil {
		t.Fatal(err)
	}
	waitForLocks(t, l.held, 1)
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
	waitForLocks(t, l.held, 1)
	if err := w.permit(); err != nil {
		t.Error(err)
	}
	waitForLocks(t, l.held, 0)
}

// waitForLocks waits until so many locks are held.
func waitForLocks(t *testing.T, held func() int, want int) {
	t.Helper()
	for deadline := time.Now().Add(porttest.Patience); held() != want; {
		if time.Now().After(deadline) {
			t.Fatalf("%d locks are held, want %d", held(), want)
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
