package world

import (
	"strings"
	"time"
)

// The file system port. Paths are absolute. Every effect but Watch completes once, when the
// operation has ended: it has no effect after its completion. Until then the loop starts no other
// operation on its path (see loop's path locks).

// NameBytesMax is the length of the longest name that a directory can hold. A call that would
// create or read a longer one is KindInvalid; RemoveTree succeeds.
const NameBytesMax = 255

// ReadFiles reads a file, or every regular file directly in a directory, sorted by name. It
// completes with FilesRead, or with KindNotFound if the path does not exist.
type ReadFiles struct {
	Path     string `json:"path"`
	FilesMax int    `json:"filesMax"` // a directory with more files is KindExhausted
	BytesMax int64  `json:"bytesMax"` // a larger file has an Err of KindExhausted
	// SumMax bounds the bytes of all files that were read, unless it is zero. A directory with more
	// is KindExhausted.
	SumMax int64 `json:"sumMax,omitempty"`
	// Documents asks for documents in place of bytes; nil for the bytes.
	Documents *Documents `json:"documents,omitempty"`
}

// FilesRead is the completion of ReadFiles.
type FilesRead struct {
	Directory bool   `json:"directory"` // the path is a directory
	Files     []File `json:"files"`
}

// File is the content of one file, or the error of reading it.
type File struct {
	Name string `json:"name"` // the last element of its path
	Data []byte `json:"data,omitempty"`
	Err  *Error `json:"err,omitempty"`
	// Of a request for documents: the checksum of the content; its document, unless that is known or
	// empty; and whether it has been left to a later request. Err is of KindInvalid if the content is
	// no document.
	Sum     string `json:"sum,omitempty"`
	Doc     []byte `json:"doc,omitempty"`
	Omitted bool   `json:"omitted,omitempty"`
}

// ListDir lists a directory. It completes with DirListed.
type ListDir struct {
	Path string `json:"path"`
}

// DirListed is the completion of ListDir, sorted by name.
type DirListed struct {
	Entries []DirEntry `json:"entries"`
}

// DirEntry is one entry of a directory.
type DirEntry struct {
	Name      string    `json:"name"`
	Directory bool      `json:"directory"`
	Size      int64     `json:"size,omitempty"` // in bytes, of a regular file
	ModTime   time.Time `json:"modTime"`
}

// MakeDir creates a directory and its missing parents. It succeeds if the directory exists. It
// completes with Done.
type MakeDir struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"` // permission bits
}

// WriteFile replaces a file atomically: a reader, and the disk after a power loss, holds either the
// old content or the new content, never a mixture. It completes with Done when the file is durable.
// If Volatile is set it completes when readers see the file, and the file may be lost with the
// power.
type WriteFile struct {
	Path     string `json:"path"`
	Data     []byte `json:"data"`
	Mode     uint32 `json:"mode"` // permission bits
	Volatile bool   `json:"volatile,omitempty"`
}

// RemoveTree removes a file, or a directory with its content. It does not follow links. A tree may
// have any depth. If a name cannot be removed, the others are removed nevertheless. RemoveTree
// succeeds if the path does not exist, as one with a name above NameBytesMax cannot. It completes
// with Done, or with KindRefused if the tree contains a mount, into which it never crosses.
type RemoveTree struct {
	Path string `json:"path"`
}

// ReadTail reads the end of a file. It does not follow a link at the path, because a container may
// write there. It completes with TailRead, or with KindInvalid if the path is not a regular file.
type ReadTail struct {
	Path     string `json:"path"`
	BytesMax int64  `json:"bytesMax"`
}

// TailRead is the completion of ReadTail.
type TailRead struct {
	Data      []byte `json:"data,omitempty"`
	Truncated bool   `json:"truncated,omitempty"` // Data does not start at the beginning of the file
}

// ReadInVolume reads a file in a volume that containers may write to. Links are followed as if the
// volume were the root of the file system, so no path leads out of it. It completes with FilesRead
// of one file, with KindInvalid if the path is not a regular file, or with KindExhausted if the
// file is larger than BytesMax.
type ReadInVolume struct {
	Root     string `json:"root"` // of the volume
	Path     string `json:"path"` // relative to Root
	BytesMax int64  `json:"bytesMax"`
}

// StatPath returns the kind and size of a path, following links. It completes with PathInfo, or
// with KindNotFound if the path does not exist or is a dangling link.
type StatPath struct {
	Path string `json:"path"`
}

// PathInfo is the completion of StatPath.
type PathInfo struct {
	Kind PathKind `json:"kind"`
	Size int64    `json:"size"` // in bytes, of a file
}

// PathKind is the kind of a file system object.
type PathKind string

