package disk_test

import (
	"testing"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world/parity"
)

// folder is a parity.Disk on the real file system.
type folder struct {
	*porttest.World
	dir string
}

func (f folder) Dir() string { return f.dir }

func TestParity(t *testing.T) {
	w := porttest.New()
	port := disk.New(disk.Options{Clock: w.Clock, Deliver: w.Deliver, Warn: func(problem string) {
		t.Errorf("the port warns: %s", problem)
	}})
	t.Cleanup(port.Close)
	w.Port = port
	parity.FileSystem(t, folder{World: w, dir: t.TempDir()})
}
