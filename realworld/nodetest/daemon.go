package nodetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// logTailMax is how much of containerd's log an error shows, in bytes.
const logTailMax = 2000

// daemon is the containerd process of a node.
type daemon struct {
	tools   tools
	dir     string
	logFile string
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process has ended and is collected
}

func newDaemon(t tools, dir string) *daemon {
	return &daemon{tools: t, dir: dir, logFile: logPath(dir)}
}

// start starts the process. It gets a process group of its own, so that a Ctrl-C on the terminal
// does not take the runtime away before the pods have ended in order.
func (d *daemon) start() error {
	log, err := os.OpenFile(d.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("opening containerd's log: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own copy
	cmd := exec.Command(d.tools.containerd, "--config", configPath(d.dir))
	cmd.Env = []string{"PATH=" + d.tools.shimDir + ":" + filepath.Dir(d.tools.runc) +
		":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	cmd.Dir = d.dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting containerd: %w", err)
	}
	d.cmd, d.exited = cmd, make(chan struct{})
	go func(exited chan struct{}) {
		_ = cmd.Wait() // how it ended is in its log
		close(exited)
	}(d.exited)
	return nil
}

func (d *daemon) running() bool {
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

// kill ends the process at once and waits until it is gone.
func (d *daemon) kill() error {
	if !d.running() {
		return nil
	}
	if err := d.cmd.Process.Kill(); err != nil && d.running() {
		return fmt.Errorf("killing containerd: %w", err)
	}
	<-d.exited
	return nil
}

// stop asks the process to end and kills it when it does not.
func (d *daemon) stop() {
	if !d.running() {
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM) // the kill below is for when this fails
	select {
	case <-d.exited:
	case <-time.After(daemonMax):
		_ = d.kill() // what then remains, the sweep reports
	}
}

// logTail is the end of containerd's log, for errors.
func (d *daemon) logTail() string {
	data, err := os.ReadFile(d.logFile)
	if err != nil {
		return err.Error()
	}
	if len(data) > logTailMax {
		data = data[len(data)-logTailMax:]
	}
	return strings.TrimSpace(string(data))
}
