package disk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"seedlet.dev/world"
)

func TestRemoveTree(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	kept := mkdir(t, filepath.Join(dir, "kept"))
	write(t, filepath.Join(kept, "file"), "")
	tree := mkdir(t, filepath.Join(dir, "tree/a/b/c"))
	for i := range 3000 { // more than one read of the directory
		write(t, filepath.Join(tree, fmt.Sprint("file", i)), "")
	}
	if err := os.Symlink(kept, filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	h.must(&world.RemoveTree{Path: filepath.Join(dir, "tree")})
	if names := names(t, dir) + "/" + names(t, kept); names != "kept/file" {
		t.Errorf("%q remains, want kept/file: links are not followed", names)
	}
	h.must(&world.RemoveTree{Path: filepath.Join(dir, "tree")})
	h.must(&world.RemoveTree{Path: filepath.Join(dir, "none/none")})
	if err := os.Symlink(kept, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	h.must(&world.RemoveTree{Path: filepath.Join(dir, "link")})
	h.must(&world.RemoveTree{Path: filepath.Join(kept, "file")})
	if names := names(t, dir); names != "kept" {
		t.Errorf("%q remains, want kept", names)
	}
}

func TestRemoveTreeBelowLink(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	mkdir(t, filepath.Join(dir, "real/pod/x"))
	if err := os.Symlink("real", filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	h.must(&world.RemoveTree{Path: filepath.Join(dir, "root/pod")})
	if names := names(t, filepath.Join(dir, "real")); names != "" {
		t.Errorf("%q remains: the path's own links are followed", names)
	}
}

// A bind mount within one file system cannot be detected by comparing devices.
func TestRemoveTreeRefusesMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	h, dir := newHarness(t), t.TempDir()
	data := mkdir(t, filepath.Join(dir, "data"))
	write(t, filepath.Join(data, "precious"), "")
	volume := mkdir(t, filepath.Join(dir, "pod/volumes/bound"))
	write(t, filepath.Join(dir, "pod/file"), "")
	if err := syscall.Mount(data, volume, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(volume, syscall.MNT_DETACH) })

	h.mustFail(world.KindRefused, volume, &world.RemoveTree{Path: filepath.Join(dir, "pod")})
	h.mustFail(world.KindRefused, volume, &world.RemoveTree{Path: volume})
	if names := names(t, data) + "/" + names(t, filepath.Join(dir, "pod")); names !=
		"precious/file volumes" {
		t.Errorf("%q remains, want everything", names)
	}
	if err := syscall.Unmount(volume, 0); err != nil {
		t.Fatal(err)
	}
	h.must(&world.RemoveTree{Path: filepath.Join(dir, "pod")})
	if names := names(t, dir) + "/" + names(t, data); names != "data/precious" {
		t.Errorf("%q remains, want data/precious", names)
	}
}

func TestRemoveTreeWhileWritten(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	tree := mkdir(t, filepath.Join(dir, "tree"))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // a container that is still writing
		defer close(stopped)
		for i := 0; i < 200; i++ {
			_ = os.WriteFile(filepath.Join(tree, fmt.Sprint(i)), nil, 0o644)
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Microsecond):
			}
		}
	}()
	_, err := h.do(&world.RemoveTree{Path: tree})
	close(stop)
	<-stopped
	if err != nil && !err.Has(world.KindInternal) {
		t.Errorf("error %v, want none, or Internal as something was removed", err)
	}
	h.must(&world.RemoveTree{Path: tree})
	if names := names(t, dir); names != "" {
		t.Errorf("%q remains", names)
	}
}
