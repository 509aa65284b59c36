package runtime

import (
	"path"
	"strings"
	"time"
)

// FileWrite is that a process makes a file as large as it says.
type FileWrite struct {
	Path  string        // in the container; one that no mount has does not count
	At    time.Duration // since the start of the process
	Bytes int64
}

// write has a process write its files when it comes to that.
func (r *Runtime) write(c *container) {
	for _, w := range c.script.Writes {
		if at := c.onNode(w.Path); at != "" && r.opts.OpenFile != nil {
			r.after(w.At, func() {
				if c.State == running {
					r.opts.OpenFile(at).Resize(w.Bytes)
				}
			})
		}
	}
}

// onNode is where on the node a path of a container is; empty if it is in its own file system, or
// in an image.
func (c *container) onNode(p string) string {
	longest, at := "", ""
	for _, m := range c.config.Mounts {
		rest, below := strings.CutPrefix(p, m.ContainerPath+"/")
		if below && m.HostPath != "" && len(m.ContainerPath) > len(longest) {
			longest, at = m.ContainerPath, path.Join(m.HostPath, rest)
		}
	}
	return at
}
