package oracle

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

const (
	csiDriver  = "a.test"
	csiStaging = "/var/lib/kubelet/plugins/kubernetes.io/csi/a.test/1/globalmount"
)

// csiTarget returns where the volume of a pod has to be published.
func csiTarget(uid string) string {
	return podsDir + "/" + uid + "/volumes/kubernetes.io~csi/pv/mount"
}

// writeObject adds the creation of an object, or its change by a client if it has one before.
func writeObject(s *script, before, after world.Object, incarnation int) {
	kind, object := truth.ObjectUpdated, after
	if resource, _ := before.Meta(); resource == "" {
		kind = truth.ObjectCreated
	}
	resource, meta := object.Meta()
	s.CheckFact(truth.Fact{Time: s.now, Kind: kind, Write: &truth.Write{Resource: resource,
		Namespace: meta.GetNamespace(), Name: meta.GetName(), Before: before, After: after,
		Incarnation: incarnation}})
}

// nodeWith returns the Node with a volume in its status.
func nodeWith(inUse, attached bool) world.Object {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	name := v1.UniqueVolumeName("kubernetes.io/csi/a.test^h")
	if inUse {
		n.Status.VolumesInUse = []v1.UniqueVolumeName{name}
	}
	if attached {
		n.Status.VolumesAttached = []v1.AttachedVolume{{Name: name}}
	}
	return world.Object{Node: n}
}

// csiObjects adds the claim "data", which is bound to the volume with the handle "h", and the Node,
// which has it attached and in use.
func csiObjects(s *script) {
	s.model.opts.NodeName = "node"
	writeObject(s, world.Object{}, world.Object{Claim: &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"},
		Spec:       v1.PersistentVolumeClaimSpec{VolumeName: "pv"}}}, 0)
	writeObject(s, world.Object{}, world.Object{Volume: &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv"}, Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{
				Driver: csiDriver, VolumeHandle: "h"}}}}}, 0)
	writeObject(s, world.Object{}, nodeWith(true, true), 0)
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.DriverStarted,
		Driver: &truth.Driver{Name: csiDriver, Stages: true}})
}

// csiPod has a pod with that claim be desired, and starts the agent.
func csiPod(s *script, uid string) {
	p := spec(uid, always, "app")
	p.Name = "web-" + uid
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	s.setDesired(p)
}

func csiFact(s *script, kind truth.Kind, handle, path string) {
	s.CheckFact(truth.Fact{Time: s.now, Kind: kind, Path: path,
		Volume: &truth.Volume{Driver: csiDriver, Handle: handle}})
	if kind == truth.VolumeUnpublished || kind == truth.VolumeUnstaged {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.Unmounted, Path: path})
	}
}

// csiVolumeUp stages and publishes the volume of a pod.
func csiVolumeUp(s *script, uid string) {
	csiFact(s, truth.VolumeStaged, "h", csiStaging)
	csiFact(s, truth.VolumePublished, "h", csiTarget(uid))
}

// csiStart starts the agent and a pod whose volume is published, and waits a minute.
func csiStart(s *script) run {
	s.AgentStarted(s.now)
	csiObjects(s)
	csiPod(s, "u1")
	csiVolumeUp(s, "u1")
	r := s.start(s.sandbox("u1", 0), "app", 0)
	s.wait(60)
	return r
}

// csiCall issues a call, and completes it after a second if done is set.
func csiCall(s *script, op world.OpID, body any, done bool) {
	switch call := body.(type) {
	case *world.StageVolume:
		call.Capability.Access = cmp.Or(call.Capability.Access, world.CSISingleNodeWriter)
	case *world.PublishVolume:
		call.Capability.Access = cmp.Or(call.Capability.Access, world.CSISingleNodeWriter)
	}
	s.CallIssued(s.now, &world.Effect{Op: op, Body: body, Deadline: s.now.Add(2 * time.Minute)})
	s.wait(1)
	if done {
		s.EventReceived(s.now, &world.Event{Time: s.now, Op: op, Body: &world.Done{}})
	}
}

// unattachedDriver is the object of a driver whose volumes are not attached.
func unattachedDriver() world.Object {
	no := false
	return world.Object{CSIDriver: &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: csiDriver},
		Spec: storagev1.CSIDriverSpec{AttachRequired: &no}}}
}

// withoutDriver deletes that object, and stages a volume some seconds later.
func withoutDriver(s *script, seconds float64) {
	driver := unattachedDriver()
	writeObject(s, world.Object{}, driver, 0)
	writeObject(s, nodeWith(true, true), nodeWith(false, false), 0)
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectDeleted, Write: &truth.Write{
		Resource: world.ResourceCSIDrivers, Name: csiDriver, Before: driver}})
	s.wait(seconds)
	csiCall(s, 1, csiStageCall(), true)
}

