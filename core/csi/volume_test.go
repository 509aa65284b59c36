package csi

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/world"
)

func noAttach() *storagev1.CSIDriverSpec {
	no, policy := false, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy
	return &storagev1.CSIDriverSpec{AttachRequired: &no, FSGroupPolicy: &policy,
		VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent,
			storagev1.VolumeLifecycleEphemeral}}
}

// newReady returns a node with a registered driver, whose volumes need not be attached.
func newReady(t *testing.T) *node {
	n := newNode(t)
	n.setDriverObject(noAttach())
	n.run().register()
	n.calls = nil
	return n
}

// A volume is staged once for all pods, published for each, and undone in the opposite order.
func TestTwoPodsShareAVolume(t *testing.T) {
	n := newReady(t)
	if s := n.need(use("a")); !s.Ready {
		t.Fatalf("not ready: %+v", s)
	}
	n.expect("stage "+n.sha(), "publish pv-1")
	if s := n.need(use("b")); !s.Ready {
		t.Fatalf("not ready: %+v", s)
	}
	n.expect("publish pv-1")
	if n.end("a") {
		t.Error("a is still held")
	}
	n.expect("unpublish pv-1")
	if n.end("b") {
		t.Error("b is still held")
	}
	n.expect("unpublish pv-1", "unstage "+n.sha())
	n.expectClean()
}

// sha returns the name of the directory in which the volume is staged.
func (n *node) sha() string {
	path := n.node.stagingDir(&Volume{Driver: driverName, Handle: "h1"})
	return path[strings.LastIndex(path, "/")+1:]
}

// The Node names a volume as in use before the volume is staged, and until it is unstaged; a volume
// waits until the cluster says that it is attached.
func TestVolumeWaitsToBeAttached(t *testing.T) {
	n := newNode(t)
	n.run().register()
	n.calls = nil
	if s := n.need(use("a")); s.Ready || s.Problem != "" {
		t.Fatalf("got %+v", s)
	}
	n.expect("in use 1")
	n.wait(attachOverdue)
	if u := use("a"); n.node.UseStateOf(&u).Failures != 1 {
		t.Errorf("got %+v", n.node.UseStateOf(&u))
	}
	n.attach()
	n.withdraws = true // which may take the volume out of those in use
	n.run()
	n.expect()
	n.withdraws = false
	n.queue = append(n.queue, VolumeKey(UniqueName(driverName, "h1")))
	n.run()
	n.expect("stage "+n.sha(), "publish pv-1")
	stage := n.requests[0].(*world.StageVolume)
	if stage.PublishContext["disk"] != "7" || stage.Capability.Access != world.CSISingleNodeWriter {
		t.Errorf("staged with %+v", stage)
	}
	n.hold["UnstageVolume"] = true
	n.end("a")
	n.expect("unpublish pv-1")
	n.release("UnstageVolume")
	n.expect("unstage "+n.sha(), "in use 0")
	n.expectClean()
}

// A volume is not staged while a write in flight may take back that it is in use.
func TestStagingWaitsForWriteOfNode(t *testing.T) {
	n := newNode(t)
	n.run().register()
	n.withdraws = true
	n.need(use("a"))
	n.attach()
	n.calls = nil
	n.run()
	n.expect()
	n.withdraws = false
	n.queue = append(n.queue, VolumeKey(UniqueName(driverName, "h1")))
	n.run()
	n.expect("stage "+n.sha(), "publish pv-1")
}

// What is known of the attachment is forgotten when nothing needs the volume any more, also while
// an operation on it, or the read of the attachment, is in flight.
func TestVolumeIsDetachedMeanwhile(t *testing.T) {
	for _, call := range []string{"MakeDir", "GetObject"} {
		n := newNode(t)
		n.run().register()
		n.need(use("a"))
		n.hold[call] = true
		n.attach()
		n.run()
		n.end("a")
		n.reportInUse()
		n.attach()
		n.run()
		n.calls = nil
		n.need(use("b"))
		n.reportInUse()
		n.release(call)
		n.run()
		n.expect("in use 1")
		n.attach()
		n.run()
		n.expect("stage "+n.sha(), "publish pv-1")
	}
}

