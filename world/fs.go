package world

import "time"

// The file system port. Paths are absolute. Every effect but Watch is answered once.

// ReadFiles reads a file, or every regular file directly in a directory, in the order of their
// names. Answered by FilesRead; a path that does not exist is KindNotFound.
type ReadFiles struct {
	Path     string `json:"path"`
	FilesMax int    `json:"filesMax"` // a directory with more is KindExhausted
	BytesMax int64  `json:"bytesMax"` // a file with more has an Err of KindExhausted
}

// FilesRead answers ReadFiles.
type FilesRead struct {
	Directory bool   `json:"directory"` // whether the path is a directory
	Files     []File `json:"files"`
}

// File is one file's content, or why it could not be read.
type File struct {
	Name string `json:"name"` // the last element of its path
	Data []byte `json:"data,omitempty"`
	Err  *Error `json:"err,omitempty"`
}

// ListDir lists a directory. Answered by DirListed.
type ListDir struct {
	Path string `json:"path"`
}

// DirListed answers ListDir, in the order of the names.
type DirListed struct {
	Entries []DirEntry `json:"entries"`
}

// DirEntry is one name in a directory.
type DirEntry struct {
	Name      string    `json:"name"`
	Directory bool      `json:"directory"`
	ModTime   time.Time `json:"modTime"`
}

// MakeDir makes a directory and its parents; one that exists already is success. Answered by Done.
type MakeDir struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"` // permission bits
}

// WriteFile replaces a file so that a reader, and the disk after a power cut, holds either the
// old content or the new one, never a mixture. Answered by Done once it is on the disk.
type WriteFile struct {
	Path string `json:"path"`
	Data []byte `json:"data"`
	Mode uint32 `json:"mode"` // permission bits
}

// RemoveTree removes a file, or a directory with everything in it, without following links and
// without crossing into another mount. A path that does not exist is success. Answered by Done.
type RemoveTree struct {
	Path string `json:"path"`
}

// Done answers an operation that has nothing to tell but that it was done.
type Done struct{}

// Watch asks to be told by FileChanged when the file, or anything directly in the directory,
// may have changed. It is a statement: a world that cannot watch says nothing, and the core polls.
type Watch struct {
	Path string `json:"path"`
}

// FileChanged says that something at or directly below a watched path may have changed. It may
// be late, doubled or lost.
type FileChanged struct {
	Path string `json:"path"` // the path that was watched
}