// The kinds of file system objects, named as the types of a hostPath volume where one exists.
const (
	PathFile        PathKind = "File"
	PathDirectory   PathKind = "Directory"
	PathSocket      PathKind = "Socket"
	PathCharDevice  PathKind = "CharDevice"
	PathBlockDevice PathKind = "BlockDevice"
	PathOther       PathKind = "Other"
)

// MakeFile creates an empty file. An existing file is left unchanged and is success. The parent
// directory must exist. It completes with Done.
type MakeFile struct {
	Path string `json:"path"`
	Mode uint32 `json:"mode"` // permission bits
}

// WriteDir sets the content of a directory atomically for its readers, as the kubelet's
// AtomicWriter does: the files are links into a hidden directory, and replacing the link "..data"
// replaces all of them at once. Unchanged content is not written again. WriteDir removes only
// directories and links that an earlier WriteDir created; any other object with the name of a file
// is KindExists. The directory and its parents are created. It completes with Done when readers see
// the files. Nothing is synced: after a power loss any file may be missing or incomplete, until the
// next WriteDir, which compares the content and writes what differs.
type WriteDir struct {
	Path  string    `json:"path"`
	Files []DirFile `json:"files"`
	// GID is the group of all files and directories, with the modes of a read-only ShareWithGroup.
	// Nil leaves the group unchanged.
	GID *int64 `json:"gid,omitempty"`
}

// WriteDirMode are the permission bits of a directory that WriteDir creates, which are those that a
// kubelet gives it.
const WriteDirMode = 0o777

// DirFile is one file of a WriteDir.
type DirFile struct {
	// Path is relative to the directory and may contain slashes. It is KindInvalid if it has an
	// element "..", starts with ".." (these names are hidden), or is also the path of another file
	// or of a directory that holds one.
	Path string `json:"path"`
	Data []byte `json:"data,omitempty"`
	// Text is the content of a file without Data. Objects hold text of up to 1 MiB, which a volume can
	// have thousands of times: it is not copied for the operation.
	Text string `json:"text,omitempty"`
	Mode uint32 `json:"mode"` // permission bits
	// UID is the owner of the file; nil: the agent's user, as that of the directories.
	UID *int64 `json:"uid,omitempty"`
}

// Bytes returns the content of a file. A caller does not change it.
func (f *DirFile) Bytes() []byte {
	if len(f.Data) > 0 {
		return f.Data
	}
	return []byte(f.Text)
}

// Rename renames a file or a link within one file system, replacing a file or a link at the new
// name. It completes with Done.
type Rename struct {
	From string `json:"from"`
	To   string `json:"to"`
	// Exclusive fails the operation with KindExists if the new name exists.
	Exclusive bool `json:"exclusive,omitempty"`
}

// MakeLink creates a symbolic link and its missing parents. It replaces an existing link; any other
// object at the path is KindExists. It completes with Done.
type MakeLink struct {
	Path   string `json:"path"`
	Target string `json:"target"` // the text of the link, stored unchanged
}

// ReadLinks reads every symbolic link directly in a directory. It completes with LinksRead, sorted
// by name, or with KindNotFound if the directory does not exist.
type ReadLinks struct {
	Path string `json:"path"`
}

// LinksRead is the completion of ReadLinks.
type LinksRead struct {
	Links []Link `json:"links"`
}

// Link is a symbolic link.
type Link struct {
	Name     string `json:"name"`
	Target   string `json:"target"`
	Dangling bool   `json:"dangling,omitempty"` // the target does not exist
}

// Compress replaces a file by a compressed PATH.gz. A power loss leaves one of the two complete. It
// completes with Done; it succeeds if the file does not exist and PATH.gz does.
type Compress struct {
	Path string `json:"path"`
}

