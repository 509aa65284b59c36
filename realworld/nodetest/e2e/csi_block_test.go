package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/realworld/loopdevice"
	"seedlet.dev/realworld/porttest"
)

// devicePath is where a pod of blockPod has its device.
const devicePath = "/dev/disk"

// blockPod returns a pod with the volume of a claim as a device.
func (c *csiSuite) blockPod(name, claim string) *v1.Pod {
	pod := c.claimPod(name, claim)
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = nil
	main.VolumeDevices = []v1.VolumeDevice{{Name: "disk", DevicePath: devicePath}}
	return pod
}

// testRawBlock has pods use a volume of the driver as a device. It grows below the first of them
// when the agent, which reads claims once a minute, is restarted, and else stays as it is.
func (c *csiSuite) testRawBlock(t *testing.T) {
	claim := loopClaim()
	claim.VolumeMode = new(v1.PersistentVolumeBlock)
	c.createClaimOf(t, "raw", claim)
	first, second := c.blockPod("raw-first", "raw"), c.blockPod("raw-second", "raw")
	c.createPods(t, first)
	c.waitReady(t, first)
	c.writeFile(t, first, devicePath, "raw")
	c.checkSize(t, first, devicePath, "32Mi")
	before, calls := c.runningPods(t), len(c.driver.nodeCalls(t))
	c.requestSize(t, "raw", "48Mi")
	c.waitControllerExpanded(t, "raw")
	c.restartAgent(t)
	c.waitExpanded(t, "raw", "48Mi")
	c.checkSize(t, first, devicePath, "48Mi")
	c.checkUnchanged(t, before, c.runningPods(t))
	if more := c.driver.nodeCalls(t)[calls:]; len(more) != 1 ||
		!strings.HasPrefix(more[0], "NodeExpandVolume ") {
		t.Errorf("calls beside a restart of the agent: %q, want one expansion", more)
	}
	c.createPods(t, second)
	c.waitReady(t, second)
	c.expectFile(t, second, devicePath, "raw")
	c.deletePods(t, first)
	c.waitUntil(t, "the first pod has gone", func() bool { return c.apiPod(t, first.Name) == nil })
	c.writeFile(t, second, devicePath, "of the second")
	c.expectFile(t, second, devicePath, "of the second")
	c.deletePods(t, second)
	c.waitReleased(t)
	c.kubectl(t, "delete", "persistentvolumeclaim/raw", patience)
	c.waitVolumesRemoved(t)
}

// localDevice is a loop device that a test has made for a local volume.
type localDevice struct {
	image string
	link  string // to the device, as those in /dev/disk
}

// makeLocalDevice makes a device of 320 MiB, which is enough for xfs.
func makeLocalDevice(t *testing.T) *localDevice {
	t.Helper()
	dir := guardedDir(t)
	d := &localDevice{image: filepath.Join(dir, "image"), link: filepath.Join(dir, "device")}
	if err := os.WriteFile(d.image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(d.image, 320<<20); err != nil {
		t.Fatal(err)
	}
	d.attach(t)
	return d
}

// attach attaches the image to a loop device, which the link then leads to.
func (d *localDevice) attach(t *testing.T) {
	t.Helper()
	out, err := exec.Command("losetup", "--find", "--show", "--nooverlap", d.image).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	if err := os.Remove(d.link); err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	if err := os.Symlink(strings.TrimSpace(string(out)), d.link); err != nil {
		t.Fatal(err)
	}
}

// detach detaches the image from its device, which nothing may use any more.
func (d *localDevice) detach(t *testing.T) {
	t.Helper()
	device, err := os.Readlink(d.link)
	if err != nil {
		t.Fatal(err)
	}
	detachLoop(t, device)
	porttest.Eventually(t, device+" is detached", func() bool {
		all, err := loopdevice.List()
		return err == nil && !slices.ContainsFunc(all, func(l loopdevice.Device) bool {
			return l.Backing == d.image
		})
	})
}

func detachLoop(t *testing.T, device string) {
	t.Helper()
	if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
		t.Errorf("detaching %s: %v: %s", device, err, out)
	}
}

// createLocalClaim creates a local volume of the node on a device and a claim that is bound to it.
func (c *csiSuite) createLocalClaim(t *testing.T, name string, d *localDevice,
	mode v1.PersistentVolumeMode, fileSystem *string) {
	t.Helper()
	c.createBoundClaim(t, name, v1.PersistentVolumeSpec{VolumeMode: &mode,
		AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce},
		PersistentVolumeSource: v1.PersistentVolumeSource{
			Local: &v1.LocalVolumeSource{Path: d.link, FSType: fileSystem}},
		NodeAffinity: affinityTo(v1.LabelHostname, nodeName)})
}

func affinityTo(label, value string) *v1.VolumeNodeAffinity {
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{
		{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: label, Operator: v1.NodeSelectorOpIn, Values: []string{value}}}}}}}
}

// testLocalDevices has pods use local volumes of the node: a device of volumeMode Block, which two
// of them share, and a device on which the agent makes a file system. A restarted agent leaves both
// as they are, and what was written is there for the next pods.
func (c *csiSuite) testLocalDevices(t *testing.T) {
	block, disk := makeLocalDevice(t), makeLocalDevice(t)
	c.createLocalClaim(t, "local-block", block, v1.PersistentVolumeBlock, nil)
	c.createLocalClaim(t, "local-disk", disk, v1.PersistentVolumeFilesystem, new("xfs"))
	for run := range 2 {
		pods := []*v1.Pod{c.blockPod(fmt.Sprint("block-", run), "local-block"),
			c.blockPod(fmt.Sprint("shared-", run), "local-block"),
			c.claimPod(fmt.Sprint("disk-", run), "local-disk")}
		c.createPods(t, pods...)
		c.waitReady(t, pods...)
		if run == 0 {
			c.writeFile(t, pods[0], devicePath, "on a device")
			c.writeFile(t, pods[2], "/disk/file", "on a disk")
			before := c.runningPods(t)
			c.restartAgent(t)
			c.agent.waitHealthy(t)
			c.checkUnchanged(t, before, c.runningPods(t))
		}
		if held := c.heldDevices(t); len(held) == 0 {
			t.Error("the agent does not keep the device from being detached")
		}
		c.expectFile(t, pods[1], devicePath, "on a device")
		c.expectFile(t, pods[2], "/disk/file", "on a disk")
		c.checkSize(t, pods[0], devicePath, "320Mi")
		c.checkSize(t, pods[2], "/disk", "320Mi")
		c.deletePods(t, pods...)
		c.waitReleased(t)
	}
	block.detach(t)
	disk.detach(t)
	c.kubectl(t, "delete", "persistentvolumeclaim/local-block", "persistentvolumeclaim/local-disk",
		"persistentvolume/local-block", "persistentvolume/local-disk", patience)
}