// A volume that was detached by force, as from a node that was cut off, is given to no other pod
// before it is attached again, even if one still has it.
func TestVolumeIsDetachedByForce(t *testing.T) {
	n := newNode(t)
	n.run().register()
	n.need(use("a"))
	n.reportInUse()
	n.attach()
	if n.run(); !n.isReady(use("a")) {
		t.Fatal("it is attached, and not ready")
	}
	n.object = n.object.DeepCopy()
	n.object.Status.VolumesAttached = nil
	n.calls = nil
	if s := n.need(use("b")); s.Ready {
		t.Errorf("%+v", s)
	}
	n.expect()
	n.attach()
	n.attachment = &storagev1.VolumeAttachmentStatus{Attached: true,
		AttachmentMetadata: map[string]string{"disk": "8"}}
	n.requests = nil
	n.run()
	n.expect("publish pv-1")
	if got := n.requests[0].(*world.PublishVolume).PublishContext["disk"]; got != "8" {
		t.Errorf("published as disk %s", got)
	}
}

// Without a controller that attaches volumes, a pod says that the agent does not either.
func TestNoAttachDetachController(t *testing.T) {
	n := newNode(t)
	n.noAttachDetach = true
	n.run().register()
	n.calls = nil
	const want = `AttachVolume.Attach failed for volume "pv-1" : attaching volumes from the ` +
		"kubelet is not supported"
	if s := n.need(use("a")); s.Problem != want {
		t.Errorf("%+v", s)
	}
	n.expect()
	n.end("a")
	n.expectClean()
}

// What differs in a PersistentVolume that was created again counts for a pod that waits for it.
func TestVolumeIsCreatedAgain(t *testing.T) {
	n := newReady(t)
	n.fail["StageVolume"] = &failure{world.Errorf(world.KindInvalid, "StageVolume", "wrong"), 1,
		false}
	n.need(use("a"))
	n.calls, n.requests = nil, nil
	again := use("a")
	again.Attributes, again.FSType = map[string]string{"pool": "b"}, "xfs"
	n.need(again)
	n.wait(time.Minute)
	n.expect("stage "+n.sha(), "publish pv-1")
	stage := n.requests[0].(*world.StageVolume)
	if stage.VolumeContext["pool"] != "b" || stage.Capability.FSType != "xfs" {
		t.Errorf("staged with %+v", stage)
	}
}

// A call whose outcome is unknown is repeated; it is undone if the pod ends before.
func TestUnknownOutcome(t *testing.T) {
	for _, call := range []string{"StageVolume", "PublishVolume"} {
		for _, effect := range []bool{true, false} {
			n := newReady(t)
			n.fail[call] = &failure{world.Errorf(world.KindTimeout, call, "late"), 1, effect}
			if s := n.need(use("a")); s.Ready || !strings.Contains(s.Problem, "late") || s.Failures != 1 {
				t.Fatalf("%s: %+v", call, s)
			}
			if n.wait(time.Second); !n.isReady(use("a")) {
				t.Errorf("%s is not repeated", call)
			}
			n.end("a")
			n.expectClean()

			n = newReady(t)
			n.fail[call] = &failure{world.Errorf(world.KindUnavailable, call, "late"), -1, effect}
			n.need(use("a"))
			n.calls = nil
			if n.end("a") {
				t.Errorf("%s: held", call)
			}
			if last := n.calls[len(n.calls)-1]; last != "unstage "+n.sha() {
				t.Errorf("after %s of unknown outcome: %q", call, n.calls)
			}
			n.expectClean()
		}
	}
}

// Nothing is undone that a failed call cannot have done.
func TestKnownFailureLeavesNothing(t *testing.T) {
	n := newReady(t)
	n.fail["StageVolume"] = &failure{world.Errorf(world.KindInvalid, "", "no such disk"), -1, false}
	want := `MountVolume.MountDevice failed for volume "pv-1" : no such disk`
	if s := n.need(use("a")); s.Problem != want {
		t.Errorf("got %q", s.Problem)
	}
	n.calls = nil
	n.end("a")
	n.expect()
	n.expectClean()
}

// A volume whose driver refuses to publish it, because of its state, is staged again; the other
// pods keep it.
func TestStagingIsLost(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	n.calls = nil
	n.fail["PublishVolume"] = &failure{world.Errorf(world.KindConflict, "", "not staged"), 1, false}
	if s := n.need(use("b")); s.Ready || !strings.Contains(s.Problem, "not staged") {
		t.Fatalf("got %+v", s)
	}
	if !n.isReady(use("a")) {
		t.Error("the other pod has lost the volume")
	}
	if n.wait(time.Second); !n.isReady(use("b")) {
		t.Error("not published after it was staged again")
	}
	n.expect("PublishVolume fails", "stage "+n.sha(), "publish pv-1")
}

