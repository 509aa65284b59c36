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

	"seedlet.dev/realworld/porttest"
)

// kubectlProcess is a running kubectl.
type kubectlProcess struct {
	stdin    io.WriteCloser
	stdout   syncBuffer
	stderr   syncBuffer
	cmd      *exec.Cmd
	done     chan struct{}
	terminal *os.File // nil for pipes
}

// syncBuffer is a buffer that can be read while it is written.
type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// startKubectl starts a kubectl whose standard input stays open. The end of the test kills it.
func (c *clusterSuite) startKubectl(t *testing.T, args ...string) *kubectlProcess {
	t.Helper()
	cmd := c.cluster.KubectlCommand(t.Context(), append([]string{"-n", testNamespace}, args...)...)
	s := &kubectlProcess{cmd: cmd, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &s.stdout, &s.stderr
	var err error
	if s.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	s.start(t)
	return s
}

// startKubectlAtTerminal is startKubectl for a kubectl at a terminal of 100 columns and 30 rows.
func (c *clusterSuite) startKubectlAtTerminal(t *testing.T, args ...string) *kubectlProcess {
	t.Helper()
	ptmx, pts := openPTY(t)
	resizePTY(t, ptmx, 100, 30)
	cmd := c.cluster.KubectlCommand(t.Context(), append([]string{"-n", testNamespace}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = pts, pts, pts
	// With a controlling terminal kubectl gets SIGWINCH when the size changes.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s := &kubectlProcess{cmd: cmd, done: make(chan struct{}), stdin: ptmx, terminal: ptmx}
	s.start(t)
	_ = pts.Close()                                 // kubectl has its own file descriptor
	go func() { _, _ = io.Copy(&s.stdout, ptmx) }() // ends with kubectl
	return s
}

func (s *kubectlProcess) start(t *testing.T) {
	t.Helper()
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = s.cmd.Wait() // ProcessState has the exit code
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // fails if kubectl has exited, as it mostly has
		<-s.done
	})
}

func (s *kubectlProcess) writeInput(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(s.stdin, text); err != nil {
		t.Fatalf("%v; %s", err, s)
	}
}

// waitOutput waits until the standard output of kubectl contains a text.
func (s *kubectlProcess) waitOutput(t *testing.T, text string) {
	t.Helper()
	s.waitUntil(t, "output contains "+text, func() bool {
		return strings.Contains(s.stdout.String(), text)
	})
}

func (s *kubectlProcess) waitUntil(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(porttest.Patience); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s; %s", porttest.Patience, condition, s)
		}
	}
}

// waitExitCode waits until kubectl has exited, and returns its exit code.
func (s *kubectlProcess) waitExitCode(t *testing.T) int {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(porttest.Patience):
		t.Fatalf("kubectl has not exited within %v; %s", porttest.Patience, s)
	}
	return s.cmd.ProcessState.ExitCode()
}

// String returns the arguments and the output of kubectl, for messages of failures.
func (s *kubectlProcess) String() string {
	stdout, stderr := s.stdout.String(), s.stderr.String()
	return strings.Join(s.cmd.Args[1:], " ") + ": stdout ends with\n" +
		stdout[max(0, len(stdout)-1000):] + "\nstderr is\n" + stderr
}

// runKubectl runs a kubectl without input, and returns its output and its exit code.
func (c *clusterSuite) runKubectl(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	s := c.startKubectl(t, args...)
	if err := s.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Fatal(err)
	}
	code = s.waitExitCode(t)
	return s.stdout.String(), s.stderr.String(), code
}

// checkKubectlFails checks that a kubectl exits with 1 and an error message that contains a text.
func (c *clusterSuite) checkKubectlFails(t *testing.T, message string, args ...string) {
	t.Helper()
	stdout, stderr, code := c.runKubectl(t, args...)
	if code != 1 || !strings.Contains(stderr, message) {
		t.Errorf("%s: code %d, %.300q, %q; want 1, %q", strings.Join(args, " "), code, stdout, stderr,
			message)
	}
}
