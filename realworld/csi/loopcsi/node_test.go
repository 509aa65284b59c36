package loopcsi

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"seedlet.dev/realworld/porttest"
)

// TestKilledDriver kills the driver after each call: the next one on the directory goes on.
func TestKilledDriver(t *testing.T) {
	dir := newDir(t)
	for _, capability := range []*csi.VolumeCapability{fileSystem("ext4"), rawBlock()} {
		kill, c := startProcess(t, dir)
		id := c.create("killed", capability)
		restart := func() {
			kill()
			kill, c = startProcess(t, dir)
		}
		restart()
		mustAll(t, c.stage(id, capability))
		restart()
		mustAll(t, c.stage(id, capability), c.publish(id, capability, false))
		wantCode(t, c.remove(id), codes.FailedPrecondition)
		restart()
		mustAll(t, c.publish(id, capability, false), c.unpublish(id))
		if _, err := os.Lstat(c.target); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the target is left: %v", err)
		}
		restart()
		mustAll(t, c.unpublish(id), c.unstage(id), c.unstage(id))
		wantNothingLeft(t, dir)
		restart()
		mustAll(t, c.unstage(id), c.remove(id), c.remove(id))
		mustAll(t, c.unpublish(id), c.unstage(id)) // of a volume that is gone
		kill()
	}
}

// TestKilledDuringCalls kills the driver at any moment of its calls. A caller that repeats them, as
// agents do, reaches its goal with the next driver.
func TestKilledDuringCalls(t *testing.T) {
	const kills = 8
	dir := newDir(t)
	random := rand.New(rand.NewPCG(1, 2))
	capability := fileSystem("ext4")
	for n := range kills {
		kill, c := startProcess(t, dir)
		id := c.create(fmt.Sprintf("killed-%d", n), capability)
		killed := make(chan struct{})
		time.AfterFunc(time.Duration(random.IntN(80))*time.Millisecond, func() {
			kill()
			close(killed)
		})
		var err error
		for err == nil { // until it is killed
			err = errors.Join(c.stage(id, capability), c.publish(id, capability, false),
				c.unpublish(id), c.unstage(id))
		}
		wantCode(t, err, codes.Unavailable)
		<-killed
		kill, c = startProcess(t, dir)
		steps := map[string]func() error{
			"staged":      func() error { return c.stage(id, capability) },
			"published":   func() error { return c.publish(id, capability, false) },
			"unpublished": func() error { return c.unpublish(id) },
			"unstaged":    func() error { return c.unstage(id) },
			"removed":     func() error { return c.remove(id) },
		}
		for _, goal := range []string{"staged", "published", "unpublished", "unstaged", "removed"} {
			porttest.Eventually(t, "the volume is "+goal, func() bool {
				err := steps[goal]()
				if err != nil {
					t.Logf("not yet %s: %v", goal, err)
				}
				return err == nil
			})
		}
		wantNothingLeft(t, dir)
		kill()
	}
}

// TestExpandOnline expands a volume while a file in it is open, which then takes more than the old
// volume had.
func TestExpandOnline(t *testing.T) {
	for _, name := range fileSystems {
		t.Run(name, func(t *testing.T) {
			if name == "ext4" && !canExpandExt4(t) {
				t.Skip("expanding ext4 online needs CAP_SYS_RESOURCE")
			}
			dir := newDir(t)
			_, c := start(t, optionsOf(dir))
			capability := fileSystem(name)
			id := c.create("expanded", capability)
			mustAll(t, c.stage(id, capability), c.publish(id, capability, false))
			file, err := os.Create(filepath.Join(c.target, "file"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = file.Close() }) // before what mounts it is removed; or closed below
			before := c.total(id)
			expanded, err := c.ControllerExpandVolume(c.within(), &csi.ControllerExpandVolumeRequest{
				VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * before}})
			if err != nil || !expanded.NodeExpansionRequired {
				t.Fatalf("expanding: %v, %v", expanded, err)
			}
			if _, err := c.NodeExpandVolume(c.within(), &csi.NodeExpandVolumeRequest{VolumeId: id,
				VolumePath: c.target, VolumeCapability: capability}); err != nil {
				t.Fatal(err)
			}
			if after := c.total(id); after < before*3/2 {
				t.Errorf("%d bytes after the expansion, %d before", after, before)
			}
			// Reserving the space takes less of the disk of this machine than writing.
			if err := reserve(file, before+before/4); err != nil {
				t.Errorf("the open file does not take more than the old volume had: %v", err)
			}
			mustAll(t, file.Close(), c.unpublish(id), c.unstage(id), c.remove(id))
			wantNothingLeft(t, dir)
		})
	}
}

