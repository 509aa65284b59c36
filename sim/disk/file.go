package disk

import (
	"bytes"
	"path"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// File is an open file. It stays the same file when it is renamed or removed, and is lost with the
// power.
type File struct {
	disk *Disk
	node *node
	path string // by which it was opened
}

// storedBytesMax limits the stored content of a growing file: of a large log only the end is
// stored.
const storedBytesMax = 32 << 10

// Open opens a file for writing and creates it, with missing directories, if it does not exist. It
// panics if the path cannot be a file's, which is an error of the plan.
func (d *Disk) Open(p string) *File {
	if d.nodeAt(p) == nil {
		d.Write(p, nil)
	}
	n := d.nodeAt(p)
	if n == nil || n.kind != world.PathFile {
		panic("disk: " + p + " is no regular file")
	}
	return &File{disk: d, node: n, path: path.Clean(p)}
}

// Append grows the file by size bytes, of which tail are the last. Bytes that are not stored read
// as zeros.
func (f *File) Append(tail []byte, size int64) {
	n := f.node
	to := n.content
	to.modTime, to.size = f.disk.now(), n.size+size
	if int64(len(tail)) == size {
		tail = append(bytes.Clone(n.data), tail...)
	}
	to.data = bytes.Clone(tail[max(0, len(tail)-storedBytesMax):])
	f.disk.setContent(n, to)
}

// Write replaces the content and keeps mode and group.
func (f *File) Write(data []byte) {
	to := f.node.content
	to.modTime, to.data, to.size = f.disk.now(), data, int64(len(data))
	f.disk.setContent(f.node, to)
}

// Resize sets the size of the file, limited by the free space. The content is zeros.
func (f *File) Resize(size int64) {
	n := f.node
	free, isMemory := f.disk.freeMemory(f.path)
	if !isMemory {
		free, _ = f.disk.Room(f.path)
	}
	allocated := (n.size + blockSize - 1) / blockSize * blockSize
	if size > n.size && size-allocated > free {
		size = free + allocated
	}
	to := n.content
	to.modTime, to.data, to.size = f.disk.now(), nil, size
	f.disk.setContent(n, to)
	f.disk.opts.Truth.Add(truth.Fact{Time: f.disk.now(), Kind: truth.FileResized, Path: f.path,
		Bytes: size})
}

// Size returns the size of the file.
func (f *File) Size() int64 { return f.node.size }

// BeforeRead sets a function that runs before every read of the file or its size, so that a process
// that writes all the time can call Append only then.
func (f *File) BeforeRead(do func()) { f.node.beforeRead = do }

// catchUp lets the writer of a file append the bytes that are due.
func (n *node) catchUp() {
	if n.beforeRead != nil {
		n.beforeRead()
	}
}

// tail returns at most the last bytesMax bytes of a file.
func (n *node) tail(bytesMax int64) []byte {
	n.catchUp()
	if stored := int64(len(n.data)); stored < min(bytesMax, n.size) {
		zeros := make([]byte, min(bytesMax, n.size)-stored)
		return append(zeros, n.data...)
	}
	return n.data[max(0, int64(len(n.data))-bytesMax):]
}

// readAll returns the whole content of a file.
func (n *node) readAll() []byte {
	n.catchUp()
	return n.tail(n.size)
}