func csiVolumeH() world.CSIVolume {
	return world.CSIVolume{Driver: world.CSIDriver{Name: csiDriver}, Handle: "h"}
}

func csiStageCall() *world.StageVolume {
	return &world.StageVolume{CSIVolume: csiVolumeH(), StagingPath: csiStaging}
}

func csiPublishCall(uid string) *world.PublishVolume {
	return &world.PublishVolume{CSIVolume: csiVolumeH(), StagingPath: csiStaging,
		TargetPath: csiTarget(uid)}
}

func TestCSIVolumes(t *testing.T) {
	runCases(t, []testCase{
		{"published from start to end", "", func(s *script) {
			r := csiStart(s)
			r.exit(0, truth.CauseStop)
			csiFact(s, truth.VolumeUnpublished, "h", csiTarget("u1"))
		}},
		{"started without its volume", "csi-volumes", func(s *script) {
			s.AgentStarted(s.now)
			csiObjects(s)
			csiPod(s, "u1")
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"started without its volume, as its driver has lied", "", func(s *script) {
			s.AgentStarted(s.now)
			csiObjects(s)
			csiPod(s, "u1")
			csiFact(s, truth.VolumeNotPublished, "h", csiTarget("u1"))
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"a driver has lied, and nothing is at the target", "csi-volumes", func(s *script) {
			s.model.opts.Exists = func(path string) bool { return path != csiTarget("u1") }
			csiStartAgent(s)
			csiFact(s, truth.VolumeNotPublished, "h", csiTarget("u1"))
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"a driver has lied, and another volume is at the target", "csi-volumes", func(s *script) {
			csiStartAgent(s)
			csiFact(s, truth.VolumePublished, "other", csiTarget("u1"))
			csiFact(s, truth.VolumeNotPublished, "h", csiTarget("u1"))
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"a driver has lied to an earlier agent", "csi-volumes", func(s *script) {
			csiStartAgent(s)
			csiFact(s, truth.VolumeNotPublished, "h", csiTarget("u1"))
			s.restartAgent()
			s.wait(180)
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"started with another volume", "csi-volumes", func(s *script) {
			s.AgentStarted(s.now)
			csiObjects(s)
			csiPod(s, "u1")
			csiFact(s, truth.VolumePublished, "other", csiTarget("u1"))
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"started without a volume of its own spec", "csi-volumes", func(s *script) {
			s.AgentStarted(s.now)
			csiObjects(s)
			p := spec("u1", always, "app")
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
				CSI: &v1.CSIVolumeSource{Driver: csiDriver}}}}
			s.setDesired(p)
			s.start(s.sandbox("u1", 0), "app", 0)
		}},
		{"published for a pod that does not have it", "csi-volumes", func(s *script) {
			s.AgentStarted(s.now)
			csiObjects(s)
			s.setDesired(spec("u1", always, "app"))
			csiFact(s, truth.VolumePublished, "h", csiTarget("u1"))
		}},
		{"unpublished while a container runs", "csi-volumes volumes", func(s *script) {
			csiStart(s)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			csiFact(s, truth.VolumeUnpublished, "h", csiTarget("u1"))
		}},
	})
}

func TestCSIData(t *testing.T) {
	runCases(t, []testCase{
		{"content is removed", "csi-data", func(s *script) {
			csiStart(s)
			s.changePath(truth.PathRemoved, csiStaging+"/file", "")
		}},
		{"content is removed by a user", "", func(s *script) {
			csiStart(s)
			s.changePath(truth.PathRemoved, csiStaging+"/file", truth.CauseAdministrator)
		}},
		{"unmounted by the agent", "csi-data", func(s *script) {
			r := csiStart(s)
			r.exit(0, truth.CauseStop)
			s.changePath(truth.Unmounted, csiTarget("u1"), "")
		}},
		{"unmounted by a reboot", "", func(s *script) {
			r := csiStart(s)
			r.exit(0, truth.CauseReboot)
			s.changePath(truth.Unmounted, csiTarget("u1"), truth.CauseReboot)
		}},
	})
}

func TestCSIOrder(t *testing.T) {
	runCases(t, []testCase{
		{"unstaged while it is published", "csi-order", func(s *script) {
			csiStart(s)
			csiFact(s, truth.VolumeUnstaged, "h", csiStaging)
		}},
		{"staged twice", "csi-order", func(s *script) {
			csiStart(s)
			csiFact(s, truth.VolumeStaged, "h", csiStaging+"2")
		}},
		{"unstaged after the last publication", "", func(s *script) {
			r := csiStart(s)
			r.exit(0, truth.CauseStop)
			csiFact(s, truth.VolumeUnpublished, "h", csiTarget("u1"))
			csiFact(s, truth.VolumeUnstaged, "h", csiStaging)
		}},
	})
}

// csiStartAgent starts the agent and a pod whose volume is not published.
func csiStartAgent(s *script) {
	s.AgentStarted(s.now)
	csiObjects(s)
	csiPod(s, "u1")
}

func TestCSICalls(t *testing.T) {
	start := csiStartAgent
	runCases(t, []testCase{
		{"one after the other", "", func(s *script) {
			start(s)
			csiCall(s, 1, csiStageCall(), true)
			csiCall(s, 2, csiPublishCall("u1"), true)
		}},
		{"two at a time", "csi-calls", func(s *script) {
			start(s)
			csiCall(s, 1, csiStageCall(), false)
			csiCall(s, 2, csiPublishCall("u1"), false)
		}},
		{"another one after the deadline", "", func(s *script) {
			start(s)
			csiCall(s, 1, csiStageCall(), false)
			s.wait(120)
			csiCall(s, 2, csiStageCall(), false)
		}},
		{"another one by the next agent", "", func(s *script) {
			start(s)
			csiCall(s, 1, csiStageCall(), false)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			csiCall(s, 1, csiStageCall(), true)
		}},
		{"statistics at the same time", "", func(s *script) {
			start(s)
			csiCall(s, 1, csiStageCall(), false)
			csiCall(s, 2, &world.GetVolumeStats{Handle: "h"}, false)
		}},
	})
}

func TestReasonsOfCSICalls(t *testing.T) {
	start := csiStartAgent
	unstage := &world.UnstageVolume{Driver: world.CSIDriver{Name: csiDriver}, Handle: "h"}
	runCases(t, []testCase{
		{"staged before the Node has it in use", "csi-calls", func(s *script) {
			start(s)
			writeObject(s, nodeWith(true, true), nodeWith(false, true), 0)
			csiCall(s, 1, csiStageCall(), true)
		}},
		{"staged before it is attached", "csi-calls", func(s *script) {
			start(s)
			writeObject(s, nodeWith(true, true), nodeWith(true, false), 0)
			s.wait(60)
			csiCall(s, 1, csiStageCall(), true)
		}},
		{"staged without an attachment, as its driver wants", "", func(s *script) {
			start(s)
			writeObject(s, world.Object{}, unattachedDriver(), 0)
			writeObject(s, nodeWith(true, true), nodeWith(false, false), 0)
			s.wait(60)
			csiCall(s, 1, csiStageCall(), true)
		}},
		{"staged without an attachment, as its driver wanted", "csi-calls", func(s *script) {
			start(s)
			withoutDriver(s, 60)
		}},
		{"the agent cannot know that its driver wants one now", "", func(s *script) {
			start(s)
			s.loseCall("WatchObjects")
			withoutDriver(s, 60)
		}},
		{"the agent could not know it long ago", "csi-calls", func(s *script) {
			start(s)
			s.loseCall("WatchObjects")
			withoutDriver(s, 200)
		}},
		{"unstage is called while it is published", "csi-calls", func(s *script) {
			csiStart(s)
			csiCall(s, 1, unstage, true)
		}},
		{"published again by the next agent", "csi-calls", func(s *script) {
			start(s)
			csiCall(s, 1, csiPublishCall("u1"), true)
			csiVolumeUp(s, "u1")
			s.start(s.sandbox("u1", 0), "app", 0)
			s.AgentKilled(s.now)
			s.AgentStarted(s.now)
			csiCall(s, 1, csiPublishCall("u1"), true)
		}},
		{"published again, as the answer was lost", "", func(s *script) {
			start(s)
			csiCall(s, 1, csiPublishCall("u1"), false)
			csiVolumeUp(s, "u1")
			s.wait(120)
			csiCall(s, 2, csiPublishCall("u1"), true)
		}},
	})
}

// csiRemovePod has csiStart, and ends the pod, but not what its volume is published and staged at.
func csiRemovePod(s *script) {
	r := csiStart(s)
	s.PodNoLongerDesired(s.now, "u1")
	r.change(truth.StopRequested, "")
	s.wait(1)
	r.exit(0, truth.CauseStop)
	s.changeSandbox(truth.SandboxStopped, "u1-s0")
	r.change(truth.ContainerRemoved, "")
	s.changeSandbox(truth.SandboxRemoved, "u1-s0")
}

func TestCSIRelease(t *testing.T) {
	runCases(t, []testCase{
		{"let go", "", func(s *script) {
			csiRemovePod(s)
			csiFact(s, truth.VolumeUnpublished, "h", csiTarget("u1"))
			csiFact(s, truth.VolumeUnstaged, "h", csiStaging)
			pollAfter(s, 600)
		}},
		{"not let go", "csi-release", func(s *script) {
			csiRemovePod(s)
			pollAfter(s, 600)
		}},
		{"not let go, as its driver is away", "", func(s *script) {
			csiRemovePod(s)
			s.CheckFact(truth.Fact{Time: s.now, Kind: truth.DriverEnded,
				Driver: &truth.Driver{Name: csiDriver}})
			pollAfter(s, 600)
		}},
		{"not in use for the Node while it is published", "csi-release", func(s *script) {
			csiStart(s)
			writeObject(s, nodeWith(true, true), nodeWith(false, true), 1)
		}},
		{"not in use for the Node after its end", "", func(s *script) {
			csiRemovePod(s)
			csiFact(s, truth.VolumeUnpublished, "h", csiTarget("u1"))
			csiFact(s, truth.VolumeUnstaged, "h", csiStaging)
			writeObject(s, nodeWith(true, true), nodeWith(false, true), 1)
		}},
	})
	s := newScript()
	csiRemovePod(s)
	want := fmt.Sprintf("no pod has a.test^h, but it is published at %s\n"+
		"no pod has a.test^h, but it is staged at %s", csiTarget("u1"), csiStaging)
	if got := s.unsettled(); !strings.Contains(got, want) {
		t.Errorf("unsettled: %s\nwant %s", got, want)
	}
}

// csiShare has the agent give what is at a path to a group, within half an hour.
func csiShare(s *script, path string) {
	s.CallIssued(s.now, &world.Effect{Op: 9, Body: &world.ShareWithGroup{Path: path},
		Deadline: s.now.Add(30 * time.Minute)})
}

// A volume is not let go for one pod while it is given to the group of another.
func TestCSIGroup(t *testing.T) {
	const minute, held, late = 60, "", "csi-release"
	answer := func(s *script) {
		s.EventReceived(s.now, &world.Event{Op: 9, Body: &world.Done{}})
	}
	// share has the files be given to a group, and something happen ten minutes later.
	share := func(path string, then func(*script), seconds float64) func(*script) {
		return func(s *script) {
			csiRemovePod(s)
			csiPod(s, "u2")
			if path == csiTarget("u2") {
				csiFact(s, truth.VolumePublished, "h", path)
			}
			csiShare(s, path)
			s.wait(10 * minute)
			then(s)
			pollAfter(s, seconds)
		}
	}
	none := func(*script) {}
	runCases(t, []testCase{
		{"it is in flight", held, share(csiTarget("u2"), none, 0)},
		{"of another volume", late, share(podsDir+"/u2/volumes/kubernetes.io~empty-dir/d", none, 0)},
		{"its deadline has just passed", held, share(csiTarget("u2"), none, 23*minute)},
		{"its deadline has passed", late, share(csiTarget("u2"), none, 26*minute)},
		{"it has just been answered", held, share(csiTarget("u2"), answer, 3*minute)},
		{"it was answered", late, share(csiTarget("u2"), answer, 6*minute)},
		{"another agent waits for nothing", late, share(csiTarget("u2"), (*script).restartAgent,
			6*minute)},
		{"its claim is deleted", held, func(s *script) {
			csiRemovePod(s)
			csiPod(s, "u2")
			csiFact(s, truth.VolumePublished, "h", csiTarget("u2"))
			delete(s.model.volumes.claims, "ns/data")
			csiShare(s, csiTarget("u2"))
			pollAfter(s, 10*minute)
		}},
		{"where a driver has lied", held, func(s *script) {
			csiRemovePod(s)
			csiPod(s, "u2")
			s.PodNoLongerDesired(s.now, "u2") // the agent has not heard of it yet
			csiShare(s, csiTarget("u2"))
			pollAfter(s, 10*minute)
		}},
		{"and is called for meanwhile", "csi-calls", func(s *script) {
			csiStart(s)
			csiShare(s, csiTarget("u1"))
			csiCall(s, 1, csiPublishCall("u1"), true)
		}},
	})
}

// A call whose deadline has passed holds no volume.
func TestAwaitsDriver(t *testing.T) {
	s := newScript()
	csiStart(s)
	p := s.model.pods["u1"]
	if p.awaitsDriver(s.now) {
		t.Error("no call is in flight")
	}
	s.model.csi.inFlight[csiName{csiDriver, "h"}] = csiInFlight{deadline: s.now.Add(time.Minute)}
	if !p.awaitsDriver(s.now) || p.awaitsDriver(s.now.Add(time.Minute)) {
		t.Error("the call holds the volume until its deadline")
	}
}