func (n *node) isReady(u Use) bool { return n.node.UseStateOf(&u).Ready }

// A restart of the agent alone has no call, if the pod has containers. What the pod does not need
// any more is undone, even if nothing but the directory is left of it.
func TestRestart(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	n.need(inline("b"))
	n.restart()
	n.wait(time.Hour)
	n.expect()
	n.register()
	n.calls = nil
	u, v := use("a"), inline("b")
	u.HasRun, v.HasRun = true, true
	if !n.need(u).Ready || !n.need(v).Ready {
		t.Error("not ready after a restart")
	}
	n.expect()
	delete(n.pods, "b") // another agent has ended it
	n.restart()
	n.register()
	n.need(u)
	n.expect("info", "unpublish scratch")
	n.end("a")
	n.expectClean()
}

// A pod without containers may wait for a publication that was interrupted: it is repeated.
func TestRestartRepeatsWhatMayBeInterrupted(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	n.restart()
	n.register()
	n.calls = nil
	if !n.need(use("a")).Ready {
		t.Error("not ready")
	}
	n.expect("stage "+n.sha(), "publish pv-1")
}

// Nothing that was found is undone before all sources of pods are known, and while the driver is
// missing; the pod's directory stays meanwhile.
func TestFoundVolumesWait(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	delete(n.pods, "a")
	n.cleansUp = false
	n.restart()
	n.register()
	n.wait(time.Hour)
	n.expect("info")
	if n.cleansUp = true; !n.node.HoldsPod("a") {
		t.Error("the directory of the pod is not held")
	}
	n.observe() // the driver has gone
	n.queue = append(n.queue, VolumeKey(UniqueName(driverName, "h1")))
	n.run()
	if !strings.Contains(strings.Join(n.logs, "\n"), "waits to be unpublished") {
		t.Errorf("no log line: %q", n.logs)
	}
	n.calls = nil
	n.register()
	n.expect("info", "update CSINode", "unpublish pv-1", "unstage "+n.sha())
	if n.node.HoldsPod("a") {
		t.Error("the directory of the pod is held")
	}
	n.expectClean()
}

// A volume that was found for a pod that is known and never runs is released once the pod has gone.
func TestFoundVolumeOfPodThatNeverRuns(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	n.restart().register()
	n.calls = nil
	n.wait(time.Hour)
	n.expect()
	delete(n.pods, "a")
	n.wait(listedPeriod)
	n.expect("unpublish pv-1", "unstage "+n.sha())
	n.expectClean()
}

// After a reboot nothing is mounted: what a pod needs is made again, although it has run.
func TestReboot(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	n.mounts = nil
	n.restart()
	n.register()
	n.calls = nil
	u := use("a")
	u.HasRun = true
	if !n.need(u).Ready {
		t.Error("not ready")
	}
	n.expect("stage "+n.sha(), "publish pv-1")
}

// An agent that is killed after a reboot while it publishes a volume has not given the volume to
// the group of its pod, nor expanded it: the next one publishes it again, and does both.
func TestRebootAndDeathWhilePublishing(t *testing.T) {
	for _, at := range []string{"PublishVolume", "ShareWithGroup", "ExpandVolume"} {
		n := newReady(t)
		spec, policy := noAttach(), storagev1.FileFSGroupPolicy
		spec.FSGroupPolicy = &policy
		n.setDriverObject(spec)
		u := inGroup("a")
		u.Claim = "claim"
		n.need(u)
		n.mounts = nil
		n.restart().register()
		n.resize("2Gi")
		n.hold[at] = true
		if n.need(u); n.held[at].Body == nil {
			t.Fatalf("%s was not issued", at)
		}
		n.perform(n.held[at].Body) // and the agent is killed
		n.hold[at] = false
		n.restart().register()
		n.calls = nil
		if !n.need(u).Ready {
			t.Errorf("%s: not ready", at)
		}
		want := []string{"stage " + n.sha(), "publish pv-1", "group 7",
			"claim 1Gi NodeResizeInProgress", "expand 2147483648", "claim 2Gi"}
		if at == "ExpandVolume" { // the claim says so already
			want = slices.Delete(want, 3, 4)
		}
		n.expect(want...)
	}
}

