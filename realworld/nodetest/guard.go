package nodetest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// guardEnv makes a process the guard of the node directory it names.
const guardEnv = "SEEDLET_NODE_GUARD"

// A process can be killed in the middle of a test (by a timeout, by kill -9) and then closes
// nothing. So every node has a guard: this same executable, started again with guardEnv set,
// which waits for its standard input to end and then sweeps. It must run before main or the
// tests do, hence the init.
func init() {
	dir := os.Getenv(guardEnv)
	if dir == "" {
		return
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	_, _ = io.Copy(io.Discard, os.Stdin) // ends when the owner does, in whatever way
	if _, err := os.Lstat(dir); err == nil {
		_ = sweep(dir) // nobody is left to be told
	}
	os.Exit(0)
}

// guard is the process that sweeps a node's directory after its owner has died.
type guard struct {
	cmd   *exec.Cmd
	alive io.WriteCloser // the guard's standard input; ends with this process
}

func startGuard(dir string) (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{guardEnv + "=" + dir, "PATH=" + os.Getenv("PATH")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	alive, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard: %w", err)
	}
	return &guard{cmd: cmd, alive: alive}, nil
}

// dismiss ends the guard. Whatever remains of the node at that moment, it sweeps.
func (g *guard) dismiss() {
	_ = g.alive.Close()
	_ = g.cmd.Wait() // it always exits with 0
}