// TestExpandUnmounted expands a volume between two times that it is staged.
func TestExpandUnmounted(t *testing.T) {
	for _, name := range fileSystems {
		t.Run(name, func(t *testing.T) {
			dir := newDir(t)
			_, c := start(t, optionsOf(dir))
			capability := fileSystem(name)
			id := c.create("expanded", capability)
			mustAll(t, c.stage(id, capability), c.publish(id, capability, false))
			write(t, filepath.Join(c.target, "file"), "content")
			before := c.total(id)
			mustAll(t, c.unpublish(id), c.unstage(id))
			if _, err := c.ControllerExpandVolume(c.within(), &csi.ControllerExpandVolumeRequest{
				VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 2 * before}}); err != nil {
				t.Fatal(err)
			}
			mustAll(t, c.stage(id, capability), c.publish(id, capability, false))
			if after := c.total(id); after < before*3/2 {
				t.Errorf("%d bytes after the expansion, %d before", after, before)
			}
			wantFile(t, filepath.Join(c.target, "file"), "content")
			mustAll(t, c.unpublish(id), c.unstage(id))
			wantNothingLeft(t, dir)
		})
	}
}

// total returns the size of a published volume by its statistics.
func (c *client) total(id string) int64 {
	c.t.Helper()
	answer, err := c.NodeGetVolumeStats(c.within(), &csi.NodeGetVolumeStatsRequest{VolumeId: id,
		VolumePath: c.target})
	if err != nil {
		c.t.Fatal(err)
	}
	return answer.Usage[0].Total
}

func TestReadOnly(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	capability := fileSystem("ext4")
	id := c.create("read", capability)
	mustAll(t, c.stage(id, capability), c.publish(id, capability, true))
	if err := os.WriteFile(filepath.Join(c.target, "file"), nil, 0o644); err == nil {
		t.Error("a read-only volume takes a file")
	}
	wantCode(t, c.publish(id, capability, false), codes.AlreadyExists)
	mustAll(t, c.publish(id, capability, true), c.unpublish(id), c.unstage(id))
	reader := withMode(fileSystem("ext4"), csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY)
	mustAll(t, c.stage(id, reader), c.stage(id, reader))
	wantCode(t, c.stage(id, capability), codes.AlreadyExists)
	mustAll(t, c.publish(id, reader, false))
	if err := os.WriteFile(filepath.Join(c.target, "file"), nil, 0o644); err == nil {
		t.Error("a volume for readers takes a file")
	}
}

// TestRawBlock writes through one target and reads through the next.
func TestRawBlock(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	id := c.create("block", rawBlock())
	wantCode(t, c.publish(id, rawBlock(), false), codes.FailedPrecondition)
	mustAll(t, c.stage(id, rawBlock()), c.publish(id, rawBlock(), false))
	mustAll(t, c.publish(id, rawBlock(), false))
	wantCode(t, c.publish(id, rawBlock(), true), codes.AlreadyExists)
	wantCode(t, c.unstage(id), codes.FailedPrecondition)
	if got := c.total(id); got != mebibyte {
		t.Errorf("%d bytes, want %d", got, mebibyte)
	}
	writeDevice := func() error {
		device, err := os.OpenFile(c.target, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = device.Write([]byte("content"))
		return errors.Join(err, device.Close())
	}
	if _, err := c.ControllerExpandVolume(c.within(), &csi.ControllerExpandVolumeRequest{
		VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 4 * mebibyte}}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NodeExpandVolume(c.within(), &csi.NodeExpandVolumeRequest{VolumeId: id,
		VolumePath: c.target, VolumeCapability: rawBlock()}); err != nil {
		t.Fatal(err)
	}
	device, err := os.Open(c.target)
	if err != nil {
		t.Fatal(err)
	}
	if end, err := device.Seek(0, 2); err != nil || end != 4*mebibyte {
		t.Errorf("the device has %d bytes, %v", end, err)
	}
	mustAll(t, device.Close(), writeDevice(), c.unpublish(id), c.publish(id, rawBlock(), true))
	if err := writeDevice(); err == nil {
		t.Error("a read-only device takes writes")
	}
	l, _, err := loopOf((&store{dir: c.dir}).volume(id))
	if err != nil {
		t.Fatal(err)
	}
	mustAll(t, c.unpublish(id), c.unstage(id))
	if readOnly, err := isReadOnlyDevice(l.device()); err != nil || readOnly {
		t.Errorf("%s stays read-only for others: %v", l.device(), err)
	}
	mustAll(t, c.stage(id, rawBlock()), c.publish(id, rawBlock(), false))
	image, err := os.ReadFile(c.target)
	if err != nil || !bytes.HasPrefix(image, []byte("content")) {
		t.Errorf("the content is lost: %v", err)
	}
	mustAll(t, c.unpublish(id), c.unstage(id))
	wantNothingLeft(t, dir)
}

func TestEphemeral(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	request := &csi.NodePublishVolumeRequest{VolumeId: "csi-0123", TargetPath: c.target,
		VolumeCapability: fileSystem(""), VolumeContext: map[string]string{
			ephemeralKey: "true", sizeKey: "32Mi"}}
	for range 2 {
		if _, err := c.NodePublishVolume(c.within(), request); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(c.target, "file"), "content")
	}
	if got := c.total("csi-0123"); got < 16*mebibyte || got > 32*mebibyte {
		t.Errorf("%d bytes, want nearly 32 MiB", got)
	}
	listed, err := c.ListVolumes(c.within(), &csi.ListVolumesRequest{})
	if err != nil || len(listed.Entries) > 0 {
		t.Errorf("an ephemeral volume is listed: %v, %v", listed, err)
	}
	mustAll(t, c.unpublish("csi-0123"), c.unpublish("csi-0123"))
	wantNothingLeft(t, dir)
	if left, err := os.ReadDir(filepath.Join(c.dir, "volumes")); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v, %v", left, err)
	}
	for _, size := range []string{"-1", "x", "0"} {
		request.VolumeContext[sizeKey] = size
		_, err := c.NodePublishVolume(c.within(), request)
		wantCode(t, err, codes.InvalidArgument)
	}
}

