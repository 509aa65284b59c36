package disk

import (
	"bytes"
	"path"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// File is a file that a process has open: it stays the same when it is renamed or removed, and is
// lost when the power goes.
type File struct {
	disk *Disk
	node *node
	path string // at which it was opened
}

// dataMax bounds how much of a growing file is kept: a log of megabytes is known by its end.
const dataMax = 32 << 10

// Open opens a file to write, and makes it, with missing directories, if it is not there. It
// panics if the path cannot be a file's: that is a mistake in the plan.
func (d *Disk) Open(p string) *File {
	if d.at(p) == nil {
		d.Write(p, nil)
	}
	n := d.at(p)
	if n == nil || n.kind != world.PathFile {
		panic("disk: " + p + " is no regular file")
	}
	return &File{disk: d, node: n, path: path.Clean(p)}
}

// Append has the file grow by size bytes, of which tail are the last. What is between is not
// kept; it reads as zeros.
func (f *File) Append(tail []byte, size int64) {
	n := f.node
	to := n.content
	to.modTime, to.size = f.disk.now(), n.size+size
	if int64(len(tail)) == size {
		tail = append(bytes.Clone(n.data), tail...)
	}
	to.data = bytes.Clone(tail[max(0, len(tail)-dataMax):])
	f.disk.alter(n, to)
}

// Write replaces the content. It keeps mode and group.
func (f *File) Write(data []byte) {
	to := f.node.content
	to.modTime, to.data, to.size = f.disk.now(), data, int64(len(data))
	f.disk.alter(f.node, to)
}

// Resize has the file be of a size, of zeros, as far as there is space for it in memory.
func (f *File) Resize(size int64) {
	n := f.node
	if room, bounded := f.disk.room(f.path); bounded {
		own := (n.size + blockSize - 1) / blockSize * blockSize
		size = min(size, room+own)
	}
	to := n.content
	to.modTime, to.data, to.size = f.disk.now(), nil, size
	f.disk.alter(n, to)
	f.disk.opts.Truth.Add(truth.Fact{Time: f.disk.now(), Kind: truth.FileSized, Path: f.path,
		Bytes: size})
}

// Size is how large the file is.
func (f *File) Size() int64 { return f.node.size }

// BeforeRead has do run whenever somebody is about to look at the file or its size, so that a
// process that writes all the time can Append only then.
func (f *File) BeforeRead(do func()) { f.node.grow = do }

// catchUp has a file's writer append what it has written by now.
func (n *node) catchUp() {
	if n.grow != nil {
		n.grow()
	}
}

// tail is the end of a file, of most bytes.
func (n *node) tail(most int64) []byte {
	n.catchUp()
	if known := int64(len(n.data)); known < min(most, n.size) {
		zeros := make([]byte, min(most, n.size)-known)
		return append(zeros, n.data...)
	}
	return n.data[max(0, int64(len(n.data))-most):]
}

// whole is the content of a file from its beginning.
func (n *node) whole() []byte {
	n.catchUp()
	return n.tail(n.size)
}
