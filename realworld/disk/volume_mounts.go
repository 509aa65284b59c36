package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unsafe"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"seedlet.dev/world"
)

// mounter runs the command mount, as the kubelet does, so that options mean the same and helpers
// such as mount.nfs are found. Tests replace it.
var mounter = sync.OnceValue(func() mountutils.Interface { return mountutils.New("") })

// The mode of the mount points of volumes. Only the agent and the runtime go through them.
const modeMountPoint = 0o750

// bindMount bind-mounts a directory or a file of the node.
func bindMount(ctx context.Context, m *world.BindMount) (*world.Mounted, error) {
	path, mounted, err := mountedAt(m.Path)
	if err != nil {
		return nil, err
	}
	if mounted != nil {
		if m.ReadOnly && !hasOption(mounted.Options, "ro") {
			// An earlier attempt has ended between the mount and the change of its options.
			err = mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
		}
		return &world.Mounted{Existed: true}, err
	}
	source, err := os.OpenFile(m.Source, unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	held, err := openDevice(m.Source, m.Sequence)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	if m.SourceMounted {
		_, below, err := mountedAt(m.Source)
		if err != nil {
			return nil, err
		}
		if below == nil {
			return nil, world.Errorf(world.KindNotFound, "", "nothing is mounted at %s", m.Source)
		}
	}
	result := &world.Mounted{}
	if m.Among != "" {
		if result, err = findShared(m, source); err != nil {
			return nil, err
		}
		if result.Shared && m.Exclusive {
			return nil, world.Errorf(world.KindRefused, "", "%s is mounted below %s", m.Source, m.Among)
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err // the call may have hung, and the pod may be gone by now
	}
	if err := makeTarget(path, source); err != nil {
		return nil, err
	}
	options := append([]string{"bind"}, readOnlyOption(m.ReadOnly)...)
	return result, mountVolume(m.Source, path, "", append(options, m.Options...))
}

// findShared looks for other mounts of a source below a directory.
func findShared(m *world.BindMount, source *os.File) (*world.Mounted, error) {
	among, err := filepath.EvalSymlinks(m.Among)
	if errors.Is(err, fs.ErrNotExist) {
		return &world.Mounted{}, nil
	}
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(source.Fd()), &stat); err != nil {
		return nil, err
	}
	find := func() ([]string, error) { return mounter().GetMountRefs(m.Source) }
	if stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		find = func() ([]string, error) { return mountsOfDevice(among, stat.Rdev) }
	}
	mounts, err := find()
	if err != nil {
		return nil, err
	}
	for _, path := range mounts {
		if strings.HasPrefix(path, among+"/") {
			return &world.Mounted{Shared: true, GID: int64(stat.Gid)}, nil
		}
	}
	return &world.Mounted{}, nil
}

// mountsOfDevice returns the paths below a directory to which a block device is bound. GetMountRefs
// does not find them where the root file system is mounted after /dev, as by an initramfs: it takes
// the last mount in whose directory the device is.
func mountsOfDevice(among string, number uint64) ([]string, error) {
	table, err := mountTable(among)
	var paths []string
	for _, m := range table {
		var stat unix.Stat_t
		if unix.Lstat(m.Mountpoint, &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFBLK &&
			stat.Rdev == number {
			paths = append(paths, m.Mountpoint)
		}
	}
	return paths, err
}

// mountDevice mounts the file system of a block device, and formats a device without any.
func mountDevice(ctx context.Context, m *world.MountDevice) (*world.Mounted, error) {
	path, mounted, err := makeMountPoint(ctx, m.Path)
	if err != nil || mounted {
		return &world.Mounted{Existed: mounted}, err
	}
	held, err := openDevice(m.Device, m.Sequence)
	if err != nil {
		return nil, err
	}
	defer held.Close()
	format := mountutils.NewSafeFormatAndMount(mounter(), utilexec.New())
	options := append(readOnlyOption(m.ReadOnly), m.Options...)
	if err := format.FormatAndMount(m.Device, path, m.FSType, options); err != nil {
		return nil, undoMount(path, err)
	}
	return &world.Mounted{}, nil
}

// openDevice opens a block device if it is the one with a sequence number; nil if that is not
// known. As long as it is open, no other device gets its path.
func openDevice(path string, sequence uint64) (*os.File, error) {
	if sequence == 0 {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	var is uint64
	_, _, code := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKGETDISKSEQ,
		uintptr(unsafe.Pointer(&is)))
	if code != 0 || is != sequence {
		_ = f.Close()
		return nil, world.Errorf(world.KindNotFound, "", "%s is not the disk %d any more, but %d",
			path, sequence, is)
	}
	return f, nil
}

// mountNFS mounts an export of an NFS server.
func mountNFS(ctx context.Context, m *world.MountNFS) error {
	if strings.HasPrefix(m.Server, "-") { // the command would take it for an option
		return world.Errorf(world.KindInvalid, "", "%q is no name of a server", m.Server)
	}
	path, mounted, err := makeMountPoint(ctx, m.Path)
	if err != nil || mounted {
		return err
	}
	return mountVolume(m.Source(), path, "nfs", append(readOnlyOption(m.ReadOnly), m.Options...))
}

// makeMountPoint makes the directory at a path, and returns the path as the mount table has it. If
// something is mounted there already, it reports that and does nothing.
func makeMountPoint(ctx context.Context, at string) (path string, mounted bool, err error) {
	path, existing, err := mountedAt(at)
	if err != nil || existing != nil {
		return path, existing != nil, err
	}
	if err := ctx.Err(); err != nil {
		return path, false, err
	}
	return path, false, makeDir(&world.MakeDir{Path: path, Mode: modeMountPoint})
}

func readOnlyOption(readOnly bool) []string {
	if readOnly {
		return []string{"ro"}
	}
	return nil
}

// mountVolume runs the command mount. After a failure nothing is mounted.
func mountVolume(source, path, fsType string, options []string) error {
	if err := mounter().MountSensitiveWithoutSystemd(source, path, fsType, options, nil); err != nil {
		return undoMount(path, err)
	}
	return nil
}

// undoMount removes what a failed mount has left: a bind mount whose options could not be set, and
// the mount point. The error has the output of the command, on several lines.
func undoMount(path string, err error) error {
	_, mounted, tableErr := mountedAt(path)
	if tableErr == nil && mounted != nil {
		tableErr = unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
	}
	if tableErr != nil {
		return partialFailure(errors.Join(err, tableErr))
	}
	_ = os.Remove(path) // it may not be empty; the next attempt takes it
	return world.Errorf(world.KindInternal, "", "%s", err)
}

// mountedAt returns a path as the mount table has it, and the newest mount there; nil if nothing is
// mounted. It does not look at the path itself, because the file system there may hang.
func mountedAt(path string) (string, *mountinfo.Info, error) {
	resolved, err := inMountTable(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	if isMounted, known := isMountPoint(resolved); known && !isMounted {
		return resolved, nil, nil
	}
	table, err := mountTable(resolved)
	if err != nil {
		return "", nil, err
	}
	var newest *mountinfo.Info
	for _, m := range table {
		if m.Mountpoint == resolved {
			newest = m
		}
	}
	return resolved, newest, nil
}

func hasOption(options, option string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == option {
			return true
		}
	}
	return false
}
