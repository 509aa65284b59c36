package disk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"seedlet.dev/world"
)

func TestRemoveTree(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	kept := mkdir(t, filepath.Join(dir, "kept"))
	write(t, filepath.Join(kept, "file"), "")
	tree := mkdir(t, filepath.Join(dir, "tree/a/b/c"))
	for i := range 3000 { // more than one read of the directory
		write(t, filepath.Join(tree, fmt.Sprint("file", i)), "")
	}
	if err := os.Symlink(kept, filepath.Join(tree, "link")); err != nil {
		t.Fatal(err)
	}
	b.must(&world.RemoveTree{Path: filepath.Join(dir, "tree")})
	if names := names(t, dir) + "/" + names(t, kept); names != "kept/file" {
		t.Errorf("left %q, want kept/file: links are not followed", names)
	}
	b.must(&world.RemoveTree{Path: filepath.Join(dir, "tree")})
	b.must(&world.RemoveTree{Path: filepath.Join(dir, "none/none")})
	if err := os.Symlink(kept, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	b.must(&world.RemoveTree{Path: filepath.Join(dir, "link")})
	b.must(&world.RemoveTree{Path: filepath.Join(kept, "file")})
	if names := names(t, dir); names != "kept" {
		t.Errorf("left %q, want kept", names)
	}
}

func TestRemoveTreeBelowLink(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	mkdir(t, filepath.Join(dir, "real/pod/x"))
	if err := os.Symlink("real", filepath.Join(dir, "root")); err != nil {
		t.Fatal(err)
	}
	b.must(&world.RemoveTree{Path: filepath.Join(dir, "root/pod")})
	if names := names(t, filepath.Join(dir, "real")); names != "" {
		t.Errorf("left %q: the path's own links are followed", names)
	}
}

// A bind mount within one file system is the mount that comparing devices does not see.
func TestRemoveTreeRefusesMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	b, dir := newBench(t), t.TempDir()
	data := mkdir(t, filepath.Join(dir, "data"))
	write(t, filepath.Join(data, "precious"), "")
	volume := mkdir(t, filepath.Join(dir, "pod/volumes/bound"))
	write(t, filepath.Join(dir, "pod/file"), "")
	if err := syscall.Mount(data, volume, "", syscall.MS_BIND, ""); err != nil {
		t.Skipf("cannot mount here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(volume, syscall.MNT_DETACH) })

	b.mustFail(world.KindRefused, volume, &world.RemoveTree{Path: filepath.Join(dir, "pod")})
	b.mustFail(world.KindRefused, volume, &world.RemoveTree{Path: volume})
	if names := names(t, data) + "/" + names(t, filepath.Join(dir, "pod")); names !=
		"precious/file volumes" {
		t.Errorf("left %q, want all of it", names)
	}
	if err := syscall.Unmount(volume, 0); err != nil {
		t.Fatal(err)
	}
	b.must(&world.RemoveTree{Path: filepath.Join(dir, "pod")})
	if names := names(t, dir) + "/" + names(t, data); names != "data/precious" {
		t.Errorf("left %q, want data/precious", names)
	}
}

func TestRemoveTreeTooDeep(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	deep := filepath.Join(dir, "deep"+strings.Repeat("/d", 300))
	mkdir(t, deep)
	b.mustFail(world.KindExhausted, "256 directories deep",
		&world.RemoveTree{Path: filepath.Join(dir, "deep")})
}

func TestRemoveTreeWhileWritten(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	tree := mkdir(t, filepath.Join(dir, "tree"))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // a container that is not quite dead
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
	_, err := b.do(&world.RemoveTree{Path: tree})
	close(stop)
	<-stopped
	if err != nil && !err.Has(world.KindInternal) {
		t.Errorf("error %v, want none, or Internal as something was removed", err)
	}
	b.must(&world.RemoveTree{Path: tree})
	if names := names(t, dir); names != "" {
		t.Errorf("left %q", names)
	}
}
