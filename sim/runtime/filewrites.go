package runtime

import (
	"hash/fnv"
	"math"
	"path"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// FileWrite sets a file of a process to a size, or makes a tree.
type FileWrite struct {
	Path  string        // in the container; in no mount: in its writable layer
	At    time.Duration // since the start of the process
	Bytes int64
	Names int64 // not zero: the path becomes a deep tree with so many names
	// OwnFiles makes each of the names an empty file of its own; they are of one file otherwise.
	OwnFiles bool
}

// scheduleWrites schedules the file writes of a process.
func (r *Runtime) scheduleWrites(c *container) {
	for _, w := range c.script.Writes {
		hostPath, isMount := c.nodePath(w.Path)
		if hostPath == "" && isMount || r.opts.OpenFile == nil {
			continue
		}
		r.after(w.At, func() {
			switch {
			case c.State != running:
			case !isMount:
				r.writeLayer(c, w.Path, w.Bytes)
			case w.Names > 0:
				r.opts.GrowTree(hostPath, w.Names, w.OwnFiles)
			default:
				r.opts.OpenFile(hostPath).Resize(w.Bytes)
			}
		})
	}
}

// nodePath returns the path on the node of a path in the container; empty if the path is in an
// image, or in no mount.
func (c *container) nodePath(p string) (hostPath string, isMount bool) {
	longest := ""
	for _, m := range c.config.Mounts {
		rest, isBelow := strings.CutPrefix(p, m.ContainerPath+"/")
		if isBelow && len(m.ContainerPath) > len(longest) {
			longest, hostPath = m.ContainerPath, ""
			if m.HostPath != "" {
				hostPath = path.Join(m.HostPath, rest)
			}
		}
	}
	return hostPath, longest != ""
}

// writeLayer sets the size of a file in the writable layer of a container, limited by the free
// space. The layer stays until the container is removed.
func (r *Runtime) writeLayer(c *container, name string, bytes int64) {
	if c.layer == nil {
		c.layer = map[string]int64{}
	}
	if before := c.layer[name]; bytes > before { // the free space may be the largest number there is
		bytes = before + min(bytes-before, r.room(r.layerDirectory()))
	}
	c.layer[name] = bytes
	r.recordFact(c, truth.Fact{Kind: truth.LayerResized, Bytes: c.layerBytes()})
}

// room returns how many bytes fit into the file system of a directory.
func (r *Runtime) room(dir string) int64 {
	if r.opts.Room == nil {
		return math.MaxInt64
	}
	return r.opts.Room(dir)
}

func (c *container) layerBytes() int64 {
	sum := int64(0)
	for _, bytes := range c.layer { //ordered: a sum
		sum += bytes
	}
	return sum
}

// collectionMax bounds how long after the removal of a container its writable layer is freed.
const collectionMax = 8 * time.Second

// freeLayerLater frees the writable layer of a removed container. The garbage collector of
// containerd does it, which runs a second after the last collection, or fifty times as long as one
// takes (pause_threshold of its scheduler).
func (r *Runtime) freeLayerLater(c *container) {
	if len(c.layer) == 0 {
		return
	}
	hash := fnv.New64a()
	hash.Write([]byte(c.ID))
	r.garbage = append(r.garbage, c)
	r.after(time.Duration(hash.Sum64()%uint64(collectionMax)), func() {
		r.garbage = slices.DeleteFunc(r.garbage, func(g *container) bool { return g == c })
		r.recordFact(c, truth.Fact{Kind: truth.LayerFreed, Bytes: c.layerBytes()})
	})
}

// layerUsage returns what the runtime reports of the writable layer of a container in a directory.
func (c *container) layerUsage(at int64, directory string) *runtimeapi.FilesystemUsage {
	return &runtimeapi.FilesystemUsage{Timestamp: at,
		FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: directory},
		UsedBytes:  &runtimeapi.UInt64Value{Value: uint64(c.layerBytes())},
		InodesUsed: &runtimeapi.UInt64Value{Value: uint64(len(c.layer))}}
}
