package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// diskScript is a pod with an iSCSI volume of its own, and what happens to its disk.
type diskScript struct{ *script }

const (
	diskTarget = "iqn.2026-11.test:t"
	diskNode   = "/dev/iscsi/" + diskTarget + "-lun-1"
	diskRoot   = "/var/lib/kubelet/plugins/kubernetes.io/iscsi"
	diskGlobal = diskRoot + "/iface-default/10.0.0.1:3260-" + diskTarget + "-lun-1"
	diskOfPod  = podsDir + "/u1/volumes/kubernetes.io~iscsi/v"
)

func newDiskScript(s *script) diskScript {
	pod := spec("u1", always, "app")
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "10.0.0.1", IQN: diskTarget, Lun: 1}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v", MountPath: "/data"}}
	s.AgentStarted(s.now)
	s.setDesired(pod)
	s.addFact(truth.SessionOpened, truth.Fact{Source: diskTarget, Path: "10.0.0.1:3260",
		NewPath: "default"})
	s.addFact(truth.DiskAppeared, truth.Fact{Source: diskNode, Path: "/dev/sdb"})
	return diskScript{s}
}

func (s diskScript) mount(paths ...string) diskScript {
	for _, path := range paths {
		s.addFact(truth.Mounted, truth.Fact{Path: path, Source: diskNode, NewPath: "/"})
	}
	return s
}

func (s diskScript) unmount(path string) diskScript {
	s.addFact(truth.Unmounted, truth.Fact{Path: path})
	return s
}

// removed removes the disk.
func (s diskScript) removed(cause string) {
	s.addFact(truth.DiskRemoved, truth.Fact{Source: diskNode, Path: "/dev/sdb", Cause: cause})
}

func (s diskScript) repeatLogin() {
	s.addFact(truth.SessionRepeated, truth.Fact{Source: diskTarget, Path: "10.0.0.1:3260",
		NewPath: "default"})
}

func TestDisks(t *testing.T) {
	runCases(t, []testCase{
		{"the pod first, then the node, then the disk", "", func(s *script) {
			d := newDiskScript(s).mount(diskGlobal, diskOfPod)
			d.unmount(diskOfPod).unmount(diskGlobal).removed("")
		}},
		{"removed while the node has it mounted", "disks", func(s *script) {
			newDiskScript(s).mount(diskGlobal).removed("")
		}},
		{"removed while a device is bound", "disks", func(s *script) {
			d := newDiskScript(s)
			s.addFact(truth.Mounted, truth.Fact{Path: diskRoot + "/volumeDevices/x/u1",
				Source: nodeDisk, NewPath: diskNode})
			d.removed("")
		}},
		{"its own file is written into it", "disks", func(s *script) {
			newDiskScript(s).mount(diskGlobal)
			s.changePath(truth.PathWritten, diskGlobal+"/iscsi.json", "")
		}},
		{"a loss of power", "", func(s *script) {
			newDiskScript(s).mount(diskGlobal).removed(truth.CauseReboot)
		}},
		{"unmounted for the node before the pod", "disks", func(s *script) {
			newDiskScript(s).mount(diskGlobal, diskOfPod).unmount(diskGlobal)
		}},
		{"a login to a session that is there", "disks", func(s *script) {
			d := newDiskScript(s)
			s.wait(2 * sessionsKnown.Seconds())
			d.repeatLogin()
		}},
		{"a login just after the agent has started", "", func(s *script) {
			newDiskScript(s).repeatLogin()
		}},
		{"a login after a command was lost", "", func(s *script) {
			d := newDiskScript(s)
			s.model.opts.FaultPossible = func(call string, _, _ time.Time) bool {
				return call == "RunISCSIAdm"
			}
			s.wait(2 * sessionsKnown.Seconds())
			d.repeatLogin()
		}},
	})
}

// A target is given what a Secret has that a volume of the session names, and no more.
func TestSecretsOfSessions(t *testing.T) {
	try := func(hasCHAP bool, portal string, settings map[string]string) func(s *script) {
		return func(s *script) {
			newDiskScript(s)
			v := s.model.podsInOrder[0].spec.Spec.Volumes[0].ISCSI
			v.SessionCHAPAuth, v.SecretRef = hasCHAP, &v1.LocalObjectReference{Name: "chap"}
			s.model.objectHistory.states = map[string][]map[string][]byte{
				objectKey(world.ResourceSecrets, s.model.podsInOrder[0].spec.Namespace, "chap"): {
					{chapPrefix + "username": []byte("a")}, {chapPrefix + "username": []byte("b")}}}
			s.addFact(truth.SessionTried, truth.Fact{Source: diskTarget, Path: portal, NewPath: "default",
				Settings: settings})
		}
	}
	user := func(name string) map[string]string {
		return map[string]string{chapPrefix + "authmethod": "CHAP", chapPrefix + "username": name,
			"node.session.scan": "manual"}
	}
	const own = "10.0.0.1:3260"
	runCases(t, []testCase{
		{"its secret", "", try(true, own, user("a"))},
		{"a later state of it", "", try(true, own, user("b"))},
		{"another one", "disks", try(true, own, user("c"))},
		{"a setting that it has not", "disks", try(true, own,
			map[string]string{chapPrefix + "password": "a"})},
		{"none", "", try(false, own, map[string]string{"node.session.scan": "manual"})},
		{"of a volume without CHAP", "disks", try(false, own, user("a"))},
		{"a portal that no volume names", "", try(true, "10.0.0.9:3260", user("c"))},
	})
}

