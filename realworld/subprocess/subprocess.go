// Package subprocess runs programs that may hang, leave others behind, or write without end.
package subprocess

import (
	"bytes"
	"errors"
	"os/exec"
	"syscall"
	"time"
)

// waitDelay is how long the pipes of a program that was killed may stay open.
const waitDelay = 2 * time.Second

// Run runs a command of exec.CommandContext as exec.Cmd.Run does, in a process group of its own,
// which is killed when the context of the command ends. A program that has succeeded counts as such
// if what it has started holds its output.
func Run(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = waitDelay
	err := cmd.Run()
	if errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
		return nil
	}
	return err
}

// Buffer is a writer that keeps the first Max bytes of what is written, and accepts the rest.
type Buffer struct {
	Max   int
	IsCut bool // more was written
	text  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(data []byte) (int, error) {
	room := max(b.Max-b.text.Len(), 0)
	b.IsCut = b.IsCut || len(data) > room
	b.text.Write(data[:min(len(data), room)])
	return len(data), nil
}

// Bytes returns what is kept.
func (b *Buffer) Bytes() []byte { return b.text.Bytes() }

// String returns what is kept, as text.
func (b *Buffer) String() string { return b.text.String() }
