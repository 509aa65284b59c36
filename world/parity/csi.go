package parity

import (
	"fmt"
	"path"
	"testing"
	"time"

	"seedlet.dev/world"
)

// CSIPort runs the suite of the CSI port.
func CSIPort(t *testing.T, newWorld func(t *testing.T) CSI) {
	for _, c := range []struct {
		name string
		run  func(*csiClient)
	}{
		{"a driver says what it can do", driverSaysWhatItCan},
		{"a volume keeps its content", volumeKeepsContent},
		{"calls are idempotent", csiCallsAreIdempotent},
		{"a volume has several targets", volumeHasSeveralTargets},
		{"a target may be read-only", targetIsReadOnly},
		{"a single writer has one target", singleWriter},
		{"what is not there", volumeIsNotThere},
		{"invalid arguments", invalidCSICalls},
		{"a foreign mount is left as it is", foreignMountIsLeft},
		{"no tree with a volume is removed", volumeKeepsTree},
		{"a driver is restarted", driverIsRestarted},
		{"an error before the effect", csiFailsBefore},
		{"an error after the effect", csiFailsAfter},
		{"an effect after the deadline", csiLateEffect},
		{"a volume grows", volumeGrows},
		{"a device is published at a file", deviceIsPublished},
		{"an ephemeral volume ends with its publication", ephemeralVolume},
	} {
		t.Run(c.name, func(t *testing.T) { newCSIClient(t, newWorld(t)).run(c.run) })
	}
}

// csiClient has the calls of one case, and the paths of a volume.
type csiClient struct {
	*testing.T
	w               CSI
	handle          string
	staging, target string
}

func newCSIClient(t *testing.T, w CSI) *csiClient {
	t.Helper()
	c := &csiClient{T: t, w: w, handle: w.NewVolume(), staging: path.Join(w.Dir(), "staging"),
		target: path.Join(w.Dir(), "pod/mount")}
	c.mustDo(&world.MakeDir{Path: c.staging, Mode: 0o750})
	c.mustDo(&world.MakeDir{Path: path.Dir(c.target), Mode: 0o750})
	return c
}

// run runs a case, and lets go of its volume after it.
func (c *csiClient) run(do func(*csiClient)) {
	defer c.mustDo(&world.Unmount{Path: c.w.Dir()})
	do(c)
}

func (c *csiClient) mustDo(body any) any {
	c.Helper()
	got, err := c.w.Call(body)
	if err != nil {
		c.Fatalf("%s: %v", world.CallName(body), err)
	}
	return got
}

func (c *csiClient) mustFail(body any, kind world.ErrorKind) {
	c.Helper()
	got, err := c.w.Call(body)
	if !err.Has(kind) || err.Op != world.CallName(body) || err.Message == "" {
		c.Errorf("%s: completed with %v, %v, want an error of kind %s", world.CallName(body), got, err,
			kind)
	}
}

func (c *csiClient) volume(handle string) world.CSIVolume {
	return world.CSIVolume{Driver: c.w.Driver(), Handle: handle, Capability: world.CSICapability{
		FSType: "xfs", Access: world.CSISingleNodeMultiWriter}}
}

func (c *csiClient) stage() *world.StageVolume {
	return &world.StageVolume{CSIVolume: c.volume(c.handle), StagingPath: c.staging}
}

func (c *csiClient) unstage() *world.UnstageVolume {
	return &world.UnstageVolume{Driver: c.w.Driver(), Handle: c.handle, StagingPath: c.staging}
}

func (c *csiClient) publish() *world.PublishVolume {
	return &world.PublishVolume{CSIVolume: c.volume(c.handle), StagingPath: c.staging,
		TargetPath: c.target}
}

func (c *csiClient) unpublish() *world.UnpublishVolume {
	return &world.UnpublishVolume{Driver: c.w.Driver(), Handle: c.handle, TargetPath: c.target}
}

// mustBe fails the case unless the volume is mounted so often at the two paths.
func (c *csiClient) mustBe(when string, staged, published int) {
	c.Helper()
	listed := c.mustDo(&world.ListMounts{Path: c.w.Dir()}).(*world.MountsListed)
	at := map[string]int{}
	for _, m := range listed.Mounts {
		at[m.Path]++
	}
	if at[c.staging] != staged || at[c.target] != published {
		c.Errorf("%s: mounted at %v, want %d at the staging path and %d at the target", when, at,
			staged, published)
	}
}

// exists reports whether a path exists.
func (c *csiClient) exists(p string) bool {
	c.Helper()
	_, err := c.w.Call(&world.StatPath{Path: p})
	if err != nil && !err.Has(world.KindNotFound) {
		c.Fatal(err)
	}
	return err == nil
}

