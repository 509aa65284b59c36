package host

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// dataDirs are the directories below the root directory that other programs look for when the agent
// has started, although the agent itself may have no use for them: a DaemonSet that mounts one as a
// hostPath of type Directory waits until it exists. Names and permissions are the kubelet's
// (setupDataDirs in pkg/kubelet, and the device manager).
var dataDirs = []struct {
	name       string
	permission fs.FileMode
}{
	{"pods", 0o750},
	{"plugins", 0o750},
	{"plugins_registry", 0o750},
	{"pod-resources", 0o750},
	{"device-plugins", 0o750},
	{"checkpoints", 0o700},
}

// MakeDataDirs makes the directories of the agent, and has mounts below its root directory
// propagate: volumes that a driver's pod mounts there must reach the machine and other pods.
// Directories that exist keep their permissions.
func MakeDataDirs(rootDir, logsDir string) error {
	for _, dir := range []string{rootDir, logsDir} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			return fmt.Errorf("making the agent's directories: %w", err)
		}
	}
	if err := makeShared(rootDir); err != nil {
		return err
	}
	for _, d := range dataDirs {
		if err := os.MkdirAll(filepath.Join(rootDir, d.name), d.permission); err != nil {
			return fmt.Errorf("making the agent's directories: %w", err)
		}
	}
	return nil
}

// makeShared has mounts below a directory propagate from and to its peers. If the mount that the
// directory is on is not shared, the directory is mounted onto itself, with the mounts below it:
// the rest of that mount stays as it is.
func makeShared(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return fmt.Errorf("sharing mounts below the root directory: %w", err)
	}
	mount, err := mountOf(dir)
	if err != nil || isShared(mount) {
		return err
	}
	if mount.Mountpoint != dir {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("sharing mounts below %s: mounting it onto itself: %w", dir, err)
		}
	}
	if err := unix.Mount("", dir, "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("sharing mounts below %s: %w", dir, err)
	}
	return nil
}

// mountOf returns the mount that a directory is on: of those at the longest path the last, which
// hides the others.
func mountOf(dir string) (*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(dir))
	if err != nil {
		return nil, fmt.Errorf("reading the mounts above %s: %w", dir, err)
	}
	var found *mountinfo.Info
	for _, m := range mounts {
		if found == nil || len(m.Mountpoint) >= len(found.Mountpoint) {
			found = m
		}
	}
	if found == nil {
		return nil, fmt.Errorf("sharing mounts below %s: it is on no mount", dir)
	}
	return found, nil
}

// isShared reports whether a mount has peers (the field "shared:N" of mountinfo).
func isShared(m *mountinfo.Info) bool {
	return slices.ContainsFunc(strings.Fields(m.Optional), func(field string) bool {
		return strings.HasPrefix(field, "shared:")
	})
}
