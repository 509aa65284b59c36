package csi

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// device returns the use of the block volume pv-1 by a pod.
func device(uid string) Use {
	mode := v1.PersistentVolumeBlock
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"},
		Spec: v1.PersistentVolumeSpec{VolumeMode: &mode, MountOptions: []string{"noatime"},
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: driverName, VolumeHandle: "h1", FSType: "ext4"}}}}
	p := pod(uid)
	gid := int64(7)
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
	return PersistentUse(p, &v1.Volume{Name: "data"}, pv, false)
}

const blocks = "/k/plugins/kubernetes.io/csi/volumeDevices/"

// A device is published at a file, bound and linked for each pod, at the paths of a kubelet. No
// group is set, and no file system is asked for.
func TestDevice(t *testing.T) {
	n := newReady(t)
	for _, uid := range []string{"a", "b"} {
		if s := n.need(device(uid)); !s.Ready {
			t.Fatalf("not ready: %+v", s)
		}
		link := n.files["/k/pods/"+uid+"/volumeDevices/kubernetes.io~csi/pv-1"]
		bound := blocks + "pv-1/dev/" + uid
		if !n.isMounted(bound) || !n.heldDevices[bound] || link != "-> "+blocks+"publish/pv-1/"+uid {
			t.Errorf("not bound or held, or linked to %q", link)
		}
	}
	const mapped = `a SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-1" `
	if want := []string{mapped + `globalMapPath "` + blocks + `pv-1/dev"`,
		mapped + `volumeMapPath "/k/pods/a/volumeDevices/kubernetes.io~csi"`,
	}; !slices.Equal(n.events[:2], want) || len(n.events) != 4 {
		t.Errorf("events %q, want %q and those of another pod", n.events, want)
	}
	n.expect("stage staging", "publish device pv-1", "publish device pv-1")
	stage := n.requests[0].(*world.StageVolume)
	if c := stage.Capability; !c.Block || c.FSType != "" || len(c.MountFlags) > 0 ||
		stage.StagingPath != blocks+"staging/pv-1" {
		t.Errorf("staged with %+v", stage)
	}
	data := n.files[blocks+"pv-1/data/vol_data.json"]
	if !strings.Contains(data, `"volumeHandle":"h1"`) ||
		!strings.Contains(data, `"specVolID":"pv-1"`) {
		t.Errorf("data %s", data)
	}
	if n.end("a") || n.end("b") {
		t.Error("a pod is still held")
	}
	n.expect("unpublish pv-1", "unpublish pv-1", "unstage staging")
	n.expectClean()
}

// Another agent finds the devices of pods, and lets go of those whose pod has gone.
func TestDevicesAreFound(t *testing.T) {
	n := newReady(t)
	n.need(device("a"))
	n.need(device("b"))
	delete(n.pods, "b")
	clear(n.heldDevices) // the machine was restarted, and the agent killed once more
	n.restart()
	n.register()
	u := device("a")
	u.HasRun = true
	if !n.need(u).Ready || !n.heldDevices[blocks+"pv-1/dev/a"] {
		t.Error("not ready after a restart, or not held")
	}
	n.expect("info", "unpublish pv-1")
	n.end("a")
	n.expectClean()

	n = newReady(t)
	n.hold["PublishVolume"] = true // and the agent is killed
	n.need(device("a"))
	delete(n.pods, "a")
	n.restart()
	if !n.node.HoldsPod("a") {
		t.Error("the publication that was in flight is not found")
	}
	n.register()
	if n.node.HoldsPod("a") {
		t.Error("it is still held")
	}
	n.expectClean()
}

// A volume is used in one way at a time.
func TestDeviceAndFileSystem(t *testing.T) {
	n := newReady(t)
	n.need(device("a"))
	if s, _ := n.node.Use(use("b"), n.now); !strings.Contains(s.Problem, "another way") {
		t.Errorf("got %+v, want a refusal", s)
	}
	n.end("a")
	if s := n.need(use("b")); !s.Ready {
		t.Errorf("got %+v after the device was let go", s)
	}
	n.end("b")
	n.expectClean()
}

