package loopcsi

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func groupOf(path string) (uint32, error) {
	var stat unix.Stat_t
	err := unix.Stat(path, &stat)
	return stat.Gid, err
}

// reserve gives a file blocks of its file system, without writing them.
func reserve(file *os.File, size int64) error {
	return unix.Fallocate(int(file.Fd()), 0, 0, size)
}

// canExpandExt4 reports whether this process may expand a mounted ext4 file system. Root in a
// container or in a sandbox may not.
func canExpandExt4(t *testing.T) bool {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}
