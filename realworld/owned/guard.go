package owned

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

// guardEnv makes a process the guard of the directory it names, as in "node:/tmp/x".
const guardEnv = "SEEDLET_GUARD"

// Guard is the process that sweeps a directory after its owner has died.
//
// A process can be killed in the middle of a test (by a timeout, by kill -9) and then closes
// nothing. So its guard, this same executable started again with guardEnv set, waits for its
// standard input to end and then sweeps.
type Guard struct {
	cmd   *exec.Cmd
	alive io.WriteCloser // the guard's standard input; ends with this process
}

// BeGuard never returns if this process was started as a guard of that kind: it waits and sweeps.
// It must run before main or the tests do, so call it from init.
func BeGuard(kind string, sweep func(dir string) error) {
	of, dir, _ := strings.Cut(os.Getenv(guardEnv), ":")
	if of != kind {
		return
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the owner does, in whatever way
	if _, err := os.Lstat(dir); err == nil {
		_ = sweep(dir) // nobody is left to be told
	}
	os.Exit(0)
}

// StartGuard starts the guard of a directory. The kind is the one that BeGuard was called with.
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

// Dismiss ends the guard. Whatever remains at that moment, it sweeps.
func (g *Guard) Dismiss() {
	_ = g.alive.Close()
	_ = g.cmd.Wait() // it always exits with 0
}