func (c *csiClient) write(p string) {
	c.Helper()
	c.mustDo(&world.WriteFile{Path: p, Data: []byte("x"), Mode: 0o600})
}

func driverSaysWhatItCan(c *csiClient) {
	info := c.mustDo(&world.GetCSINodeInfo{Driver: c.w.Driver()}).(*world.CSINodeInfo)
	can := info.Capabilities
	if info.NodeID == "" || !can.StageUnstage || !can.Stats || !can.Expand || !can.Condition ||
		!can.SingleNodeMultiWriter || can.VolumeMountGroup {
		c.Errorf("answered %+v", info)
	}
}

func volumeKeepsContent(c *csiClient) {
	c.mustDo(c.stage())
	c.mustBe("staged", 1, 0)
	if c.exists(c.target) {
		c.Error("the target is there before the volume is published")
	}
	c.mustDo(c.publish())
	c.mustBe("published", 1, 1)
	c.write(c.target + "/file")
	if !c.exists(c.staging + "/file") {
		c.Error("what is written at the target is not at the staging path")
	}
	stats := c.mustDo(&world.GetVolumeStats{Driver: c.w.Driver(), Handle: c.handle,
		Path: c.target}).(*world.CSIVolumeStats)
	if stats.CapacityBytes <= 0 || stats.Inodes <= 0 || stats.UsedBytes < 0 ||
		stats.AvailableBytes <= 0 || stats.Condition == nil || stats.Condition.Abnormal {
		c.Errorf("the statistics are %+v", stats)
	}
	c.mustDo(c.unpublish())
	c.mustBe("unpublished", 1, 0)
	if c.exists(c.target) {
		c.Error("the target is left after the volume was unpublished")
	}
	c.mustDo(c.unstage())
	c.mustBe("unstaged", 0, 0)
	if c.exists(c.staging+"/file") || !c.exists(c.staging) {
		c.Error("the content is left at the staging path, or the path is gone")
	}
	c.mustDo(c.stage())
	c.mustDo(c.publish())
	if !c.exists(c.target + "/file") {
		c.Error("the content is lost")
	}
	c.letGo()
}

// letGo undoes what a case has done.
func (c *csiClient) letGo() {
	c.Helper()
	c.mustDo(c.unpublish())
	c.mustDo(c.unstage())
	c.mustBe("in the end", 0, 0)
}

func csiCallsAreIdempotent(c *csiClient) {
	for _, step := range []struct {
		body              any
		staged, published int
	}{{c.stage(), 1, 0}, {c.publish(), 1, 1}, {c.unpublish(), 1, 0}, {c.unstage(), 0, 0}} {
		for n := range 3 {
			c.mustDo(step.body)
			c.mustBe(fmt.Sprintf("%s number %d", world.CallName(step.body), n+1), step.staged,
				step.published)
		}
	}
}

func volumeHasSeveralTargets(c *csiClient) {
	c.mustDo(c.stage())
	c.mustDo(c.publish())
	first := c.target
	c.target = path.Join(c.w.Dir(), "other/mount")
	c.mustDo(&world.MakeDir{Path: path.Dir(c.target), Mode: 0o750})
	c.mustDo(c.publish())
	c.write(first + "/file")
	if !c.exists(c.target + "/file") {
		c.Error("the targets have different content")
	}
	c.mustFail(c.unstage(), world.KindConflict)
	c.mustDo(c.unpublish())
	c.mustFail(c.unstage(), world.KindConflict)
	c.target = first
	c.mustBe("with one target left", 1, 1)
	c.letGo()
}

func targetIsReadOnly(c *csiClient) {
	c.mustDo(c.stage())
	publish := c.publish()
	publish.ReadOnly = true
	c.mustDo(publish)
	c.mustDo(publish)
	c.mustFail(c.publish(), world.KindExists)
	listed := c.mustDo(&world.ListMounts{Path: c.target}).(*world.MountsListed)
	if len(listed.Mounts) != 1 || !listed.Mounts[0].ReadOnly {
		c.Errorf("the target is mounted as %+v", listed.Mounts)
	}
	c.letGo()
}

func singleWriter(c *csiClient) {
	c.mustDo(c.stage())
	publish := c.publish()
	publish.Capability.Access = world.CSISingleNodeSingleWriter
	c.mustDo(publish)
	c.mustDo(publish)
	second := *publish
	second.TargetPath = c.target + "-second"
	c.mustFail(&second, world.KindConflict)
	c.letGo()
}