// A directory without readable data is removed if nothing is mounted there, and left otherwise.
func TestUnreadableData(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	dir := PublicationDir("/k/pods/a", "pv-1")
	for file := range n.files {
		if strings.HasSuffix(file, dataFile) {
			n.files[file] = `{"driverName":`
		}
	}
	delete(n.pods, "a")
	n.restart()
	n.wait(time.Minute)
	if n.files[dir] == "" || !n.node.HoldsPod("a") {
		t.Fatal("removed behind a mount")
	}
	n.mounts = nil
	n.wait(5 * time.Minute)
	if n.files[dir] != "" || n.node.HoldsPod("a") {
		t.Error("the directory is left")
	}
}

// A driver that leaves its mount behind, or files, is asked again; nothing is removed meanwhile.
func TestDriverLeavesSomething(t *testing.T) {
	n := newReady(t)
	n.need(use("a"))
	at := PublishedPath("/k/pods/a", "pv-1")
	n.mounts = append(n.mounts, world.Mount{Path: at + "/nested", Root: "/x", Device: "0:9"})
	if !n.end("a") {
		t.Error("the pod ends while something is mounted")
	}
	n.mounts = n.mounts[:0]
	n.files[at], n.files[at+"/file"] = "/", "data"
	n.calls = nil
	n.wait(2 * time.Second)
	if !n.node.HoldsPod("a") {
		t.Fatal("files were removed")
	}
	delete(n.files, at+"/file")
	n.wait(5 * time.Minute)
	if n.node.HoldsPod("a") {
		t.Error("the pod is held")
	}
}

// The pod of a publication that hangs ends only after it; others are not affected by its failures.
func TestFailuresOfOnePod(t *testing.T) {
	n := newReady(t)
	bad := use("a")
	bad.PublishSecret = ref("missing")
	n.need(bad)
	n.listSecret("missing", nil)
	if s := n.need(bad); !strings.Contains(s.Problem, `secrets "missing" not found`) {
		t.Errorf("got %+v", s)
	}
	if !n.need(use("b")).Ready {
		t.Error("b waits for a")
	}
}

// A driver that answers without having published anything is asked again.
func TestDriverLies(t *testing.T) {
	n := newReady(t)
	n.lies = 1
	if s := n.need(use("a")); s.Ready || !strings.Contains(s.Problem, "has succeeded, but") {
		t.Errorf("got %+v", s)
	}
	if n.wait(time.Second); !n.isReady(use("a")) {
		t.Error("not published again")
	}
}

// The group of a pod gets the files of its volume, by the policy of the driver; if that fails, the
// volume is published again.
func TestGroup(t *testing.T) {
	for policy, want := range map[storagev1.FSGroupPolicy]bool{storagev1.FileFSGroupPolicy: true,
		storagev1.NoneFSGroupPolicy: false, storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy: true} {
		n := newReady(t)
		spec := noAttach()
		spec.FSGroupPolicy = &policy
		n.setDriverObject(spec)
		u := inGroup("a")
		n.fail["ShareWithGroup"] = &failure{world.Errorf(world.KindTimeout, "", "slow"), 1, false}
		n.need(u)
		if n.wait(time.Second); !n.isReady(u) {
			t.Errorf("%s: not ready", policy)
		}
		n.expect(map[bool][]string{false: {"stage " + n.sha(), "publish pv-1"},
			true: {"stage " + n.sha(), "publish pv-1", "publish pv-1", "group 7"}}[want]...)
	}
}

// A pod of a claim with ReadWriteOncePod is refused while another pod has the volume.
func TestReadWriteOncePod(t *testing.T) {
	n := newReady(t)
	first, second := use("a"), use("b")
	first.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	second.AccessModes = first.AccessModes
	n.need(first)
	if s := n.need(second); !strings.Contains(s.Problem, "already in use by another pod") {
		t.Errorf("got %+v", s)
	}
	n.end("a")
	if n.wait(time.Minute); !n.isReady(second) {
		t.Error("not ready after the other pod")
	}
}