// TestPublicationFile: an ephemeral volume has what the driver was given last and
// how often, also for readers. What a pod makes of the file leads to no other one.
func TestPublicationFile(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	request := &csi.NodePublishVolumeRequest{VolumeId: "csi-0123", TargetPath: c.target,
		VolumeCapability: fileSystem(""), VolumeContext: map[string]string{
			ephemeralKey: "true", contextKey: "given"}}
	publish := func(token string, number int) {
		t.Helper()
		request.VolumeContext["token"] = token
		if _, err := c.NodePublishVolume(c.within(), request); err != nil {
			t.Fatal(err)
		}
		var got Publication
		if err := readJSON(filepath.Join(c.target, "given"), &got); err != nil ||
			got.Number != number || got.Context["token"] != token {
			t.Errorf("got %+v, %v, want number %d and token %s", got, err, number, token)
		}
	}
	request.Readonly = true
	publish("one", 1)
	publish("two", 2)
	mustAll(t, c.unpublish("csi-0123"))
	request.Readonly = false
	publish("three", 1) // of another volume
	outside, given := filepath.Join(dir, "outside"), filepath.Join(c.target, "given")
	write(t, outside, `{"number": 7}`)
	mustAll(t, os.Remove(given), os.Symlink(outside, given))
	publish("four", 1)
	write(t, given, "garbage")
	publish("five", 1)
	mustAll(t, os.Symlink(outside, filepath.Join(c.target, ".given")))
	if _, err := c.NodePublishVolume(c.within(), request); err == nil {
		t.Error("a link to a file outside was followed")
	}
	wantFile(t, outside, `{"number": 7}`)
	mustAll(t, os.Remove(filepath.Join(c.target, ".given")))
	publish("six", 2)
	mustAll(t, c.unpublish("csi-0123"))
	for _, name := range []string{"../x", ".x", "a/b"} {
		request.VolumeContext[contextKey] = name
		_, err := c.NodePublishVolume(c.within(), request)
		wantCode(t, err, codes.InvalidArgument)
	}
}