// A pod whose author has named a volume, and that waits for it to be attached, keeps no pod with a
// claim from using it as a device. It gets it when that pod has let it go.
func TestInlineUseKeepsNoDevice(t *testing.T) {
	n := newNode(t)
	n.run().register()
	waits := migratedUse("a", "ext4")
	n.need(waits)
	n.planned = nil
	n.need(device("b"))
	if s, _ := n.node.Use(waits, n.now); !strings.Contains(s.Problem, "another way") {
		t.Errorf("got %+v, want a refusal", s)
	}
	if !slices.Contains(n.planned, "a") || n.node.HoldsPod("a") {
		t.Errorf("the pod that has lost the volume is not planned, or held: %q", n.planned)
	}
	n.attach()
	n.run()
	if !n.isReady(device("b")) {
		t.Errorf("got %+v", n.node.UseStateOf(&Use{UID: "b"}))
	}
	if s, _ := n.node.Use(waits, n.now); !strings.Contains(s.Problem, "another way") {
		t.Errorf("got %+v, want a refusal", s)
	}
	n.end("b")
	n.need(waits)
	n.attach()
	if n.run(); !n.isReady(waits) {
		t.Errorf("got %+v after the device was let go", n.node.UseStateOf(&waits))
	}
	if s, _ := n.node.Use(device("b"), n.now); !strings.Contains(s.Problem, "another way") {
		t.Errorf("got %+v, want a refusal: the other pod has the volume", s)
	}
	n.end("a")
	n.expectClean()
}

// Before the search has seen what is staged, the mode of a volume does not change. A pod that was
// refused is planned again then.
func TestModeWaitsForSearch(t *testing.T) {
	n := newNode(t)
	n.pods["a"], n.pods["b"] = true, true
	waits := migratedUse("a", "ext4")
	_, _ = n.node.Use(waits, n.now)
	if s, _ := n.node.Use(device("b"), n.now); !strings.Contains(s.Problem, "another way") {
		t.Errorf("got %+v, want a refusal", s)
	}
	n.queue = append(n.queue, VolumeKey(UniqueName(driverName, "h1")))
	if n.run(); n.allPlanned == 0 {
		t.Error("the refused pod is not planned")
	}
	n.register()
	n.need(device("b"))
	n.attach()
	if n.run(); !n.isReady(device("b")) {
		t.Error("not ready")
	}
}

// A driver that publishes something else than a device is asked again.
func TestNoDevice(t *testing.T) {
	n := newReady(t)
	n.lies = 1
	s := n.need(device("a"))
	if want := `MapVolume.MapPodDevice failed for volume "pv-1" : NodePublishVolume`; s.Ready ||
		!strings.HasPrefix(s.Problem, want) {
		t.Errorf("got %+v", s)
	}
	if n.wait(volumeop.BackoffFirst); !n.isReady(device("a")) {
		t.Error("not published again")
	}
}

// The directories of staged and published devices are no volumes.
func TestNameOfDirectoryOfBlocks(t *testing.T) {
	for _, name := range []string{"staging", "publish"} {
		n := newReady(t)
		u := device("a")
		u.SpecName = name
		s, _ := n.node.Use(u, n.now)
		if s.Ready || !strings.Contains(s.Problem, "cannot have the name") {
			t.Errorf("%s: got %+v, want a refusal", name, s)
		}
		n.run()
		n.expect()
		u = use("a")
		u.SpecName = name
		if s := n.need(u); !s.Ready {
			t.Errorf("%s: got %+v of a file system", name, s)
		}
	}
}

// A volume stays staged while a device of it is mounted of which the agent does not know.
func TestUnknownDeviceKeepsTheVolumeStaged(t *testing.T) {
	for _, at := range []string{blocks + "pv-1/dev/other", blocks + "publish/pv-1/other"} {
		n := newReady(t)
		n.need(device("a"))
		n.mount(at)
		n.end("a")
		n.wait(time.Hour)
		n.expect("stage staging", "publish device pv-1", "unpublish pv-1")
		n.mounts = nil
		n.wait(time.Hour)
		n.expect("unstage staging")
		n.expectClean()
	}
}

// The failures of a device have the names of its own steps, by which their events have another
// reason than those of file systems.
func TestStepsOfDevice(t *testing.T) {
	n := newReady(t)
	one := device("a")
	one.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	other := one
	other.UID = "b"
	n.need(one)
	if s := n.need(other); s.Problem != `MapVolume.SetUpDevice failed for volume "pv-1" : `+
		InUseElsewhere {
		t.Errorf("%+v", s)
	}
	n = newNode(t)
	n.run()
	if s := n.need(device("a")); !strings.HasPrefix(s.Problem, `MapVolume.SetUpDevice failed for `+
		`volume "pv-1" : kubernetes.io/csi: blockMapper.SetUpDevice failed to get CSI client: `) {
		t.Errorf("%+v", s)
	}
	v := n.node.Volumes[UniqueName(driverName, "h1")]
	n.node.handleAttachment(v, world.Event{Time: n.now,
		Err: world.Errorf(world.KindInternal, "GetObject", "no")}, n.env())
	if problem := v.Attachment.Attempts.Problem; !strings.HasPrefix(problem,
		`MapVolume.WaitForAttach failed for volume "pv-1" : `) {
		t.Error(problem)
	}
}