// ShareWithGroup gives a tree to a group, as fsGroup does: members of the group can read everything
// and, unless ReadOnly is set, write everything, and new files belong to the group (set-group-ID).
// Modes gain 0660, or 0440 if ReadOnly is set, and directories also gain 02110; no mode bit is
// removed. The root is changed last, so that OnRootMismatch detects an unfinished earlier
// operation. Links are not followed and other mounts are not entered. It completes with Done, also
// if files refuse a change, as those of a read-only file system do; nothing finds these again.
type ShareWithGroup struct {
	Path     string `json:"path"`
	GID      int64  `json:"gid"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// OnRootMismatch skips the tree if the group and mode of its root are already correct
	// (fsGroupChangePolicy).
	OnRootMismatch bool `json:"onRootMismatch,omitempty"`
}

// MountMemory mounts a tmpfs or hugetlbfs and creates the mount point. It succeeds if one is
// already mounted at the path; any other mount there is KindExists. It completes with Done.
type MountMemory struct {
	Path      string `json:"path"`
	BytesMax  int64  `json:"bytesMax"`            // zero: the kernel's default
	HugePages string `json:"hugePages,omitempty"` // page size as "2M": a hugetlbfs
	Mode      uint32 `json:"mode"`                // permission bits of its root, and the sticky bit
}

// Unmount unmounts all mounts at or below a path and removes nothing. It succeeds if nothing is
// mounted there. A network file system whose server does not respond for a minute is unmounted by
// force, which loses what was not written. It completes with Done, or with KindExhausted if a mount
// is busy.
type Unmount struct {
	Path string `json:"path"`
}

// BindMount mounts a directory or a file of the node, which may be a device, at a path. The mount
// point and its parents are created. A file system that is mounted at the path already stays, and
// is made read-only if that is asked for. It completes with Mounted, or with KindNotFound if the
// source does not exist.
type BindMount struct {
	Source   string   `json:"source"`
	Path     string   `json:"path"`
	ReadOnly bool     `json:"readOnly,omitempty"`
	Options  []string `json:"options,omitempty"` // mount options, as the command mount has them
	// Sequence, if it is not zero, is that of a block device (BlockDevice): another one that has its
	// path by now is refused, with KindNotFound.
	Sequence uint64 `json:"sequence,omitempty"`
	// SourceMounted refuses a source at which nothing is mounted, with KindNotFound.
	SourceMounted bool `json:"sourceMounted,omitempty"`
	// Among is a directory: the mounts of the source below it are looked for. Empty: they are not.
	Among string `json:"among,omitempty"`
	// Exclusive refuses a source that is mounted below Among, with KindRefused.
	Exclusive bool `json:"exclusive,omitempty"`
}

// Mounted is the completion of BindMount and MountDevice.
type Mounted struct {
	Existed bool `json:"existed,omitempty"` // something was mounted at the path before
	// Shared is set if the source is mounted at another path below Among. GID is the group of the
	// source then.
	Shared bool  `json:"shared,omitempty"`
	GID    int64 `json:"gid,omitempty"`
}

// MountDevice mounts the file system of a block device at a path, and creates the mount point. A
// device without any file system is formatted before, unless it is to be read-only, which is an
// error then; another file system than FSType is left, and mounting it as FSType may fail. A file
// system that is mounted at the path already stays, as it is. It completes with Mounted.
type MountDevice struct {
	Device   string   `json:"device"`
	Sequence uint64   `json:"sequence,omitempty"` // of the device, as in BindMount
	Path     string   `json:"path"`
	FSType   string   `json:"fsType"`
	ReadOnly bool     `json:"readOnly,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// HoldDevice keeps the block device at a path open, by a loop device of the node: as long as it is,
// no other device gets its number, to which containers were given access. A device that is held
// already stays so. It completes with Done, or with KindNotFound if the path does not exist.
type HoldDevice struct {
	Path string `json:"path"`
}

// ReleaseDevice ends what HoldDevice does, or a kubelet has done. It succeeds if nothing holds a
// device at the path. What is mounted at the path is busy until then. It completes with Done.
type ReleaseDevice struct {
	Path string `json:"path"`
}

// MountNFS mounts an export of an NFS server at a path, and creates the mount point. A file system
// that is mounted at the path already stays. It waits for a server that does not answer, for
// minutes. It completes with Done.
type MountNFS struct {
	Server   string   `json:"server"`
	Export   string   `json:"export"`
	Path     string   `json:"path"`
	ReadOnly bool     `json:"readOnly,omitempty"`
	Options  []string `json:"options,omitempty"`
}

// Source returns the source of the mount in the mount table. An IPv6 address is in brackets there.
func (m *MountNFS) Source() string {
	if strings.Contains(m.Server, ":") && !strings.HasPrefix(m.Server, "[") {
		return "[" + m.Server + "]:" + m.Export
	}
	return m.Server + ":" + m.Export
}

// BindSubPath bind-mounts a path within a volume at Target. It creates both if they are missing
// (the source as a directory). New directories in the volume get the mode of its root, with the
// set-user-ID, set-group-ID and sticky bits. Links within the volume are followed, because the
// keys of a ConfigMap volume are links. A dangling link, a link that leaves the volume, an absolute
// link, and a SubPath that is absolute or contains ".." are KindInvalid. If the same source is
// already mounted at Target the operation succeeds; another mount there is replaced. It completes
// with Done.
type BindSubPath struct {
	Root    string `json:"root"`    // of the volume
	SubPath string `json:"subPath"` // relative to Root
	Target  string `json:"target"`
}

// MeasureTree measures the disk usage of a tree including its root, at any depth. It does not
// follow links and excludes mounts below the root. It completes with TreeMeasured. KindTimeout
// means that the disk is slow, or that the operation waited for others; it says nothing about the
// tree.
type MeasureTree struct {
	Path string `json:"path"`
}

// TreeMeasured is the completion of MeasureTree.
type TreeMeasured struct {
	Bytes  int64 `json:"bytes"`  // in allocated disk blocks
	Inodes int64 `json:"inodes"` // a file with several hard links counts once
	// Unfinished reports that the tree has too many names, or changes too fast, to be measured. Bytes
	// and Inodes are a part of it then.
	Unfinished bool `json:"unfinished,omitempty"`
}

// MeasureFilesystem observes the file system that holds a path, following links. It completes with
// FilesystemMeasured, or with KindNotFound if the path does not exist. The file system may hang, so
// its operations are in the lane of host paths, one for each path.
type MeasureFilesystem struct {
	Path string `json:"path"`
}

// FilesystemMeasured is the completion of MeasureFilesystem. The kernel's numbers are passed on as
// they are: a capacity may be zero, and a file system without a bound on inodes has none.
type FilesystemMeasured struct {
	Device         uint64 `json:"device"` // two paths on one file system have the same
	CapacityBytes  int64  `json:"capacityBytes"`
	AvailableBytes int64  `json:"availableBytes"` // to users other than root
	FreeBytes      int64  `json:"freeBytes"`      // with those that only root may use
	Inodes         int64  `json:"inodes"`
	InodesFree     int64  `json:"inodesFree"`
}

// MeasureDevice observes the size of the block device at a path, following links, without opening
// it. It completes with DeviceMeasured, with KindNotFound if the path, or a device with the number
// of the node there, does not exist, and with KindInvalid if the node is no block device.
type MeasureDevice struct {
	Path string `json:"path"`
}

// DeviceMeasured is the completion of MeasureDevice.
type DeviceMeasured struct {
	CapacityBytes int64 `json:"capacityBytes"`
}

// Done is the completion of an operation without a result.
type Done struct{}

// Watch requests FileChanged events for a file, or for a directory and its direct entries. It is
// one-way: a port that cannot watch the path reports nothing, and the core relies on polling.
type Watch struct {
	Path string `json:"path"`
}

// FileChanged reports that a watched path, or an entry directly below it, may have changed. It may
// be delayed, duplicated or lost.
type FileChanged struct {
	Path string `json:"path"` // the watched path
}

// MeasureTrees measures several trees, each as MeasureTree does. It completes with TreesMeasured.
type MeasureTrees struct {
	Paths []string `json:"paths"`
	// Owners are whose each tree is; absent: all are of one. The time is shared by owners first: trees
	// of one that take long take nothing from those of another.
	Owners []string `json:"owners,omitempty"`
}

// TreesMeasured is the completion of MeasureTrees, in the order of the paths. A tree that does not
// exist, or cannot be read, is empty; one for which there was no time is unfinished.
type TreesMeasured struct {
	Trees []TreeMeasured `json:"trees"`
}

// MeasureFiles observes the sizes of files below a directory. It follows no link below it. It
// completes with FilesMeasured.
type MeasureFiles struct {
	Dir   string   `json:"dir"`
	Paths []string `json:"paths"` // relative to Dir
}

// FilesMeasured is the completion of MeasureFiles: the sizes in bytes, in the order of the paths.
// A size is NotMeasured if the path does not exist, cannot be looked at or is no regular file.
type FilesMeasured struct {
	Sizes []int64 `json:"sizes"`
}

// NotMeasured stands for the size of what is no file.
const NotMeasured = -1

// ListMounts lists the mount points at and below a path, from the kernel's mount table, which does
// not hang. Links in the parent of the path are followed, and the mounts that are listed begin with
// the path all the same. It completes with MountsListed, which is empty if the path does not exist.
type ListMounts struct {
	Path string `json:"path"`
}

// MountsListed is the completion of ListMounts, in the order of the mount table: of two mounts at
// one path the later one is on top.
type MountsListed struct {
	Mounts []Mount `json:"mounts"`
}

// Mount is an entry of the mount table.
type Mount struct {
	Path   string `json:"path"`
	Source string `json:"source"` // as the file system reports it, as a device
	FSType string `json:"fsType"`
	Root   string `json:"root"` // the path in its file system that is mounted; "/" unless it is a bind
	// Device identifies the file system: two binds of it have the same.
	Device   string `json:"device"`
	ReadOnly bool   `json:"readOnly,omitempty"`
	// SELinuxLabels is set if its files have SELinux labels that can be changed (seclabel).
	SELinuxLabels bool `json:"selinuxLabels,omitempty"`
	// SELinuxContext is the label of all its files, if it was mounted with one (context).
	SELinuxContext string `json:"selinuxContext,omitempty"`
}