// A driver gets what its CSIDriver asks for: the pod and tokens, again each minute.
func TestRepublish(t *testing.T) {
	n := newReady(t)
	spec := noAttach()
	spec.PodInfoOnMount, spec.RequiresRepublish = new(true), new(true)
	spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault"}}
	n.setDriverObject(spec)
	if !n.need(inline("a")).Ready {
		t.Fatal("not ready")
	}
	context := n.requests[0].(*world.PublishVolume).VolumeContext
	if context["csi.storage.k8s.io/pod.name"] != "pod-a" ||
		!strings.HasPrefix(context[world.CSITokensKey],
			`{"vault":{"token":"token-1","expirationTimestamp":`) {
		t.Errorf("got %v", context)
	}
	n.calls = nil
	n.fail["PublishVolume"] = &failure{world.Errorf(world.KindInternal, "", "away"), 1, false}
	n.wait(republishPeriod + time.Second)
	if u := inline("a"); !n.isReady(u) || n.node.UseStateOf(&u).Failures != 1 {
		t.Error("a failure makes the volume unready, or is not reported")
	}
	n.wait(republishPeriod + time.Second)
	n.expect("PublishVolume fails", "publish scratch")
}

// A volume is published again as often as the setting syncFrequency says.
func TestRepublishPeriod(t *testing.T) {
	n, u := newRepublishing(t, storagev1.NoneFSGroupPolicy)
	n.objects.SyncPeriod = 10 * time.Second
	n.need(u)
	n.run()
	n.calls = nil
	n.wait(35 * time.Second)
	if len(n.calls) != 3 {
		t.Errorf("calls in 35 s: %v", n.calls)
	}
}

// newRepublishing returns a node whose driver wants its volumes published again, and an inline
// volume of a pod with the group 7.
func newRepublishing(t *testing.T, policy storagev1.FSGroupPolicy) (*node, Use) {
	n, spec := newReady(t), noAttach()
	spec.RequiresRepublish, spec.FSGroupPolicy = new(true), &policy
	n.setDriverObject(spec)
	u := inline("a")
	u.FSGroup = new(int64(7))
	return n, u
}

// What a driver adds when it publishes a volume again belongs to the group of the pod, too, which
// has the volume meanwhile, and also after a failure.
func TestRepublishedFilesGetGroup(t *testing.T) {
	for _, policy := range []storagev1.FSGroupPolicy{storagev1.FileFSGroupPolicy,
		storagev1.NoneFSGroupPolicy} {
		n, u := newRepublishing(t, policy)
		n.need(u)
		n.calls = nil
		n.hold["ShareWithGroup"] = true
		n.wait(republishPeriod + time.Second)
		n.expect("publish scratch")
		if !n.isReady(u) {
			t.Error("the pod has lost the volume")
		}
		if policy == storagev1.NoneFSGroupPolicy {
			if _, isHeld := n.held["ShareWithGroup"]; isHeld {
				t.Error("the files of a driver without the policy are given to the group")
			}
			continue
		}
		n.fail["ShareWithGroup"] = &failure{world.Errorf(world.KindInternal, "", "no"), 1, false}
		n.release("ShareWithGroup")
		if !n.isReady(u) || n.node.UseStateOf(&u).Failures != 1 {
			t.Errorf("after a failure: %+v", n.node.UseStateOf(&u))
		}
		n.wait(time.Second)
		if state := n.node.UseStateOf(&u); state.Failures != 0 {
			t.Errorf("it is not tried again: %+v", state)
		}
		n.expect("group 7")
		n.wait(republishPeriod)
		n.expect("publish scratch", "group 7")
	}
}

// A volume that has to be given to a group, or to be published again, while its driver is not
// registered, waits for that without being planned all the time.
func TestRepublishWithoutRegistration(t *testing.T) {
	for _, isFirst := range []bool{true, false} {
		n, u := newRepublishing(t, storagev1.FileFSGroupPolicy)
		if !isFirst {
			n.need(u)
		}
		n.hold["PublishVolume"] = true
		if n.need(u); !isFirst {
			n.wait(republishPeriod + time.Second)
		}
		n.observe()
		n.release("PublishVolume")
		n.wait(5 * time.Minute)
		if wake := n.wakes[VolumeKey(UniqueName(driverName, u.Handle))]; !wake.IsZero() &&
			!wake.After(n.now) {
			t.Errorf("planned at %v, it is %v", wake, n.now)
		}
		if n.calls = nil; n.register() == nil || !n.isReady(u) {
			t.Error("not ready once the driver is registered again")
		}
		n.wait(republishPeriod)
		if !slices.Contains(n.calls, "group 7") {
			t.Errorf("calls %q, want the group set", n.calls)
		}
	}
}

