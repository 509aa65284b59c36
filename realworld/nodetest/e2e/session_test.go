package e2e

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// session is a kubectl that runs.
type session struct {
	in       io.WriteCloser
	out      spool
	problems spool
	cmd      *exec.Cmd
	ended    chan struct{}
	terminal *os.File // nil for pipes
}

// spool keeps what is written, and shows it at any time.
type spool struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *spool) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *spool) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// begin starts a kubectl whose input stays open. It ends with the test at the latest.
func (c *town) begin(t *testing.T, args ...string) *session {
	t.Helper()
	cmd := c.cluster.Command(t.Context(), append([]string{"-n", townNamespace}, args...)...)
	s := &session{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &s.out, &s.problems
	var err error
	if s.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	return s
}

// beginAtTerminal is begin for a kubectl at a terminal of 100 by 30.
func (c *town) beginAtTerminal(t *testing.T, args ...string) *session {
	t.Helper()
	ours, theirs := openTerminal(t)
	resizeTerminal(t, ours, 100, 30)
	cmd := c.cluster.Command(t.Context(), append([]string{"-n", townNamespace}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = theirs, theirs, theirs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that it is told of sizes
	s := &session{cmd: cmd, ended: make(chan struct{}), in: ours, terminal: ours}
	s.start(t)
	_ = theirs.Close()                           // kubectl has its own
	go func() { _, _ = io.Copy(&s.out, ours) }() // ends with kubectl
	return s
}

func (s *session) start(t *testing.T) {
	t.Helper()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // its state tells
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has mostly ended by itself
		<-s.ended
	})
}

func (s *session) write(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(s.in, text); err != nil {
		t.Fatalf("%v; %s", err, s)
	}
}

// shows waits until kubectl has written something.
func (s *session) shows(t *testing.T, text string) {
	t.Helper()
	s.until(t, "shows "+text, func() bool { return strings.Contains(s.out.String(), text) })
}

func (s *session) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(late); !is(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s; %s", late, what, s)
		}
	}
}

// code waits until kubectl has ended, and is its exit code.
func (s *session) code(t *testing.T) int {
	t.Helper()
	select {
	case <-s.ended:
	case <-time.After(late):
		t.Fatalf("it goes on; %s", s)
	}
	return s.cmd.ProcessState.ExitCode()
}

// String is for failures.
func (s *session) String() string {
	out, problems := s.out.String(), s.problems.String()
	return strings.Join(s.cmd.Args[1:], " ") + " has written\n" + out[max(0, len(out)-1000):] +
		"\nand of problems\n" + problems
}

// tried is what a kubectl without input writes, and its exit code.
func (c *town) tried(t *testing.T, args ...string) (out, problems string, code int) {
	t.Helper()
	s := c.begin(t, args...)
	if err := s.in.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	code = s.code(t)
	return s.out.String(), s.problems.String(), code
}

// fails sees that a kubectl ends with 1, and with words of the reason.
func (c *town) fails(t *testing.T, why string, args ...string) {
	t.Helper()
	out, problems, code := c.tried(t, args...)
	if code != 1 || !strings.Contains(problems, why) {
		t.Errorf("%s: code %d, %.300q, %q; want 1, %q", strings.Join(args, " "), code, out, problems,
			why)
	}
}
