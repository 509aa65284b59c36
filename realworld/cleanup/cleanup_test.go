package cleanup

import (
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestBridgeName(t *testing.T) {
	a, b := BridgeName("/tmp/a"), BridgeName("/tmp/b")
	if a == b || len(a) > 15 {
		t.Errorf("bridges %q and %q: want different names of at most 15 bytes", a, b)
	}
}

func TestFreeSubnetAvoidsTaken(t *testing.T) {
	first, err := freeSubnet("/tmp/a", nil)
	if err != nil || first.Bits() != 24 || !first.Addr().IsPrivate() {
		t.Fatalf("got %v, %v; want a private /24", first, err)
	}
	inside := netip.PrefixFrom(first.Addr().Next(), 32)
	second, err := freeSubnet("/tmp/a", []netip.Prefix{inside})
	if err != nil || second.Overlaps(first) {
		t.Errorf("with %v taken: %v, %v", inside, second, err)
	}
	all := netip.MustParsePrefix("10.0.0.0/8")
	if p, err := freeSubnet("/tmp/a", []netip.Prefix{all}); err == nil {
		t.Errorf("with %v taken: %v, want an error", all, p)
	}
}

func TestProcessOnDirectory(t *testing.T) {
	for _, c := range []struct {
		args []string
		want bool
	}{
		{[]string{"/usr/bin/etcd", "--data-dir=/tmp/x/etcd"}, true},
		{[]string{"etcd", "--data-dir", "/tmp/x/etcd"}, true},
		{[]string{"etcd", "--data-dir=/tmp/xy/etcd"}, false},
		{[]string{"less", "/tmp/x/etcd.log"}, false},
		{[]string{"/tmp/x/etcd"}, false},
		{[]string{""}, false},
	} {
		if got := (Process{Args: c.args}).BelongsTo("/tmp/x", []string{"etcd"}); got != c.want {
			t.Errorf("%q on /tmp/x: %t, want %t", c.args, got, c.want)
		}
	}
}

// TestDaemon starts a program, finds it by its directory, and ends it in each way.
func TestDaemon(t *testing.T) {
	tail, err := exec.LookPath("tail")
	if err != nil {
		t.Skip("no tail on the PATH")
	}
	dir := t.TempDir()
	watched := filepath.Join(dir, "watched")
	if err := os.WriteFile(watched, []byte("last words\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &Daemon{Program: tail, Args: []string{"-f", watched},
		LogFile: filepath.Join(dir, "tail.log")}
	selected := func(p Process) bool { return p.BelongsTo(dir, []string{"tail"}) }
	if d.Running() {
		t.Error("running before the start")
	}
	t.Cleanup(func() { _ = d.Kill() }) // no effect if the test succeeds
	for _, end := range []func() error{
		func() error { d.Stop(); return nil },
		d.Kill,
		func() error {
			found, err := Processes(selected)
			if err != nil || len(found) != 1 || found[0].Name != "tail" {
				t.Fatalf("found %v, %v; want the one tail", found, err)
			}
			stranger := func(Process) bool { return false }
			if err := found[0].Kill(stranger); err != nil || !d.Running() {
				t.Errorf("a process that is not selected was killed, or %v", err)
			}
			err = found[0].Kill(selected)
			<-d.Exited()
			return err
		},
	} {
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
		if err := end(); err != nil || d.Running() {
			t.Errorf("after the end: running %t, %v", d.Running(), err)
		}
	}
	if left, err := Processes(selected); err != nil || len(left) > 0 {
		t.Errorf("processes remain: %v, %v", left, err)
	}
}

func TestLogTail(t *testing.T) {
	d := &Daemon{LogFile: filepath.Join(t.TempDir(), "log")}
	text := strings.Repeat("x", 2*logTailMax) + "the end\n"
	if err := os.WriteFile(d.LogFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := d.LogTail(); len(got) > logTailMax || !strings.HasSuffix(got, "the end") {
		t.Errorf("the tail has %d bytes and ends in %q", len(got), got[len(got)-10:])
	}
}

// stack is a stack of resources of which each pass removes one.
type stack struct {
	resources []string
	stuck     error
}

func (p *stack) Lines() []string { return slices.Clone(p.resources) }

func (p *stack) Remove() error {
	if p.stuck != nil {
		return p.stuck
	}
	p.resources = p.resources[1:]
	return nil
}

func TestSweepRepeatsUntilNothingIsFound(t *testing.T) {
	p := &stack{resources: []string{"process", "directory"}}
	if err := Sweep(func() (Leftovers, error) { return p, nil }); err != nil || len(p.resources) > 0 {
		t.Errorf("resources remain: %q, %v", p.resources, err)
	}
	blind := errors.New("no /proc")
	err := Sweep(func() (Leftovers, error) { return nil, blind })
	if !errors.Is(err, blind) {
		t.Errorf("error %v, want %v", err, blind)
	}
}