// TestForeignPaths: the driver removes and unmounts nothing that it did not make.
func TestForeignPaths(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	capability := fileSystem("ext4")
	id, other := c.create("one", capability), c.create("other", capability)
	mustAll(t, os.Mkdir(c.target, 0o755))
	write(t, filepath.Join(c.target, "file"), "content")
	if err := c.unpublish(id); err == nil {
		t.Error("a directory with a file was removed")
	}
	wantFile(t, filepath.Join(c.target, "file"), "content")
	mustAll(t, os.RemoveAll(c.target))
	write(t, c.target, "content")
	wantCode(t, c.unpublish(id), codes.FailedPrecondition)
	mustAll(t, os.Remove(c.target), c.stage(id, capability), c.publish(id, capability, false))
	wantCode(t, c.stage(other, capability), codes.FailedPrecondition)
	wantCode(t, c.unpublish(other), codes.FailedPrecondition)
	wantCode(t, c.unstage(other), codes.FailedPrecondition)
	if _, err := run("mount", "-t", "tmpfs", "foreign", c.target); err != nil {
		t.Fatal(err)
	}
	wantCode(t, c.unpublish(id), codes.FailedPrecondition)
	wantCode(t, c.publish(id, capability, false), codes.FailedPrecondition)
	mustAll(t, unmount(c.target)) // of the foreign file system
	for _, bad := range []string{"", "../volumes/" + id, "..", "/etc"} {
		wantCode(t, c.stage(bad, capability), codes.InvalidArgument)
		wantCode(t, c.publish(bad, capability, false), codes.InvalidArgument)
		wantCode(t, c.unpublish(bad), codes.InvalidArgument)
		wantCode(t, c.unstage(bad), codes.InvalidArgument)
		wantCode(t, c.remove(bad), codes.InvalidArgument)
	}
	c.target = "relative"
	wantCode(t, c.unpublish(id), codes.InvalidArgument)
	c.target = "/tmp/../etc"
	wantCode(t, c.publish(id, capability, false), codes.InvalidArgument)
}

func TestFileSystemOfAnotherType(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	id := c.create("typed", fileSystem("xfs"))
	mustAll(t, c.stage(id, fileSystem("xfs")))
	wantCode(t, c.stage(id, fileSystem("ext4")), codes.AlreadyExists)
	mustAll(t, c.unstage(id))
	wantCode(t, c.stage(id, fileSystem("ext4")), codes.FailedPrecondition)
	mustAll(t, c.unstage(id))
	wantNothingLeft(t, dir)
}

func TestSingleWriter(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	single := withMode(fileSystem(""), csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER)
	multi := withMode(fileSystem(""), csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER)
	id := c.create("single", single)
	first := c.target
	mustAll(t, c.stage(id, single), c.publish(id, single, false), c.publish(id, single, false))
	c.target += "-2"
	wantCode(t, c.publish(id, single, false), codes.FailedPrecondition)
	mustAll(t, c.publish(id, multi, false), c.unpublish(id))
	c.target = first
	mustAll(t, c.unpublish(id), c.unstage(id))
}

func TestMountGroup(t *testing.T) {
	dir := newDir(t)
	o := optionsOf(dir)
	o.MountGroup = true
	_, c := start(t, o)
	capability := fileSystem("")
	capability.GetMount().VolumeMountGroup = "1234"
	id := c.create("group", capability)
	mustAll(t, c.stage(id, capability), c.publish(id, capability, false))
	info, err := os.Stat(c.target)
	if err != nil || info.Mode().Perm() != 0o770 || info.Mode()&fs.ModeSetgid == 0 {
		t.Errorf("the volume is %v, %v", info.Mode(), err)
	}
	write(t, filepath.Join(c.target, "file"), "")
	if group, err := groupOf(filepath.Join(c.target, "file")); err != nil || group != 1234 {
		t.Errorf("a file has group %d, %v", group, err)
	}
}

// TestRemovedImage: the health of a volume whose image was removed under it is reported in the way
// of each version of CSI.
func TestRemovedImage(t *testing.T) {
	dir := newDir(t)
	_, c := start(t, optionsOf(dir))
	capability := fileSystem("")
	id := c.create("removed", capability)
	mustAll(t, c.stage(id, capability), c.publish(id, capability, false))
	for _, removed := range []bool{false, true} {
		health, err := c.NodeGetVolumeHealth(c.within(),
			&csi.NodeGetVolumeHealthRequest{VolumeId: id})
		if err != nil || len(health.VolumeHealth.HealthStatuses) > 0 != removed {
			t.Errorf("removed %t: health %v, %v", removed, health, err)
		}
		stats, err := c.NodeGetVolumeStats(c.within(), &csi.NodeGetVolumeStatsRequest{VolumeId: id,
			VolumePath: c.target})
		if err != nil {
			t.Fatal(err)
		}
		healthy := bytes.Contains(stats.ProtoReflect().GetUnknown(), []byte("the volume is healthy"))
		if healthy == removed {
			t.Errorf("removed %t: condition %q", removed, stats.ProtoReflect().GetUnknown())
		}
		mustAll(t, os.RemoveAll((&store{dir: c.dir}).volume(id).image()))
	}
	mustAll(t, c.unpublish(id), c.unstage(id), c.remove(id))
	wantNothingLeft(t, dir)
}