func volumeIsNotThere(c *csiClient) {
	c.mustFail(c.publish(), world.KindConflict)
	c.mustDo(c.unpublish())
	c.mustDo(c.unstage())
	driver := c.w.Driver()
	c.mustFail(&world.ExpandVolume{Driver: driver, Handle: c.handle, Path: c.target,
		Capability: c.stage().Capability}, world.KindNotFound)
	c.mustFail(&world.GetVolumeStats{Driver: driver, Handle: c.handle, Path: c.target},
		world.KindNotFound)
	c.handle = "missing"
	c.mustFail(c.stage(), world.KindNotFound)
	c.mustFail(c.publish(), world.KindNotFound)
	c.mustDo(c.unpublish())
	c.mustDo(c.unstage())
}

func invalidCSICalls(c *csiClient) {
	handle := c.handle
	c.handle = ""
	for _, body := range []any{c.stage(), c.unstage(), c.publish(), c.unpublish()} {
		c.mustFail(body, world.KindInvalid)
	}
	c.handle, c.staging, c.target = handle, "relative", "relative"
	for _, body := range []any{c.stage(), c.unstage(), c.publish(), c.unpublish()} {
		c.mustFail(body, world.KindInvalid)
	}
	c.staging = path.Join(c.w.Dir(), "staging")
	stage := c.stage()
	stage.Capability.Access = "NONSENSE"
	c.mustFail(stage, world.KindInvalid)
	c.mustBe("after calls that failed", 0, 0)
}

func foreignMountIsLeft(c *csiClient) {
	c.mustDo(c.stage())
	c.mustDo(c.publish())
	handle := c.handle
	c.handle = c.w.NewVolume()
	for _, body := range []any{c.stage(), c.unstage(), c.unpublish()} {
		c.mustFail(body, world.KindConflict)
	}
	c.handle = handle
	c.mustBe("after calls for another volume", 1, 1)
	c.letGo()
}

func volumeKeepsTree(c *csiClient) {
	c.mustDo(c.stage())
	c.mustDo(c.publish())
	c.write(c.target + "/file")
	c.mustFail(&world.RemoveTree{Path: path.Dir(c.target)}, world.KindRefused)
	c.mustFail(&world.RemoveTree{Path: c.target}, world.KindRefused)
	if !c.exists(c.target + "/file") {
		c.Error("the content is lost")
	}
	c.letGo()
}

func driverIsRestarted(c *csiClient) {
	c.mustDo(c.stage())
	c.mustDo(c.publish())
	start := c.w.Restart()
	for _, body := range []any{&world.GetCSINodeInfo{Driver: c.w.Driver()}, c.stage(), c.publish(),
		c.unpublish(), c.unstage()} {
		c.mustFail(body, world.KindUnavailable)
	}
	c.mustBe("without a driver", 1, 1)
	start()
	c.mustDo(c.stage())
	c.mustDo(c.publish())
	c.mustBe("after the restart", 1, 1)
	c.letGo()
}

func csiFailsBefore(c *csiClient) {
	for _, body := range []any{c.stage(), c.publish()} {
		c.w.Fault(world.CallName(body), CSIFailsBefore)
		c.mustFail(body, world.KindUnavailable)
		c.mustBe("after errors before the effect", 0, 0)
	}
}

func csiFailsAfter(c *csiClient) {
	for _, step := range []struct {
		body              any
		staged, published int
	}{{c.stage(), 1, 0}, {c.publish(), 1, 1}, {c.unpublish(), 1, 0}, {c.unstage(), 0, 0}} {
		c.w.Fault(world.CallName(step.body), CSIFailsAfter)
		c.mustFail(step.body, world.KindUnavailable)
		c.mustBe(world.CallName(step.body)+" that failed after its effect", step.staged, step.published)
		c.mustDo(step.body)
	}
}

// csiLateEffect: the agent repeats a call until it succeeds, and has its effect once.
func csiLateEffect(c *csiClient) {
	for _, step := range []struct {
		body              any
		staged, published int
	}{{c.stage(), 1, 0}, {c.publish(), 1, 1}, {c.unpublish(), 1, 0}, {c.unstage(), 0, 0}} {
		c.w.Fault(world.CallName(step.body), CSILate)
		if _, err := c.w.CallWithin(step.body, CSILateness/7); !err.Has(world.KindTimeout) {
			c.Errorf("%s that is late: %v", world.CallName(step.body), err)
		}
		for end := c.w.Now().Add(Patience); ; c.w.Sleep(20 * time.Millisecond) {
			_, err := c.w.Call(step.body)
			if err == nil {
				break
			}
			if !err.Has(world.KindUnavailable) || c.w.Now().After(end) {
				c.Fatalf("%s, repeated: %v", world.CallName(step.body), err)
			}
		}
		c.w.Sleep(2 * CSILateness)
		c.mustBe("after a late "+world.CallName(step.body), step.staged, step.published)
	}
}

