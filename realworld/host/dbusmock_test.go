package host

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// requireMock skips a test without python3-dbusmock, which `make test` installs. In CI as root it
// fails instead.
func requireMock(t *testing.T) {
	t.Helper()
	_, err := os.Stat("/usr/lib/python3/dist-packages/dbusmock/templates/logind.py")
	switch {
	case err == nil:
	case os.Getenv("CI") == "true" && os.Geteuid() == 0:
		t.Fatal(err)
	default:
		t.Skip("skipped: there is no python3-dbusmock; run `make test`")
	}
}

// mockLogind is the template of logind in python3-dbusmock: written by others, so it shows what the
// stand-in of these tests may have wrong.
type mockLogind struct {
	t      *testing.T
	object dbus.BusObject
}

// startMock starts the mock on a bus, with a configured delay, and beside it one of systemd that
// makes logind read its configuration: half a minute then.
func startMock(t *testing.T, address string, delay time.Duration) *mockLogind {
	t.Helper()
	conn := connectTo(t, address)
	start := func(name string, args ...string) {
		cmd := exec.Command("/usr/bin/python3", append([]string{"-m", "dbusmock"}, args...)...)
		cmd.Env = append(cmd.Environ(), "DBUS_SYSTEM_BUS_ADDRESS="+address,
			"DBUS_SESSION_BUS_ADDRESS="+address)
		var output strings.Builder
		cmd.Stderr = &output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it may have ended
			_ = cmd.Wait()         // killed
		})
		var owned bool
		for deadline := time.Now().Add(porttest.Patience); !owned; time.Sleep(20 * time.Millisecond) {
			err := conn.BusObject().Call("org.freedesktop.DBus.NameHasOwner", 0, name).Store(&owned)
			if err != nil || time.Now().After(deadline) {
				t.Fatalf("no mock of %s: %v\n%s", name, err, output.String())
			}
		}
	}
	start(logindName, "--template", "logind")
	l := &mockLogind{t, conn.Object(logindName, logindPath)}
	l.mock("AddProperty", logindInterface, "InhibitDelayMaxUSec",
		dbus.MakeVariant(uint64(delay.Microseconds())))
	const systemd = "org.freedesktop.systemd1"
	start(systemd, systemd, "/org/freedesktop/systemd1", systemd+".Manager")
	(&mockLogind{t, conn.Object(systemd, "/org/freedesktop/systemd1")}).mock("AddMethod",
		systemd+".Manager", "KillUnit", "ssi", "",
		`dbus.SessionBus().get_object("org.freedesktop.login1", "/org/freedesktop/login1")`+
			`.UpdateProperties("org.freedesktop.login1.Manager", `+
			`{"InhibitDelayMaxUSec": dbus.UInt64(30000000)}, `+
			`dbus_interface="org.freedesktop.DBus.Mock")`)
	return l
}

// mock calls a method that controls the mock.
func (l *mockLogind) mock(method string, args ...any) {
	l.t.Helper()
	if err := l.object.Call("org.freedesktop.DBus.Mock."+method, 0, args...).Err; err != nil {
		l.t.Fatalf("%s: %v", method, err)
	}
}

// announce sends the signal with a body of any type.
func (l *mockLogind) announce(signature string, body ...any) {
	l.t.Helper()
	args := make([]dbus.Variant, len(body))
	for i := range body {
		args[i] = dbus.MakeVariant(body[i])
	}
	l.mock("EmitSignal", logindInterface, shutdownSignal, signature, args)
}

// inhibitors returns the locks that are held.
func (l *mockLogind) inhibitors() [][]any {
	l.t.Helper()
	var held [][]any
	if err := l.object.Call(logindInterface+".ListInhibitors", 0).Store(&held); err != nil {
		l.t.Fatal(err)
	}
	return held
}

func (l *mockLogind) held() int { return len(l.inhibitors()) }

// A logind of other people is watched as the stand-in is: its delay is raised, the lock is one of a
// shutdown, taken once and released once, and what is malformed is no announcement.
func TestMockedLogind(t *testing.T) {
	requireMock(t)
	address := startBus(t)
	l := startMock(t, address, 5*time.Second)
	w, delivered := watchOn(t, address)
	for range 2 { // the second time the earlier lock is replaced
		answer, err := w.delay(t.Context(), &world.DelayShutdown{AtLeast: 30 * time.Second})
		want := world.ShutdownDelayed{Max: 30 * time.Second}
		if err != nil || *answer.(*world.ShutdownDelayed) != want {
			t.Fatal(answer, err)
		}
	}
	waitForLocks(t, l.held, 1)
	if lock := l.inhibitors()[0]; lock[0] != "shutdown" || lock[3] != "delay" {
		t.Errorf("the lock is %v", lock)
	}
	l.announce("s", "true")
	l.announce("")
	l.announce("bb", true, true)
	l.announce("b", true)
	l.announce("b", true) // again
	l.announce("b", false)
	for _, cancelled := range []bool{false, false, true} {
		expectAnnouncement(t, delivered, cancelled)
	}
	if err := w.permit(); err != nil {
		t.Error(err)
	}
	waitForLocks(t, l.held, 0)
}

// A logind that refuses, or says what cannot be, leaves no lock and no connection, and the error
// says what it said.
func TestMockedLogindRefuses(t *testing.T) {
	requireMock(t)
	raise := func(name string) string {
		return `raise dbus.exceptions.DBusException("no, thanks", name="` + name + `")`
	}
	for _, c := range []struct {
		name, code, signature string
		delay                 any
		want                  string
		kind                  world.ErrorKind
	}{
		{"access denied", raise("org.freedesktop.DBus.Error.AccessDenied"), "h", nil, "no, thanks",
			world.KindUnavailable},
		{"already shutting down", raise("org.freedesktop.login1.OperationInProgress"), "h", nil,
			"no, thanks", world.KindConflict},
		{"no descriptor", `ret = "a lock"`, "s", nil, "taking the lock", world.KindUnavailable},
		{"no number", "", "", "soon", "InhibitDelayMaxUSec of logind is", world.KindUnavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			address := startBus(t)
			l := startMock(t, address, time.Minute)
			if c.code != "" {
				l.mock("AddMethod", logindInterface, "Inhibit", "ssss", c.signature, c.code)
			}
			if c.delay != nil {
				l.mock("UpdateProperties", logindInterface,
					map[string]dbus.Variant{"InhibitDelayMaxUSec": dbus.MakeVariant(c.delay)})
			}
			w, delivered := watchOn(t, address)
			answer, err := w.delay(t.Context(), &world.DelayShutdown{AtLeast: time.Second})
			var failed *world.Error
			if !errors.As(err, &failed) || !failed.Has(c.kind) || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("answer %v, error %v, want a %s that says %q", answer, err, c.kind, c.want)
			}
			waitForLocks(t, l.held, 0)
			w.access.Lock()
			kept := w.conn != nil
			w.access.Unlock()
			if kept != (c.kind == world.KindConflict) { // it may be cancelled
				t.Errorf("the connection is kept: %t", kept)
			}
			l.announce("b", false)
			if c.kind == world.KindConflict { // it is under way, and may be cancelled
				expectAnnouncement(t, delivered, true)
			}
		})
	}
}
