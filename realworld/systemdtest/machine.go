// Package systemdtest boots a private machine for tests: a container with a real systemd, D-Bus and
// logind, in which a test runs again.
//
// The contract:
//
//  1. The machine shows the files of this one, so that everything that is installed here is there.
//     What it writes stays in its memory, but for the report of UntilPowerOff. Its network and its
//     cgroups are its own.
//  2. All of its processes are in one cgroup. Close ends them and removes the cgroup and the
//     machine's directory; a guard process does the same if the test's process dies before.
//  3. It has the cgroup versions of this machine: in the hybrid layout, limits are of version 1.
//
// Start reading at Inside.
package systemdtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"seedlet.dev/realworld/cleanup"
	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/provision"
)

// Files that tests on systemd and D-Bus need, and the Debian packages that have them.
var packages = map[string]string{
	"/usr/bin/curl":           "curl",
	"/usr/bin/systemd-nspawn": "systemd-container",
	"/lib/systemd/systemd":    "systemd",
	"/usr/bin/dbus-daemon":    "dbus",
	"/usr/lib/python3/dist-packages/dbusmock/templates/logind.py": "python3-dbusmock",
}

// bootMax is how long a busy machine may take to boot.
const bootMax = 3 * time.Minute

// guardKind is the kind of a machine's guard process.
const guardKind = "machine"

func init() { cleanup.RunGuard(guardKind, sweep) }

// sweep ends all processes of the machine at dir, and removes its cgroups and dir itself.
func sweep(dir string) error {
	return errors.Join(nodetest.RemoveCgroups(dir), os.RemoveAll(dir))
}

// machine is a running machine.
type machine struct {
	dir    string
	daemon *cleanup.Daemon // systemd-nspawn
	guard  *cleanup.Guard
	leader string // the process that is process 1 of the machine

	options  []string // more arguments of systemd-nspawn
	diskDirs []string // directories of the machine that are on this machine's disk
}

// boot enters a new cgroup in every hierarchy, and starts systemd-nspawn on the files of this
// machine in a mount namespace of its own. The variables: $1 the cgroup, $2 the directory of the
// machine, and then more arguments of systemd-nspawn. /tmp and /run are its own. The copies of what
// other tests have mounted go at once: a volume cannot be detached from its device while another
// namespace has it mounted.
//
// systemd-nspawn mounts the hierarchies of version 1 read-only. They are writable before systemd
// starts, since systemd regards a slice as made although its cgroup could not be. runc needs keys
// of the kernel, which systemd-nspawn does not permit by itself.
const bootScript = `
for procs in /sys/fs/cgroup"$1"/cgroup.procs /sys/fs/cgroup/*"$1"/cgroup.procs; do
  if [ -e "$procs" ]; then echo $$ > "$procs" || exit 1; fi
done
shift
exec unshare --mount --propagation private sh -ec '
  dir=$1
  shift
  cut -d " " -f 5 /proc/self/mountinfo | grep -e "^$(dirname "$dir")/" -e "^/run/netns/" | tac |
    while read -r mounted; do umount --lazy "$mounted" || true; done
  mount --bind / "$dir/root"
  exec systemd-nspawn --quiet --directory="$dir/root" --volatile=overlay --register=no --keep-unit \
    --capability=all --system-call-filter="@keyring bpf" --private-network \
    --kill-signal=SIGRTMIN+3 --bind="$dir/shared:/shared" "$@" /bin/sh -c "
      for hierarchy in /sys/fs/cgroup/*/; do mount -o remount,bind,rw \$hierarchy; done
      exec /lib/systemd/systemd systemd.unit=basic.target systemd.wants=systemd-logind.service \
        systemd.mask=timers.target systemd.mask=avahi-daemon.socket"
' sh "$@"
`

// start boots a machine that has its options. After an error nothing is left.
func (m *machine) start(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "seedlet-machine-")
	if err != nil {
		return fmt.Errorf("making a directory: %w", err)
	}
	m.dir = dir
	if err := m.boot(ctx); err != nil {
		return errors.Join(err, m.close())
	}
	return nil
}

func (m *machine) boot(ctx context.Context) (err error) {
	if m.guard, err = cleanup.StartGuard(guardKind, m.dir); err != nil {
		return err
	}
	if err := nodetest.CreateCgroups(m.dir); err != nil {
		return err
	}
	for _, name := range []string{"root", "shared"} {
		if err := os.Mkdir(filepath.Join(m.dir, name), 0o755); err != nil {
			return fmt.Errorf("making a directory: %w", err)
		}
	}
	shared, err := sharedDirs(ctx)
	if err != nil {
		return err
	}
	options := m.options
	for _, path := range shared {
		options = append(options, "--bind="+path)
	}
	for i, dir := range m.diskDirs {
		source := filepath.Join(m.dir, fmt.Sprintf("disk%d", i))
		if err := os.Mkdir(source, 0o755); err != nil {
			return fmt.Errorf("making a directory: %w", err)
		}
		options = append(options, "--bind="+source+":"+dir)
	}
	m.daemon = &cleanup.Daemon{
		Program: "/bin/sh",
		Args: append([]string{"-c", bootScript, "sh", nodetest.CgroupRoot(m.dir), m.dir},
			options...),
		Env:     []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
		Dir:     "/",
		LogFile: filepath.Join(m.dir, "boot.log"),
	}
	if err := m.daemon.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bootMax)
	defer cancel()
	for !m.isRunning(ctx) {
		select {
		case <-m.daemon.Exited():
			return fmt.Errorf("systemd-nspawn has ended; it said\n%s", m.daemon.LogTail())
		case <-ctx.Done():
			return fmt.Errorf("the machine has not booted: %w; it said\n%s", ctx.Err(),
				m.daemon.LogTail())
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// sharedDirs returns the directories that a test needs wherever they are: the checkout, and what
// the go command keeps.
func sharedDirs(ctx context.Context) ([]string, error) {
	checkout, err := provision.Checkout()
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("asking go for its directories: %w", err)
	}
	return append(strings.Fields(string(out)), checkout), nil
}

// isRunning reports whether the machine has booted.
func (m *machine) isRunning(ctx context.Context) bool {
	if m.leader == "" {
		pid := fmt.Sprint(m.daemon.PID())
		children, err := os.ReadFile(filepath.Join("/proc", pid, "task", pid, "children"))
		if fields := strings.Fields(string(children)); err == nil && len(fields) == 1 {
			m.leader = fields[0]
		}
		name, err := os.ReadFile(filepath.Join("/proc", m.leader, "comm"))
		if err != nil || strings.TrimSpace(string(name)) != "systemd" {
			m.leader = "" // not yet
			return false
		}
	}
	out, err := m.command(ctx, "systemctl", "is-active", "basic.target", "systemd-logind.service").
		Output()
	return err == nil && bytes.Count(out, []byte("active\n")) == 2
}

// command returns a command that runs a program on the machine, outside its cgroups.
func (m *machine) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	args = append([]string{"--target", m.leader, "--all", "--", program}, args...)
	cmd := exec.CommandContext(ctx, "nsenter", args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}

// close shuts the machine down and removes it.
func (m *machine) close() error {
	if m.daemon != nil {
		m.daemon.Stop()
	}
	err := sweep(m.dir)
	if m.guard != nil {
		m.guard.Dismiss()
	}
	if err != nil {
		return fmt.Errorf("removing the machine at %s: %w", m.dir, err)
	}
	return nil
}
