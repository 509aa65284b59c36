package cleanup

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// guardEnv makes a process the guard of the directory in its value, as in "node:/tmp/x".
const guardEnv = "SEEDLET_GUARD"

// Guard is a process that sweeps a directory after the directory's owner has died.
//
// A process can be killed during a test (by a timeout, by kill -9), and then runs no cleanup. So
// its guard, this same executable started again with guardEnv set, waits for the end of its
// standard input and then sweeps.
type Guard struct {
	cmd   *exec.Cmd
	alive io.WriteCloser // the guard's standard input; closed when this process ends
}

// RunGuard never returns if this process was started as a guard of the kind: it waits and sweeps.
// It must run before main and the tests, so it is called from an init function.
func RunGuard(kind string, sweep func(dir string) error) {
	guardKind, dir, _ := strings.Cut(os.Getenv(guardEnv), ":")
	if guardKind != kind {
		return
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the owner does, for any reason
	if _, err := os.Lstat(dir); err == nil {
		_ = sweep(dir) // there is no process to report to
	}
	os.Exit(0)
}

// StartGuard starts the guard of a directory. Its kind selects the RunGuard call that sweeps.
func StartGuard(kind, dir string) (*Guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{guardEnv + "=" + kind + ":" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	return &Guard{cmd: cmd, alive: alive}, nil
}

// Dismiss ends the guard, which first sweeps.
func (g *Guard) Dismiss() {
	_ = g.alive.Close()
	_ = g.cmd.Wait() // it always exits with 0
}
