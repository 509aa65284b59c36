package runtime

import (
	"path"
	"strings"
	"time"
)

// FileWrite sets a file of a process to a size, or makes a tree.
type FileWrite struct {
	Path  string        // in the container; ignored if it is in no mount
	At    time.Duration // since the start of the process
	Bytes int64
	Names int64 // not zero: the path becomes a deep tree with so many names
}

// scheduleWrites schedules the file writes of a process.
func (r *Runtime) scheduleWrites(c *container) {
	for _, w := range c.script.Writes {
		if hostPath := c.nodePath(w.Path); hostPath != "" && r.opts.OpenFile != nil {
			r.after(w.At, func() {
				switch {
				case c.State != running:
				case w.Names > 0:
					r.opts.GrowTree(hostPath, w.Names)
				default:
					r.opts.OpenFile(hostPath).Resize(w.Bytes)
				}
			})
		}
	}
}

// nodePath returns the path on the node of a path in the container; empty if the path is in the
// container's own file system or in an image.
func (c *container) nodePath(p string) string {
	longest, hostPath := "", ""
	for _, m := range c.config.Mounts {
		rest, isBelow := strings.CutPrefix(p, m.ContainerPath+"/")
		if isBelow && m.HostPath != "" && len(m.ContainerPath) > len(longest) {
			longest, hostPath = m.ContainerPath, path.Join(m.HostPath, rest)
		}
	}
	return hostPath
}
