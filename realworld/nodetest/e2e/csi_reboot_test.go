package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/realworld/csi/loopcsi"
)

// nextBootID is what the agent reads as the ID of the boot after a power failure.
const nextBootID = "0d0b1e5c-2f4e-4a7b-9d59-6a3f3f1c7e2a"

// testReboot has the power of the machine fail and come back below pods with volumes of each kind.
// The pods stay the same, their containers start once more, and all of their data is there. Volumes
// are staged again, and stay attached.
func (c *csiSuite) testReboot(t *testing.T) {
	device := makeLocalDevice(t)
	c.createLocalClaim(t, "reboot-local", device, v1.PersistentVolumeBlock, nil)
	block := loopClaim()
	block.VolumeMode = new(v1.PersistentVolumeBlock)
	c.createClaimOf(t, "reboot-block", block)
	c.createClaimOf(t, "reboot-xfs", claimOfClass("loop-xfs", "320Mi"))
	disk, raw := c.claimPod("reboot-disk", "reboot-xfs"), c.blockPod("reboot-raw", "reboot-block")
	addVolume(disk, "inline", inlineVolume())
	disk.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: new(int64(4321))}
	local, passing := c.blockPod("reboot-local", "reboot-local"), c.passingPod("reboot-passing")
	pods := []*v1.Pod{disk, raw, local, passing}
	files := map[*v1.Pod]string{disk: "/disk/file", raw: devicePath, local: devicePath,
		passing: "/disk/file"}
	c.createPods(t, pods...)
	c.waitReady(t, pods...)
	for pod, path := range files {
		c.writeFile(t, pod, path, "of "+pod.Name)
	}
	before, attachments := c.runningPods(t), c.attachments(t)
	log := len(c.driver.log(t))

	c.powerCycle(t, device)
	c.waitUntil(t, "an event says that the node was rebooted", func() bool {
		return hasLine(c.nodeEventText(t), "Rebooted: ", nextBootID)
	})
	for _, pod := range pods {
		c.waitUntil(t, pod.Name+" is ready in a new container", func() bool {
			now := c.apiPod(t, pod.Name)
			return isPodReady(now) && before[pod.Name] != c.runningPods(t)[pod.Name]
		})
		if uid := c.apiPod(t, pod.Name).UID; !strings.HasPrefix(before[pod.Name], string(uid)) {
			t.Errorf("%s is another pod: %s, before %s", pod.Name, uid, before[pod.Name])
		}
		if n := totalRestarts(c.apiPod(t, pod.Name)); n != 1 {
			t.Errorf("%s was restarted %d times, want once", pod.Name, n)
		}
		c.expectFile(t, pod, files[pod], "of "+pod.Name)
	}
	if got := c.apiNode(t).Status.NodeInfo.BootID; got != nextBootID {
		t.Errorf("the Node has the boot ID %s", got)
	}
	if now := c.attachments(t); strings.Join(now, " ") != strings.Join(attachments, " ") {
		t.Errorf("attachments are %q, before %q", now, attachments)
	}
	calls := c.driver.log(t)[log:]
	for call, want := range map[string]int{"NodeStageVolume": 3, "NodePublishVolume": 4,
		"NodeUnstageVolume": 0, "NodeUnpublishVolume": 0} {
		got := 0
		for line := range strings.Lines(calls) {
			if strings.HasPrefix(line, call+" ") && strings.Contains(line, ": OK in ") {
				got++
			}
		}
		if got != want {
			t.Errorf("%d calls %s after the reboot, want %d:\n%s", got, call, want, calls)
		}
	}
	c.deletePods(t, pods...)
	c.waitReleased(t)
	device.detach(t)
	c.kubectl(t, "delete", "persistentvolumeclaim", "--all", patience)
	c.kubectl(t, "delete", "persistentvolume/reboot-local", patience)
	c.waitVolumesRemoved(t)
}

// powerCycle has the power of the machine fail and come back. The API server is on another one. The
// agent starts before the driver and its sidecars, as it does where they are pods.
func (c *csiSuite) powerCycle(t *testing.T, devices ...*localDevice) {
	t.Helper()
	for _, d := range c.sidecars {
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	held := c.heldDevices(t) // they have these names only as long as all is mounted
	if err := c.node.PowerOff(); err != nil {
		t.Fatal(err)
	}
	c.agent.killIfRunning() // what ends it has been waited for
	if err := c.driver.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, d := range held {
		detachLoop(t, d.Path())
	}
	if err := loopcsi.Sweep(c.driver.dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range devices {
		d.detach(t)
	}

	bootID := filepath.Join(c.node.Dir, "boot_id")
	if err := os.WriteFile(bootID, []byte(nextBootID+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c.agent.flags = append(c.agent.flags, "--boot-id-file="+bootID)
	for _, d := range devices {
		d.attach(t)
	}
	if err := c.node.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.agent.start(t)
	c.driver.start(t)
	for _, d := range c.sidecars {
		if err := d.Start(); err != nil {
			t.Fatal(err)
		}
	}
}

// attachments returns the UIDs of all attachments of volumes.
func (c *csiSuite) attachments(t *testing.T) (uids []string) {
	t.Helper()
	list, err := c.api.StorageV1().VolumeAttachments().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range list.Items {
		uids = append(uids, string(a.UID))
	}
	return uids // sorted by name, as the API server lists them
}

// nodeEventText returns the events of the Node.
func (c *csiSuite) nodeEventText(t *testing.T) (text string) {
	t.Helper()
	list, err := c.api.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(),
		metav1.ListOptions{FieldSelector: "involvedObject.kind=Node"})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list.Items {
		text += e.Reason + ": " + e.Message + "\n"
	}
	return text
}
