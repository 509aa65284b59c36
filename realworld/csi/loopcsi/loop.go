package loopcsi

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"seedlet.dev/realworld/loopdevice"
)

// Loop devices are made and removed by losetup of util-linux. It is on every
// Debian machine, and has what single ioctls do not: it repeats the search for a free device when
// another process has taken it, and --nooverlap never attaches an image twice, which would corrupt
// its file system. The Go libraries with these ioctls are parts of container engines or not kept.

// detachMax is how long a device may stay in use after losetup has asked to detach it. Another
// process may read it for a moment, as blkid does after each change.
const detachMax = 5 * time.Second

// loop is a loop device with an image of the store.
type loop struct {
	name  string // as in loop3
	image string
	gone  bool // the image was removed, though the device still has it
}

func (l loop) device() string { return filepath.Join("/dev", l.name) }

// loops returns the loop devices of images that are selected, sorted by name.
func loops(selected func(image string) bool) ([]loop, error) {
	all, err := loopdevice.List()
	if err != nil {
		return nil, err
	}
	var found []loop
	for _, d := range all {
		if selected(d.Backing) {
			found = append(found, loop{d.Name, d.Backing, d.Gone})
		}
	}
	return found, nil
}

// loopOf returns the loop device of a volume, also of one that was removed.
func loopOf(volume item) (l loop, has bool, err error) {
	found, err := loops(func(image string) bool { return image == volume.image() })
	if err != nil || len(found) == 0 {
		return loop{}, false, err
	}
	return found[0], true, nil
}

// attachLoop attaches a volume to a loop device, unless it has one.
func attachLoop(volume item) (loop, error) {
	if l, has, err := loopOf(volume); has || err != nil {
		return l, err
	}
	out, err := run("losetup", "--find", "--show", "--nooverlap", volume.image())
	if err != nil {
		return loop{}, err
	}
	return loop{name: filepath.Base(strings.TrimSpace(out)), image: volume.image()}, nil
}

// requestDetach asks the kernel to detach a loop device from its image when nothing uses it. The
// device must take writes again before: it would refuse them with any later image, another
// program's included.
func (l loop) requestDetach() error {
	if err := setReadOnlyDevice(l.device(), false); err != nil {
		return err
	}
	_, err := run("losetup", "--detach", l.device())
	return err
}

// detach detaches a loop device from its image, and waits until it is.
func (l loop) detach() error {
	if err := l.requestDetach(); err != nil {
		return err
	}
	for late := time.Now().Add(detachMax); ; time.Sleep(10 * time.Millisecond) {
		left, err := loops(func(image string) bool { return image == l.image })
		isSame := func(other loop) bool { return other.name == l.name }
		if err != nil || !slices.ContainsFunc(left, isSame) {
			return err
		}
		if time.Now().After(late) {
			return fmt.Errorf("%s is still in use", l.device())
		}
	}
}

// grow gives a loop device the size of its image.
func (l loop) grow() error {
	_, err := run("losetup", "--set-capacity", l.device())
	return err
}

// run runs a program and returns its output.
func run(program string, args ...string) (string, error) {
	out, err := exec.Command(program, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err,
			strings.TrimSpace(string(out)))
	}
	return string(out), nil
}
