package owned

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
	logTailMax = 2000             // how much of a daemon's log an error shows, in bytes
	stopMax    = 10 * time.Second // for a daemon to end when asked to
)

// Daemon is a program that runs in the background, with its output in a file. It can be started
// again after it has ended. Its methods are for one goroutine; Exited is for any.
type Daemon struct {
	Program string   // a path
	Args    []string // without the program's name; one names the owner's directory
	Env     []string
	Dir     string // where it runs
	LogFile string // its output, over all its lives

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended and is collected
}

// Start starts the process. It gets a process group of its own, so that a Ctrl-C on the terminal
// does not take it away before those who need it have ended in order.
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
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}(d.exited)
	return nil
}

func (d *Daemon) name() string { return filepath.Base(d.Program) }

// Exited is closed when the process that was started last has ended; nil before the first start.
func (d *Daemon) Exited() <-chan struct{} { return d.exited }

// Pid is the process that was started last, or zero.
func (d *Daemon) Pid() int {
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

// Kill ends the process at once and waits until it is gone.
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

// Stop asks the process to end and kills it when it does not.
func (d *Daemon) Stop() {
	if !d.Running() {
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // the kill below is for when this fails
	select {
	case <-d.exited:
	case <-time.After(stopMax):
		_ = d.Kill() // what then remains, the sweep reports
	}
}

// LogTail is the end of the daemon's log, for errors.
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
