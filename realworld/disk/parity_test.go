package disk_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
	"seedlet.dev/world/parity"
)

// folder is a parity.Disk on the real file system.
type folder struct {
	*porttest.World
	dir string
	t   *testing.T
}

// BlockDevice attaches a loop device to an empty file.
func (f folder) BlockDevice() string {
	file, err := os.CreateTemp(f.t.TempDir(), "device")
	if err == nil {
		err = errors.Join(file.Truncate(32<<20), file.Close())
	}
	if err != nil {
		f.t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file.Name()).CombinedOutput()
	if err != nil {
		f.t.Skipf("no loop device: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	f.t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			f.t.Errorf("detaching %s: %v: %s", device, err, out)
		}
	})
	return device
}

func (f folder) Dir() string { return f.dir }

func (f folder) ModeAndGroup(path string) (mode uint32, gid int64) {
	var stat syscall.Stat_t
	if err := syscall.Lstat(path, &stat); err != nil {
		return 0, -1
	}
	return stat.Mode & 0o7777, int64(stat.Gid)
}

func (f folder) Owner(path string) int64 {
	var stat syscall.Stat_t
	if err := syscall.Lstat(path, &stat); err != nil {
		return -1
	}
	return int64(stat.Uid)
}

func (f folder) AgentUID() int64 { return int64(os.Geteuid()) }

func (f folder) MakeSpecial(path string, kind world.PathKind) {
	mode := uint32(syscall.S_IFIFO)
	if kind == world.PathSocket {
		mode = syscall.S_IFSOCK
	}
	if err := syscall.Mknod(path, mode|0o644, 0); err != nil {
		panic(err)
	}
}

func TestParity(t *testing.T) {
	w := porttest.New()
	port := disk.New(disk.Options{Clock: w.Clock, Deliver: w.Deliver, Warn: func(problem string) {
		t.Errorf("unexpected warning: %s", problem)
	}})
	t.Cleanup(port.Close)
	w.Port = port
	parity.FileSystem(t, folder{World: w, dir: t.TempDir(), t: t})
}