// The mark of a fibre channel disk has its name.
func TestMarksOfDisks(t *testing.T) {
	mark := func(at, cause string) func(s *script) {
		return func(s *script) {
			lun := int32(12)
			newDiskScript(s)
			s.model.podsInOrder[0].spec.Spec.Volumes[0].VolumeSource = v1.VolumeSource{
				FC: &v1.FCVolumeSource{TargetWWNs: []string{"50060a0b00c20001"}, Lun: &lun}}
			s.changePath(truth.PathCreated, "/var/lib/kubelet/plugins/kubernetes.io/fc/.attached/"+at, cause)
		}
	}
	const own = "50060a0b00c20001-lun-12/"
	runCases(t, []testCase{
		{"its own", "", mark(own+"naa.50060a0b00c200000012", "")},
		{"another one", "disks", mark(own+"naa.50060a0b00c200000013", "")},
		{"another one of a device", "disks", mark("volumeDevices/"+own+"naa.5", "")},
		{"without a name", "", mark(own[:len(own)-1], "")},
		{"of a disk that is not known", "", mark("x/naa.5", "")},
		{"by an administrator", "", mark(own+"naa.5", truth.CauseAdministrator)},
	})
}

// A container sees the disk of its pod, and no other one.
func TestDiskOfContainer(t *testing.T) {
	start := func(source string) func(s *script) {
		return func(s *script) {
			newDiskScript(s)
			s.addFact(truth.Mounted, truth.Fact{Path: diskOfPod, Source: source, NewPath: "/"})
			claimScript{s, diskOfPod}.start(diskOfPod)
		}
	}
	runCases(t, []testCase{
		{"its own", "", start(diskNode)},
		{"another one", "claims", start("/dev/iscsi/" + diskTarget + "-lun-2")},
	})
}

// What is left when no pod needs it is not settled.
func TestUnsettledDisks(t *testing.T) {
	s := newScript()
	newDiskScript(s)
	if got := s.model.unsettledDisks(); len(got) > 0 {
		t.Errorf("%v, and a pod needs all", got)
	}
	s.model.pods["u1"].spec = nil
	if got := s.model.unsettledDisks(); len(got) != 2 {
		t.Errorf("%v for a session and a disk that no pod needs", got)
	}
}

// A disk that a scan has brought which was for another one is settled, unless the agent has marked
// it as taken. That a pod needs it is not enough: the agent may not know of its claim yet.
func TestUnaskedDisks(t *testing.T) {
	const mark = "/var/lib/kubelet/plugins/kubernetes.io/fc/.attached/"
	const wwn = "50060a0b00c20001"
	for _, c := range []struct {
		name                      string
		before, marked, lookedFor bool
		unmarked                  bool
		want                      int
	}{
		{"nothing has asked for it", false, false, false, false, 0},
		{"the agent has marked it before", true, false, false, false, 1},
		{"the agent has marked it", false, true, false, false, 1},
		{"it came after the last look, and before the mark went", true, false, false, true, 0},
		{"the agent has looked for it, and removed the mark", true, false, true, true, 1},
	} {
		s := newScript()
		pod := spec("u1", always, "app")
		pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			FC: &v1.FCVolumeSource{TargetWWNs: []string{wwn}, Lun: new(int32(1))}}}}
		s.AgentStarted(s.now)
		s.setDesired(pod)
		if c.before {
			s.haveFiles(mark + wwn + "-lun-1")
		}
		s.Called(s.now, &world.ScanSCSIHosts{})
		s.addFact(truth.DiskAppeared, truth.Fact{Source: "/dev/fc/50060a0b00c20000-lun-1",
			Path: "/dev/sdb", Cause: truth.CauseUnasked})
		s.haveFiles()
		if c.marked {
			s.changePath(truth.PathCreated, mark+wwn+"-lun-1", "")
		}
		if c.lookedFor {
			s.Called(s.now, &world.FindSCSIDisks{Unit: world.LogicalUnit{WWNs: []string{wwn}, LUN: 1}})
		}
		if c.unmarked {
			s.changePath(truth.PathRemoved, mark+wwn+"-lun-1", "")
		}
		s.PodNoLongerDesired(s.now, "u1")
		if got := s.model.unsettledDisks(); len(got) != c.want {
			t.Errorf("%s: %v, want %d", c.name, got, c.want)
		}
	}
}

// A pod that has a disk by another name has it from another mount of the node.
func TestDiskOfTwoNames(t *testing.T) {
	const root, wwn = "/var/lib/kubelet/plugins/kubernetes.io/fc/", "50060a0b00c20001"
	node, name, other := "/dev/fc/50060a0b00c20000-lun-1", wwn+"-lun-1", "350060a0b00c200000001"
	lun := int32(1)
	two := func(s *script) diskScript {
		pod := spec("u1", always, "app")
		pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
			FC: &v1.FCVolumeSource{TargetWWNs: []string{wwn}, Lun: &lun}}}}
		s.AgentStarted(s.now)
		s.setDesired(pod)
		s.addFact(truth.DiskAppeared, truth.Fact{Source: node, Path: "/dev/sdb"})
		for _, at := range []string{root + name, root + other, podsDir + "/u1/volumes/kubernetes.io~fc/v",
			podsDir + "/u1/volume-subpaths/v/app/0"} {
			s.addFact(truth.Mounted, truth.Fact{Path: at, Source: node, NewPath: "/"})
		}
		return diskScript{s}
	}
	runCases(t, []testCase{
		{"another name of the disk", "", func(s *script) { two(s).unmount(root + other) }},
		{"the name that the pod has", "disks", func(s *script) { two(s).unmount(root + name) }},
	})
}
