package disk_test

import (
	"os"
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
	parity.FileSystem(t, folder{World: w, dir: t.TempDir()})
}
