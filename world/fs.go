package world

import "time"

// The file system port. Paths are absolute. Every effect but Watch is answered once, when it has
// ended: after that it takes no effect any more. Until then the loop begins no other at its path.

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
	Size      int64     `json:"size,omitempty"` // in bytes, of a regular file
	ModTime   time.Time `json:"modTime"`
}

// MakeDir makes a directory and its parents; one that exists already is success. Answered by Done.
type MakeDir struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"` // permission bits
}

// WriteFile replaces a file so that a reader, and the disk after a power cut, holds either the
// old content or the new one, never a mixture. Answered by Done once it is on the disk; one that
// is volatile, which nobody needs after a power cut, once a reader sees it.
type WriteFile struct {
	Path     string `json:"path"`
	Data     []byte `json:"data"`
	Mode     uint32 `json:"mode"` // permission bits
	Volatile bool   `json:"volatile,omitempty"`
}

// RemoveTree removes a file, or a directory with everything in it, without following links and
// without crossing into another mount. A path that does not exist is success. Answered by Done.
type RemoveTree struct {
	Path string `json:"path"`
}

// ReadTail reads the end of a file. Links are not followed: a container may write where it is
// read. Answered by TailRead; what is not a regular file is KindInvalid.
type ReadTail struct {
	Path     string `json:"path"`
	BytesMax int64  `json:"bytesMax"`
}

// TailRead answers ReadTail.
type TailRead struct {
	Data      []byte `json:"data,omitempty"`
	Truncated bool   `json:"truncated,omitempty"` // the file begins before Data does
}

// StatPath looks at what is at a path, following links. Answered by PathInfo; nothing there, and
// a link that leads nowhere, is KindNotFound.
type StatPath struct {
	Path string `json:"path"`
}

// PathInfo answers StatPath.
type PathInfo struct {
	Kind PathKind `json:"kind"`
	Size int64    `json:"size"` // in bytes, of a file
}

// PathKind is what can be at a path.
type PathKind string

// The kinds of things in a file system, by the names of hostPath types where they have one.
const (
	PathFile        PathKind = "File"
	PathDirectory   PathKind = "Directory"
	PathSocket      PathKind = "Socket"
	PathCharDevice  PathKind = "CharDevice"
	PathBlockDevice PathKind = "BlockDevice"
	PathOther       PathKind = "Other"
)

// MakeFile makes an empty file; one that exists already is success and is left as it is. Its
// directory has to be there. Answered by Done.
type MakeFile struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"` // permission bits
}

// WriteDir makes the content of a directory what it says, in one instant for whoever reads
// through it: files are links into a hidden directory, and replacing one link, "..data", replaces
// all, as the kubelet's atomic writer does. What is there with the same content is left alone.
// Nothing but directories and links that an earlier WriteDir made is removed; anything else with
// the name of a file is KindExists. The directory and its parents are made. Answered by Done.
type WriteDir struct {
	Path  string    `json:"path"`
	Files []DirFile `json:"files"`
	// GID is the group of everything in it, as of a ShareWithGroup that is read only.
	GID *int64 `json:"gid,omitempty"`
}

// DirFile is one file of a WriteDir.
type DirFile struct {
	// Path is relative to the directory. It may have slashes; KindInvalid if it has "..", begins
	// with ".." (these names are hidden), or is that of another file or of a directory of one.
	Path string `json:"path"`
	Data []byte `json:"data,omitempty"`
	Mode uint32 `json:"mode"` // permission bits
}

// Rename gives a file or a link another name in the same file system, replacing a file or a link
// that has it. Answered by Done.
type Rename struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Exclusive leaves what has the name already as it is: KindExists.
	Exclusive bool `json:"exclusive,omitempty"`
}

// MakeLink makes a symbolic link, replacing a link that is there and nothing else (KindExists).
// Parents are made. Answered by Done.
type MakeLink struct {
	Path   string `json:"path"`
	Target string `json:"target"` // what it points to, as it is
}

// ReadLinks reads every symbolic link directly in a directory. Answered by LinksRead, in the
// order of the names; a directory that is not there is KindNotFound.
type ReadLinks struct {
	Path string `json:"path"`
}

// LinksRead answers ReadLinks.
type LinksRead struct {
	Links []Link `json:"links"`
}

// Link is a symbolic link.
type Link struct {
	Name     string `json:"name"`
	Target   string `json:"target"`
	Dangling bool   `json:"dangling,omitempty"` // nothing is where it points to
}

// Compress replaces a file by PATH.gz, compressed. A power cut leaves one of the two whole.
// Answered by Done; a file that is not there, while PATH.gz is, is success.
type Compress struct {
	Path string `json:"path"`
}

// ShareWithGroup gives a tree to a group, so that its members can read and, unless it is read
// only, write everything in it, and own what is made in it (set-group-ID). Modes gain 0660, or
// 0440 if it is read only, and directories 02110 as well; they lose nothing. The root comes last,
// so that OnRootMismatch finds what an earlier one has not finished. Links are not followed, and
// other mounts not entered. Answered by Done.
type ShareWithGroup struct {
	Path     string `json:"path"`
	GID      int64  `json:"gid"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// OnRootMismatch leaves everything alone if the root is as it should be already.
	OnRootMismatch bool `json:"onRootMismatch,omitempty"`
}

// MountMemory mounts a file system in memory; a path that one is mounted at already is success,
// and one that something else is mounted at is KindExists. The directory is made. Answered by Done.
type MountMemory struct {
	Path      string `json:"path"`
	BytesMax  int64  `json:"bytesMax"`            // zero: the kernel's default
	HugePages string `json:"hugePages,omitempty"` // a page size as "2M": of huge pages instead
	Mode      uint32 `json:"mode"`                // permission bits of its root
}

// Unmount unmounts everything at or below a path, without removing anything. A path at which
// nothing is mounted is success. Answered by Done; what is in use is KindExhausted.
type Unmount struct {
	Path string `json:"path"`
}

// BindSubPath mounts what is at a path within a volume at Target, making both where they are
// missing (the source as a directory). Links within the volume are followed, as the keys of a
// ConfigMap are links; one that leads nowhere or out of the volume, an absolute one included, is
// KindInvalid, as is a SubPath that is absolute or has "..". If the same is mounted there already,
// that is success; what else is mounted there is replaced. Answered by Done.
type BindSubPath struct {
	Root    string `json:"root"`    // of the volume
	SubPath string `json:"subPath"` // relative to it
	Target  string `json:"target"`
	Mode    uint32 `json:"mode"` // permission bits of directories that are made in the volume
}

// MeasureTree adds up what a tree uses, its root included, without following links. What is
// mounted below its root does not count. Answered by TreeMeasured.
type MeasureTree struct {
	Path string `json:"path"`
}

// TreeMeasured answers MeasureTree.
type TreeMeasured struct {
	Bytes  int64 `json:"bytes"`  // as blocks on the disk
	Inodes int64 `json:"inodes"` // files of several names count once
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