func volumeGrows(c *csiClient) {
	c.mustDo(c.stage())
	c.mustDo(c.publish())
	size := c.w.GrowVolume(c.handle)
	expand := &world.ExpandVolume{Driver: c.w.Driver(), Handle: c.handle, Path: c.target,
		StagingPath: c.staging, RequiredBytes: size + 1, Capability: c.stage().Capability}
	c.mustFail(expand, world.KindInvalid)
	expand.RequiredBytes = size
	for range 2 {
		if got := c.mustDo(expand).(*world.VolumeExpanded); got.CapacityBytes != size {
			c.Errorf("expanded to %d bytes, want %d", got.CapacityBytes, size)
		}
	}
	stats := c.mustDo(&world.GetVolumeStats{Driver: c.w.Driver(), Handle: c.handle,
		Path: c.target}).(*world.CSIVolumeStats)
	if stats.CapacityBytes < size*9/10 {
		c.Errorf("the file system has %d bytes, the volume %d", stats.CapacityBytes, size)
	}
	c.letGo()
}

func ephemeralVolume(c *csiClient) {
	c.handle = "csi-ephemeral"
	publish := c.publish()
	publish.StagingPath = ""
	publish.VolumeContext = map[string]string{"csi.storage.k8s.io/ephemeral": "true"}
	for range 2 {
		for range 2 {
			c.mustDo(publish)
			c.mustBe("published", 0, 1)
		}
		if c.exists(c.target + "/file") {
			c.Error("the volume has the content of an earlier one")
		}
		c.write(c.target + "/file")
		c.mustDo(c.unpublish())
		c.mustDo(c.unpublish())
		c.mustBe("unpublished", 0, 0)
	}
}

// deviceIsPublished does what the agent does with a block volume: the driver publishes the device
// at a file, which is bound to another file, and a link leads there.
func deviceIsPublished(c *csiClient) {
	can := world.CSICapability{Block: true, Access: world.CSISingleNodeWriter}
	stage, publish := c.stage(), c.publish()
	c.target = path.Join(c.w.Dir(), "publish/pod")
	stage.Capability, publish.Capability, publish.TargetPath = can, can, c.target
	bound, link := path.Join(c.w.Dir(), "dev/pod"), path.Join(c.w.Dir(), "pod/link")
	for _, dir := range []string{path.Dir(c.target), path.Dir(bound)} {
		c.mustDo(&world.MakeDir{Path: dir, Mode: 0o750})
	}
	c.mustDo(&world.WriteFile{Path: bound, Mode: 0o640})
	c.mustDo(stage)
	for range 2 {
		c.mustDo(publish)
		c.mustDo(&world.BindMount{Source: c.target, Path: bound})
		c.mustDo(&world.HoldDevice{Path: bound})
		c.mustDo(&world.MakeLink{Path: link, Target: c.target})
	}
	for _, at := range []string{c.target, bound, link} {
		if info := c.mustDo(&world.StatPath{Path: at}).(*world.PathInfo); info.Kind !=
			world.PathBlockDevice {
			c.Errorf("%s is a %s, want a block device", at, info.Kind)
		}
	}
	stats := c.mustDo(&world.GetVolumeStats{Driver: c.w.Driver(), Handle: c.handle,
		Path: c.target}).(*world.CSIVolumeStats)
	if stats.CapacityBytes <= 0 {
		c.Errorf("the statistics are %+v", stats)
	}
	c.mustFail(&world.HoldDevice{Path: bound + "-absent"}, world.KindNotFound)
	c.mustDo(&world.RemoveTree{Path: link})
	c.mustFail(&world.Unmount{Path: bound}, world.KindExhausted)
	for range 2 {
		c.mustDo(&world.ReleaseDevice{Path: bound})
	}
	c.mustDo(&world.Unmount{Path: bound})
	for range 2 {
		c.mustDo(c.unpublish())
	}
	c.mustFail(&world.StatPath{Path: c.target}, world.KindNotFound)
	c.mustDo(&world.RemoveTree{Path: bound})
	c.mustDo(c.unstage())
	listed := c.mustDo(&world.ListDir{Path: c.staging}).(*world.DirListed)
	if len(listed.Entries) > 0 {
		c.Errorf("the driver has left %+v", listed.Entries)
	}
}
