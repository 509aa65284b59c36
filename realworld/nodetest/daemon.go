package nodetest

import (
	"path/filepath"

	"seedlet.dev/realworld/cleanup"
)

// newDaemon returns the containerd process of a node, not yet started.
func newDaemon(t tools, dir string) *cleanup.Daemon {
	return &cleanup.Daemon{
		Program: t.containerd,
		Args:    []string{"--config", configPath(dir)},
		Env: []string{"PATH=" + t.shimDir + ":" + filepath.Dir(t.runc) +
			":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		Dir:     dir,
		LogFile: logPath(dir),
	}
}
