package credentials

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// plugin writes a plugin, a shell script, and returns its path.
func plugin(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// do carries out a request that has a time to end.
func do(t *testing.T, request any, timeout time.Duration) world.Event {
	t.Helper()
	ticks, completed := clock.New(), make(chan world.Event, 1)
	port := New(Options{Clock: ticks, Deliver: func(ev world.Event) { completed <- ev }})
	defer port.Close()
	port.Do(world.Effect{Op: 7, Body: request, Deadline: ticks.Now().Add(timeout)})
	select {
	case ev := <-completed:
		return ev
	case <-time.After(2 * porttest.Patience):
		t.Fatal("not completed")
		return world.Event{}
	}
}

// A plugin has the request on its standard input, its arguments and its variables.
func TestPlugin(t *testing.T) {
	request := &world.GetCredentials{Program: plugin(t, `echo "$1 $REGION $(cat) $HOME"`),
		Args: []string{"get"}, Env: []world.CredentialVariable{{Name: "REGION", Value: "north"}},
		Request: []byte("the request")}
	ev := do(t, request, porttest.Patience)
	got, ok := ev.Body.(*world.CredentialsGot)
	if !ok || !strings.HasPrefix(string(got.Output), "get north the request ") || ev.Op != 7 {
		t.Errorf("%+v, %v", ev.Body, ev.Err)
	}
}

func TestPluginFailures(t *testing.T) {
	for name, c := range map[string]struct {
		program string
		kind    world.ErrorKind
		text    string
	}{
		"fails": {plugin(t, "echo no token >&2; echo secret; exit 3"), world.KindInternal,
			"exit status 3: no token"},
		"does not exist": {"/none/plugin", world.KindNotFound, "/none/plugin"},
		"writes too much": {plugin(t, "head -c 300000 /dev/zero"), world.KindExhausted,
			"more than 262144 bytes"},
	} {
		ev := do(t, &world.GetCredentials{Program: c.program}, porttest.Patience)
		if !ev.Err.Has(c.kind) || !strings.Contains(ev.Err.Message, c.text) ||
			strings.Contains(ev.Err.Message, "secret") {
			t.Errorf("%s: %v", name, ev.Err)
		}
	}
}

// A plugin is killed at its deadline, with the processes that it has started. What it has written
// until then is in the error.
func TestPluginIsKilled(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	ev := do(t, &world.GetCredentials{
		Program: plugin(t, "echo waiting >&2; sleep 1000 & echo $! > "+pid+"; wait")}, time.Second)
	if !ev.Err.Has(world.KindTimeout) {
		t.Errorf("%v", ev.Err)
	}
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Skip("the plugin had no time to start") // on a busy machine
	}
	if !strings.Contains(ev.Err.Message, "waiting") {
		t.Errorf("%v", ev.Err)
	}
	expectEnd(t, string(text))
}

// What a plugin has started ends with it, and does not hold its answer.
func TestPluginLeavesNothing(t *testing.T) {
	ev := do(t, &world.GetCredentials{Program: plugin(t, "sleep 1000 & echo $!")}, porttest.Patience)
	got, ok := ev.Body.(*world.CredentialsGot)
	if !ok {
		t.Fatal(ev.Err)
	}
	expectEnd(t, string(got.Output))
}

// expectEnd waits for the end of the process with a PID.
func expectEnd(t *testing.T, pid string) {
	t.Helper()
	process := "/proc/" + strings.TrimSpace(pid) + "/stat"
	for end := time.Now().Add(porttest.Patience); ; time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile(process)
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return // gone, or not yet reaped by init
		}
		if time.Now().After(end) {
			t.Fatal("a process of the plugin still runs")
		}
	}
}

// A plugin has its own time, whatever the deadline is.
func TestPluginHasItsOwnTime(t *testing.T) {
	_, err := execute(t.Context(),
		&world.GetCredentials{Program: plugin(t, "sleep 1000")}, 50*time.Millisecond)
	worldErr, _ := errors.AsType[*world.Error](err)
	if !worldErr.Has(world.KindTimeout) {
		t.Errorf("%v", err)
	}
}

// Of a Docker configuration the files are read that exist; none can hold the agent. One that cannot
// be read has an error.
func TestDockerConfig(t *testing.T) {
	dir := t.TempDir()
	there, pipe, large := filepath.Join(dir, "config.json"), filepath.Join(dir, "pipe"),
		filepath.Join(dir, "large")
	if err := os.WriteFile(there, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(large, make([]byte, world.CredentialBytesMax+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ev := do(t, &world.ReadDockerConfig{Paths: []string{dir, pipe, large, dir + "/none",
		there + "/none", there}}, porttest.Patience)
	read, ok := ev.Body.(*world.DockerConfigRead)
	if !ok || len(read.Files) != 4 {
		t.Fatalf("%+v, %v", ev.Body, ev.Err)
	}
	for i, kind := range []world.ErrorKind{world.KindInternal, world.KindInternal,
		world.KindExhausted} {
		if f := read.Files[i]; !f.Err.Has(kind) || f.Data != nil {
			t.Errorf("%+v, want %s", f, kind)
		}
	}
	if f := read.Files[3]; f.Path != there || string(f.Data) != "{}" || f.Err != nil {
		t.Errorf("%+v", f)
	}
}