// A group that cannot be set keeps a volume from nothing: it is published again all the same.
func TestRepublishThoughGroupFails(t *testing.T) {
	n, u := newRepublishing(t, storagev1.FileFSGroupPolicy)
	n.need(u)
	n.fail["ShareWithGroup"] = &failure{world.Errorf(world.KindInternal, "", "no"), -1, false}
	n.calls = nil
	n.wait(5*republishPeriod + 10*time.Second)
	published := 0
	for _, call := range n.calls {
		if call == "publish scratch" {
			published++
		}
	}
	if state := n.node.UseStateOf(&u); published < 4 || !state.Ready || // after a back-off
		!strings.Contains(state.Problem, "applyFSGroup failed") {
		t.Errorf("published %d times in five minutes; %+v", published, state)
	}
	spec, none := noAttach(), storagev1.NoneFSGroupPolicy
	spec.FSGroupPolicy = &none
	n.setDriverObject(spec)
	if n.wait(2 * republishPeriod); n.node.UseStateOf(&u).Problem != "" {
		t.Errorf("the group is not needed any more: %+v", n.node.UseStateOf(&u))
	}
}

// A token that is due is renewed before its driver gets it. One that cannot be renewed is used
// until it expires, and no longer.
func TestRepublishRenewsTokens(t *testing.T) {
	n := newReady(t)
	spec := noAttach()
	spec.RequiresRepublish = new(true)
	spec.TokenRequests = []storagev1.TokenRequest{{Audience: "vault",
		ExpirationSeconds: new(int64(600))}}
	n.setDriverObject(spec)
	u := inline("a")
	n.need(u)
	last := func() string {
		call := n.requests[len(n.requests)-1].(*world.PublishVolume)
		return call.VolumeContext[world.CSITokensKey]
	}
	n.wait(8*time.Minute - 30*time.Second)
	if !strings.Contains(last(), `"token-1"`) {
		t.Errorf("renewed early: %s", last())
	}
	n.wait(time.Minute)
	if !strings.Contains(last(), `"token-2"`) {
		t.Errorf("not renewed: %s", last())
	}
	n.fail["CreateToken"] = &failure{world.Errorf(world.KindUnavailable, "", "away"), 1 << 20, false}
	n.wait(9 * time.Minute)
	published := len(n.requests)
	if !strings.Contains(last(), `"token-2"`) || n.node.UseStateOf(&u).Failures != 0 {
		t.Errorf("not used until it expires: %s", last())
	}
	n.wait(5 * time.Minute)
	if s := n.node.UseStateOf(&u); len(n.requests) > published+1 || !n.isReady(u) ||
		!strings.Contains(s.Problem, "away") {
		t.Errorf("%d calls, %+v", len(n.requests)-published, s)
	}
}

// An inline volume needs a CSIDriver that allows it.
func TestLifecycleModes(t *testing.T) {
	n := newNode(t)
	n.run().register()
	if s := n.need(inline("a")); !strings.Contains(s.Problem, "(no CSIDriver object)") {
		t.Errorf("got %+v", s)
	}
}

// An administrator corrects the options of a persistent volume: pods that wait for it are given it
// with those. A pod that has it keeps what it has.
func TestCorrectedMountOptions(t *testing.T) {
	n := newReady(t)
	wrong := use("a")
	wrong.MountOptions = []string{"wrong"}
	refusal := world.Errorf(world.KindInvalid, "StageVolume", "wrong fs type")
	n.fail["StageVolume"] = &failure{err: refusal, times: 1}
	if state := n.need(wrong); state.Ready || state.Problem == "" {
		t.Fatalf("got %+v", state)
	}
	corrected := use("a")
	corrected.MountOptions = []string{"noatime"}
	n.need(corrected)
	n.wait(10 * time.Minute)
	flags := n.flags()
	if !n.isReady(corrected) || len(flags) < 2 || flags[len(flags)-1] != "publish noatime" ||
		flags[len(flags)-2] != "stage noatime" {
		t.Errorf("ready %v, mounted with %q", n.isReady(corrected), flags)
	}
	n.need(wrong)
	v := n.node.Volumes[UniqueName(driverName, "h1")]
	if got := v.Uses[corrected.target()].MountOptions; got[0] != "noatime" {
		t.Errorf("a pod that has the volume has options %q now", got)
	}
}
