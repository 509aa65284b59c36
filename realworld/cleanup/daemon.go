package cleanup

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	logTailMax = 2000             // bytes of a daemon's log in an error
	stopMax    = 10 * time.Second // for a daemon to end after SIGTERM
)

// Daemon is a program that runs in the background, with its output in a file. It can be started
// again after it has ended. Its methods are for one goroutine; Exited is for any.
type Daemon struct {
	Program string   // a path
	Args    []string // without the program's name; one contains the owner's directory
	Env     []string
	Dir     string // the working directory
	LogFile string // the output of all runs

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has been waited for
}

// Start starts the process. It has its own process group, so that a Ctrl-C on the terminal does not
// end it before the processes that need it have ended in order.
func (d *Daemon) Start() error {
	log, err := os.OpenFile(d.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", d.name(), err)
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	cmd := exec.Command(d.Program, d.Args...)
	cmd.Env, cmd.Dir = d.Env, d.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", d.name(), err)
	}
	d.cmd, d.exited = cmd, make(chan struct{})
	go func(exited chan struct{}) {
		_ = cmd.Wait() // the log has the reason
		close(exited)
	}(d.exited)
	return nil
}

func (d *Daemon) name() string { return filepath.Base(d.Program) }

// Exited is closed when the last started process has ended; nil before the first start.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// PID returns the last started process, or zero.
func (d *Daemon) PID() int {
	if d.cmd == nil {
		return 0
	}
	return d.cmd.Process.Pid
}

// Running reports whether the process runs.
func (d *Daemon) Running() bool {
	if d.cmd == nil {
		return false
	}
	select {
	case <-d.exited:
		return false
	default:
		return true
	}
}

// Kill kills the process and waits until it has ended.
func (d *Daemon) Kill() error {
	if !d.Running() {
		return nil
	}
	if err := d.cmd.Process.Kill(); err != nil && d.Running() {
		return fmt.Errorf("killing %s: %w", d.name(), err)
	}
	<-d.exited
	return nil
}

// Stop terminates the process, and kills it if that takes too long.
func (d *Daemon) Stop() {
	if !d.Running() {
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // if this fails, the process is killed below
	select {
	case <-d.exited:
	case <-time.After(stopMax):
		_ = d.Kill() // if this fails, the sweep reports the process
	}
}

// LogTail returns the end of the daemon's log, for errors.
func (d *Daemon) LogTail() string {
	data, err := os.ReadFile(d.LogFile)
	if err != nil {
		return err.Error()
	}
	if len(data) > logTailMax {
		data = data[len(data)-logTailMax:]
	}
	return strings.TrimSpace(string(data))
}
