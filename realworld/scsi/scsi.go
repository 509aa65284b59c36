// Package scsi carries out the effects of the SCSI port: it runs iscsiadm, and reads and changes
// sysfs.
//
// The contract: Do never blocks; every effect is completed by exactly one event. A command that
// runs at its deadline is killed with all processes of its group; iscsid, which it talks to, may go
// on. A write to sysfs cannot be ended, and completes when the kernel has done it; only a scan of a
// host is left alone at its deadline, and until it has ended no other one of that host starts.
// Passwords are in no error and in no output. Start reading at Port; sysfs.go has what is read of
// the kernel, fc.go the same of fibre channel, scans.go how disks are looked for, remove.go how
// they go, inuse.go what keeps them.
package scsi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/inflight"
	"seedlet.dev/realworld/subprocess"
	"seedlet.dev/world"
)

// Options configure a Port.
type Options struct {
	Clock   clock.Clock
	Deliver func(world.Event) // receives the completions; called from many goroutines
	// Sys and Dev are the directories of sysfs and of devices; empty: /sys and /dev. Swaps is the file
	// that lists swap devices, Mounts that of mounts; empty: /proc/swaps and /proc/self/mountinfo.
	Sys, Dev, Swaps, Mounts string
}

// Port is a world.Port for disks of a network. Close it when done.
type Port struct {
	operations *inflight.Operations
	kernel     kernel
}

// New returns a port.
func New(opts Options) *Port {
	p := &Port{operations: inflight.New(opts.Clock, opts.Deliver),
		kernel: kernel{cmp.Or(opts.Sys, "/sys"), cmp.Or(opts.Dev, "/dev"),
			cmp.Or(opts.Swaps, "/proc/swaps"), cmp.Or(opts.Mounts, "/proc/self/mountinfo"), &scans{}}}
	return p
}

// Do implements world.Port.
func (p *Port) Do(eff world.Effect) { p.operations.Start(eff, p.carryOut) }

// Close cancels the operations in flight and waits until they have ended. Do must not be called
// after it.
func (p *Port) Close() { p.operations.Close() }

func (p *Port) carryOut(ctx context.Context, request any) (any, *world.Error) {
	var body any = &world.Done{}
	var err error
	switch m := request.(type) {
	case *world.RunISCSIAdm:
		return run(ctx, m)
	case *world.FindSCSIDisks:
		body, err = p.kernel.find(m)
	case *world.ScanSCSIHost:
		err = p.kernel.scan(ctx, m)
	case *world.ScanSCSIHosts:
		err = p.kernel.scanAll(ctx, &m.Unit)
	case *world.RemoveSCSIDisks:
		err = p.kernel.remove(ctx, m)
	default:
		panic(fmt.Sprintf("scsi: cannot carry out %T", request))
	}
	if err != nil {
		return nil, inflight.ToWorldError(ctx, world.CallName(request), err, world.KindInternal)
	}
	return body, nil
}

// program is the program that controls the initiator.
const program = "iscsiadm"

// run runs a command.
func run(ctx context.Context, m *world.RunISCSIAdm) (any, *world.Error) {
	args := m.Args
	if m.Password != "" {
		args = append(append([]string(nil), args...), m.Password)
	}
	output, code, err := execute(ctx, program, args...)
	if m.Password != "" {
		output = strings.ReplaceAll(output, m.Password, "[redacted]")
	}
	call := world.CallName(m)
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return nil, world.Errorf(world.KindNotFound, call, "%v", err)
	case ctx.Err() != nil:
		return nil, world.Errorf(world.KindTimeout, call, "%s was killed, as it did not end: %v", program,
			ctx.Err())
	case err != nil: // it has no exit code
		return nil, world.Errorf(world.KindInternal, call, "%s: %v", program, errors.Unwrap(err))
	}
	return &world.ISCSIAdmRan{ExitCode: code, Output: output}, nil
}

// execute executes a program, and returns the beginning of its output and its exit code.
func execute(ctx context.Context, name string, args ...string) (output string, code int,
	err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	text := &subprocess.Buffer{Max: world.ISCSIOutputBytesMax}
	cmd.Stdout, cmd.Stderr = text, text
	err = subprocess.Run(cmd)
	output = strings.ToValidUTF8(text.String(), "?")
	if exited, isExit := errors.AsType[*exec.ExitError](err); isExit && exited.Exited() {
		return output, exited.ExitCode(), nil
	}
	return output, 0, err
}
