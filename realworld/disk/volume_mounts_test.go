package disk_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	mountutils "k8s.io/mount-utils"

	"seedlet.dev/realworld/disk"
	"seedlet.dev/world"
)

// An export is mounted with its options; the name of a server is never an option of the command.
func TestMountNFS(t *testing.T) {
	fake := mountutils.NewFakeMounter(nil)
	disk.ReplaceMounter(t, fake)
	at := t.TempDir() + "/pod/nfs"
	request := &world.MountNFS{Server: "fd00::1", Export: "/e", Path: at, ReadOnly: true,
		Options: []string{"hard", "vers=4.2"}}
	if err := disk.MountNFS(context.Background(), request); err != nil {
		t.Fatal(err)
	}
	want := []string{"ro", "hard", "vers=4.2"}
	if len(fake.MountPoints) != 1 || fake.MountPoints[0].Device != "[fd00::1]:/e" ||
		fake.MountPoints[0].Type != "nfs" || fake.MountPoints[0].Path != at ||
		!slices.Equal(fake.MountPoints[0].Opts, want) {
		t.Errorf("mounted %+v, want the options %v", fake.MountPoints, want)
	}
	request.Server = "-o"
	if err := disk.MountNFS(context.Background(), request); err == nil {
		t.Error("a server with the name of an option was taken")
	}
	if len(fake.MountPoints) != 1 {
		t.Errorf("mounted %+v", fake.MountPoints)
	}
}

// The unmount of a network file system whose server does not respond is forced after a while.
func TestUnmountIsForced(t *testing.T) {
	released := make(chan struct{})
	var calls []int
	disk.ReplaceUnmount(t, 10*time.Millisecond, func(_ string, flags int) error {
		if calls = append(calls, flags); flags&unix.MNT_FORCE == 0 {
			<-released
			return nil
		}
		close(released)
		return unix.EBUSY
	})
	if err := disk.UnmountOne("/mnt", true); err != nil || len(calls) != 2 {
		t.Errorf("%v after %v", err, calls)
	}
}

func TestUnmountOfDiskIsNotForced(t *testing.T) {
	var calls []int
	disk.ReplaceUnmount(t, time.Millisecond, func(_ string, flags int) error {
		calls = append(calls, flags)
		time.Sleep(100 * time.Millisecond) // longer than any that is forced may take
		return nil
	})
	if err := disk.UnmountOne("/mnt", false); err != nil || !slices.Equal(calls,
		[]int{unix.UMOUNT_NOFOLLOW}) {
		t.Errorf("%v after %v", err, calls)
	}
}
