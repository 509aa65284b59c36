package credentials

import (
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

// got returns how the run of a plugin has ended.
func got(t *testing.T, ev world.Event) *world.CredentialsGot {
	t.Helper()
	got, ok := ev.Body.(*world.CredentialsGot)
	if !ok {
		t.Fatal(ev.Err)
	}
	return got
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
		if got := got(t, ev); !got.Err.Has(c.kind) || !strings.Contains(got.Err.Message, c.text) ||
			strings.Contains(got.Err.Message, "secret") || got.Output != nil {
			t.Errorf("%s: %v", name, got.Err)
		}
	}
}

// The token of the request does not leave the port in the standard error of a plugin, and the time
// of a run is its own.
func TestPluginSaysItsToken(t *testing.T) {
	token := strings.Repeat("h", 600) + "." + strings.Repeat("c", 600) + ".signature"
	ev := do(t, &world.GetCredentials{
		Program: plugin(t, "sleep 0.2; echo before >&2; cat >&2; echo after >&2; exit 1"),
		Request: []byte(`{"serviceAccountToken":"` + token + `"}`)}, porttest.Patience)
	const want = `exit status 1: before
{"serviceAccountToken":"[redacted].[redacted].[redacted]"}after`
	if got := got(t, ev); got.Err == nil || got.Err.Message != want ||
		got.Took < 200*time.Millisecond || got.Took > porttest.Patience {
		t.Errorf("%v: %v", got.Took, got.Err)
	}
}

// A plugin is killed at its deadline, with the processes that it has started. What it has written
// until then is in the error.
func TestPluginIsKilled(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	ev := do(t, &world.GetCredentials{
		Program: plugin(t, "echo waiting >&2; sleep 1000 & echo $! > "+pid+"; wait")}, time.Second)
	killed := got(t, ev)
	if !killed.Err.Has(world.KindTimeout) {
		t.Errorf("%v", killed.Err)
	}
	text, err := os.ReadFile(pid)
	if err != nil {
		t.Skip("the plugin had no time to start") // on a busy machine
	}
	if !strings.Contains(killed.Err.Message, "waiting") {
		t.Errorf("%v", killed.Err)
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
	got := execute(t.Context(),
		&world.GetCredentials{Program: plugin(t, "sleep 1000")}, 50*time.Millisecond)
	if !got.Err.Has(world.KindTimeout) {
		t.Errorf("%v", got.Err)
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
