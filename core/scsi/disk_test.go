package scsi

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apitypes "k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

func types(uid string) apitypes.UID { return apitypes.UID(uid) }

const (
	discover = "-m discoverydb -t sendtargets -p " + portal + " -I default "
	node     = "-m node -p " + portal + " -T " + iqn + " -I default "
)

// loginOf is a login of a disk that was not there.
var loginOf = []string{discover + "-o new", discover + "--discover",
	node + "-o update -n node.session.scan -v manual", node + "--login",
	"-m node -p " + portal + " -T " + iqn + " -o update -n node.startup -v manual"}

func (w *rig) expect(lines ...string) {
	w.t.Helper()
	if got, want := w.take(), strings.Join(lines, "\n"); got != want {
		w.t.Errorf("calls:\n%s\nwant:\n%s", got, want)
	}
}

// A disk is written down, logged in to, scanned for and mounted, once for two pods; after both it
// is unmounted, removed, logged out of, and its directory goes last.
func TestLifeOfDisk(t *testing.T) {
	w := newRig(t)
	if state := w.use(useBy("u1", 0, nil)); !state.Ready {
		t.Fatalf("%+v", state)
	}
	w.expect(slices.Concat([]string{"MakeDir " + rootA, "WriteFile " + rootA + "/iscsi.json"}, loginOf,
		[]string{"Scan host1 0", "MountDevice /dev/sd10 ext4 false []"})...)
	if state := w.use(useBy("u2", 0, nil)); !state.Ready || w.take() != "" {
		t.Errorf("the second pod: %+v", state)
	}
	w.release("u1")
	w.expect("")
	w.release("u2")
	w.expect("Unmount "+rootA, "Remove 0", node+"--logout", node+"-o delete", "RemoveTree "+rootA)
	if len(w.n.Disks) > 0 || len(w.n.Owners) > 0 || len(w.sessions) > 0 {
		t.Errorf("left: %v, %v, %v", w.n.Disks, w.n.Owners, w.sessions)
	}
}

// A pod waits until the Node says that the volume is attached.
func TestDiskWaitsForAttachment(t *testing.T) {
	w := newRig(t)
	w.waits = true
	if state := w.use(useBy("u", 0, nil)); state.Ready || w.take() != "" {
		t.Errorf("%+v", state)
	}
	if names := w.n.VolumesInUse(&v1.Node{}); len(names) != 1 ||
		names[0] != "kubernetes.io/iscsi/10.0.0.1:"+iqn+":0" {
		t.Errorf("in use: %v", names)
	}
	w.waits = false
	if state := w.use(useBy("u", 0, nil)); !state.Ready {
		t.Errorf("%+v", state)
	}
}

// Mount options that an administrator has corrected reach a pod whose disk is not mounted yet.
func TestCorrectedMountOptions(t *testing.T) {
	w := newRig(t)
	wrong, corrected := useBy("u", 0, nil), useBy("u", 0, nil)
	wrong.Options, corrected.Options = []string{"noatme"}, []string{"noatime"}
	w.fail["[noatme]"] = world.Errorf(world.KindInternal, "MountDevice", "bad option")
	if state := w.use(wrong); state.Ready || !strings.Contains(state.Problem, "bad option") {
		t.Fatalf("%+v", state)
	}
	w.take()
	w.use(corrected)
	w.after(time.Minute)
	w.expect("MountDevice /dev/sd10 ext4 false [noatime]")
	if state := w.use(wrong); !state.Ready || w.take() != "" { // it is the disk's by now
		t.Errorf("%+v", state)
	}
}

// What is refused, by the field that the message names.
func TestFieldsAreChecked(t *testing.T) {
	for field, changes := range map[string][]func(*v1.ISCSIVolumeSource){
		"iscsi.iqn": {
			func(s *v1.ISCSIVolumeSource) { s.IQN = "iqn.2026-11.test:../../../etc" },
			func(s *v1.ISCSIVolumeSource) { s.IQN = "--version" },
			func(s *v1.ISCSIVolumeSource) { s.IQN = iqn + "\n-o" },
			func(s *v1.ISCSIVolumeSource) { s.IQN = "iqn.2026-11.test:" + strings.Repeat("x", 300) }},
		"iscsi.targetPortal": {
			func(s *v1.ISCSIVolumeSource) { s.TargetPortal = "../x" },
			func(s *v1.ISCSIVolumeSource) { s.TargetPortal = "-p:3260" },
			func(s *v1.ISCSIVolumeSource) { s.TargetPortal = "" },
			func(s *v1.ISCSIVolumeSource) { s.TargetPortal = "fd00::1" },
			func(s *v1.ISCSIVolumeSource) { s.TargetPortal = "10.0.0.1:3260\n" }},
		"iscsi.portals": {
			func(s *v1.ISCSIVolumeSource) { s.Portals = []string{"a/b"} },
			func(s *v1.ISCSIVolumeSource) {
				for range 99 {
					s.Portals = append(s.Portals, strings.Repeat("a", len(s.Portals)+1))
				}
			}},
		"iscsi.iscsiInterface": {
			func(s *v1.ISCSIVolumeSource) { s.ISCSIInterface = "../../x" },
			func(s *v1.ISCSIVolumeSource) { s.ISCSIInterface = "-x" }},
		"iscsi.initiatorName": {
			func(s *v1.ISCSIVolumeSource) { name := "-v"; s.InitiatorName = &name }},
		"iscsi.lun":    {func(s *v1.ISCSIVolumeSource) { s.Lun = 256 }},
		"iscsi.fsType": {func(s *v1.ISCSIVolumeSource) { s.FSType = "../ext4" }},
		"iscsi.secretRef": {
			func(s *v1.ISCSIVolumeSource) { s.SessionCHAPAuth = true }},
		"too long": {func(s *v1.ISCSIVolumeSource) {
			s.TargetPortal = strings.Repeat("a", 200)
			s.IQN = "iqn.2026-11.test:" + strings.Repeat("x", 200)
		}},
	} {
		for i, change := range changes {
			w := newRig(t)
			state := w.use(useBy("u", 0, change))
			if state.Ready || !strings.Contains(state.Problem, field) || w.take() != "" ||
				len(w.n.Disks) > 0 {
				t.Errorf("%s, %d: %+v", field, i, state)
			}
		}
	}
	w := newRig(t)
	u := useBy("u", 0, nil)
	u.Options = []string{"rw\nexec"}
	if state := w.use(u); !strings.Contains(state.Problem, "mountOptions") {
		t.Errorf("%+v", state)
	}
	for _, s := range []string{"[fd00::1]:3260", "storage-1.example:3260"} {
		if state := newRig(t).use(useBy("u", 0, func(v *v1.ISCSIVolumeSource) {
			v.TargetPortal = s
		})); !state.Ready {
			t.Errorf("%s: %+v", s, state)
		}
	}
}

// The directory says what a disk is, as far as a kubelet's says it.
func TestSourceOfName(t *testing.T) {
	for _, block := range []bool{false, true} {
		for _, u := range []Use{useBy("u", 3, nil), useBy("u", 0, func(s *v1.ISCSIVolumeSource) {
			s.TargetPortal, s.IQN = "[fd00::1]:3261", "eui.0123456789abcdef"
		}), useBy("u", 1, func(s *v1.ISCSIVolumeSource) {
			name := "iqn.2026-11.test:i"
			s.InitiatorName, s.IQN = &name, "iqn.2026-11.test:a-lun-7"
		})} {
			s, isDisk := sourceOfName(diskName(&u.Source, block))
			if !isDisk || s.Portals[0] != u.Source.Portals[0] || s.Target != u.Source.Target ||
				s.LUN != u.Source.LUN || s.Iface != u.Source.Iface {
				t.Errorf("%+v of %s", s, diskName(&u.Source, block))
			}
		}
	}
	for _, name := range []string{"iface-default", "iface-default/x", "iface-default/a-iqn.x-lun-y",
		"x/" + portal + "-" + iqn + "-lun-0", rootA + "/u"} {
		if s, isDisk := sourceOfName(name); isDisk {
			t.Errorf("%s is taken for %+v", name, s)
		}
	}
}

// iscsi.json has the keys of a kubelet, whose own has one more.
func TestFileIsThatOfKubelet(t *testing.T) {
	u := useBy("u", 2, nil)
	var keys map[string]any
	if err := json.Unmarshal(u.Source.encode(), &keys); err != nil || keys["Iqn"] != iqn ||
		keys["Lun"] != "2" || keys["VolName"] != "v" {
		t.Errorf("%v, %v", keys, err)
	}
	s, ok := decodeSource([]byte(`{"VolName":"pv","Portals":["10.0.0.1:3260","10.0.0.2:3260"],` +
		`"Iqn":"` + iqn + `","Lun":"0","InitIface":"default","Iface":"default","InitiatorName":"",` +
		`"MetricsProvider":null}`))
	if !ok || len(s.Portals) != 2 || s.Target != iqn {
		t.Errorf("%+v, %v", s, ok)
	}
	for _, text := range []string{"", "{",
		`{"Iqn":"` + iqn + `","Lun":"0","Iface":"../x","Portals":["a:1"]}`} {
		if s, ok := decodeSource([]byte(text)); ok {
			t.Errorf("%s is taken for %+v", text, s)
		}
	}
}

// Without iscsiadm the pod has an event that names it, and starts once it is there.
func TestNotInstalled(t *testing.T) {
	w := newRig(t)
	w.fail["-o new"] = world.Errorf(world.KindNotFound, "RunISCSIAdm", `exec: "iscsiadm": not found`)
	state := w.use(useBy("u", 0, nil))
	const want = `MountVolume.WaitForAttach failed for volume "v" : iscsiadm is not installed on ` +
		`the node`
	if state.Ready || !strings.HasPrefix(state.Problem, want) {
		t.Errorf("%+v", state)
	}
	w.after(time.Second)
	if state = w.use(useBy("u", 0, nil)); !state.Ready || state.Problem != "" {
		t.Errorf("%+v", state)
	}
}

// A login that fails takes its record back, and the pod gets the output.
func TestLoginFails(t *testing.T) {
	w := newRig(t)
	w.exits["--login"] = 24
	state := w.use(useBy("u", 0, nil))
	if !strings.Contains(state.Problem, "failed to get any path") ||
		!strings.Contains(state.Problem, "exit code 24: no --login") {
		t.Errorf("%+v", state)
	}
	if !strings.Contains(w.take(), node+"--login\n"+node+"-o delete") {
		t.Error("the record stays")
	}
}

// A disk that does not appear is looked for for half a minute; then the pod has an event.
func TestDiskIsLate(t *testing.T) {
	w := newRig(t)
	w.noDisk = true
	w.use(useBy("u", 0, nil))
	for range 10 {
		w.after(time.Second)
	}
	w.luns["1 0"] = true
	w.after(time.Second)
	if state := w.use(useBy("u", 0, nil)); !state.Ready || strings.Count(w.take(), "Scan") != 1 {
		t.Errorf("%+v", state)
	}
	w = newRig(t)
	w.noDisk = true
	w.use(useBy("u", 0, nil))
	for range 31 {
		w.after(time.Second)
	}
	state := w.use(useBy("u", 0, nil))
	if !strings.Contains(state.Problem, "Timed out waiting for LUN") {
		t.Errorf("%+v", state)
	}
}

// Of two disks of a session the last one logs out, also if both are undone at the same time.
func TestSessionIsShared(t *testing.T) {
	w := newRig(t)
	w.use(useBy("u1", 0, nil))
	w.use(useBy("u2", 1, nil))
	if calls := w.take(); strings.Count(calls, "--login") != 1 {
		t.Errorf("logins: %s", calls)
	}
	w.release("u1")
	if calls := w.take(); strings.Contains(calls, "-m node") || !strings.Contains(calls, "Remove 0") {
		t.Errorf("calls: %s", calls)
	}
	w.use(useBy("u1", 0, nil))
	w.take()
	w.n.Release("u1", true)
	w.n.Release("u2", true)
	w.run()
	if calls := w.take(); strings.Count(calls, "--logout") != 1 || len(w.sessions) > 0 ||
		len(w.n.Disks) > 0 {
		t.Errorf("sessions %v after %s", w.sessions, calls)
	}
}

// Two disks that need one session do not log in at the same time.
func TestOneLogin(t *testing.T) {
	w := newRig(t)
	w.hold = "--login"
	w.n.Use(useBy("u1", 0, nil), w.now)
	w.use(useBy("u2", 1, nil))
	if len(w.held) != 1 {
		t.Fatalf("%d logins in flight", len(w.held))
	}
	w.hold = ""
	w.complete(w.held[0], w.answer(w.held[0].Body))
	w.run()
	if !w.use(useBy("u2", 1, nil)).Ready || strings.Count(w.take(), "--login") != 1 {
		t.Error("another login, or not ready")
	}
}

// A session of an administrator, whose other disk is mounted, stays; and so does a disk that is
// mounted where no pod is, until that is unmounted.
func TestMountsOfOthers(t *testing.T) {
	w := newRig(t)
	w.use(useBy("u", 0, nil))
	w.luns["1 3"], w.mounts["/mnt"] = true, "dev/dev/sd13"
	w.take()
	w.release("u")
	w.expect("Unmount "+rootA, "Remove 0", "RemoveTree "+rootA)
	w.use(useBy("u", 0, nil))
	w.mounts["/mnt"] = "dev/dev/sd10"
	w.take()
	w.release("u")
	if calls := w.take(); strings.Contains(calls, "Remove") {
		t.Errorf("removed under a mount: %s", calls)
	}
	delete(w.mounts, "/mnt")
	w.after(time.Second)
	if calls := w.take(); !strings.Contains(calls, "Remove 0") || len(w.n.Disks) > 0 {
		t.Errorf("calls: %s", calls)
	}
}

// The mount of a pod whose request came late keeps the disk; its unmount has the disk undone at
// once.
func TestLateMountOfPod(t *testing.T) {
	w := newRig(t)
	w.use(useBy("u", 0, nil))
	w.mounts["/k/pods/u/volumes/kubernetes.io~iscsi/v"] = "dev/dev/sd10"
	w.take()
	w.release("u")
	w.expect("")
	delete(w.mounts, "/k/pods/u/volumes/kubernetes.io~iscsi/v")
	if names := w.n.NoteUnmount(); len(names) != 1 {
		t.Errorf("planned: %v", names)
	}
	w.run()
	if len(w.n.Disks) > 0 {
		t.Errorf("left: %s", w.take())
	}
}

// A login that was killed may end later: the disk is looked at again before its directory goes.
func TestLateLogin(t *testing.T) {
	w := newRig(t)
	w.fail["--login"] = world.Errorf(world.KindTimeout, "RunISCSIAdm", "killed")
	w.use(useBy("u", 0, nil))
	w.release("u")
	if calls := w.take(); strings.Contains(calls, "RemoveTree") {
		t.Errorf("forgotten: %s", calls)
	}
	w.logIn(portal, "default")
	w.after(lateMax)
	if len(w.sessions) > 0 || len(w.n.Disks) > 0 {
		t.Errorf("left: %v, %v", w.sessions, w.n.Disks)
	}
}

// A pod that comes while a disk is undone gets it, and nothing is undone any more.
func TestUseDuringUndo(t *testing.T) {
	for _, call := range []string{"Unmount", "Remove 0", "--logout", "RemoveTree"} {
		w := newRig(t)
		w.use(useBy("u1", 0, nil))
		w.hold = call
		w.release("u1")
		if len(w.held) != 1 {
			t.Fatalf("%s: %d in flight", call, len(w.held))
		}
		w.n.Use(useBy("u2", 0, nil), w.now)
		w.hold = ""
		w.complete(w.held[0], w.answer(w.held[0].Body))
		w.run()
		state := w.use(useBy("u2", 0, nil))
		if !state.Ready || w.mounts[w.n.Dir+"/iscsi/"+rootA] == "" || len(w.sessions) != 1 {
			t.Errorf("%s: %+v, %v, %v", call, state, w.mounts, w.sessions)
		}
	}
}

// What a pod cannot get although it was set up is looked at again.
func TestMountHasGone(t *testing.T) {
	w := newRig(t)
	u := useBy("u", 0, nil)
	w.use(u)
	clear(w.mounts)
	u.BindFailures = 1
	w.use(u)
	if !strings.HasSuffix(w.take(), "MountDevice /dev/sd10 ext4 false []") {
		t.Error("not mounted again")
	}
}

// Three portals: one that fails for ever is passed over after two rounds, and the device that joins
// the others is waited for.
func TestMultipath(t *testing.T) {
	w := newRig(t)
	w.exits["10.0.0.3:3260 -T"] = 8
	u := useBy("u", 0, func(s *v1.ISCSIVolumeSource) { s.Portals = []string{"10.0.0.2", "10.0.0.3"} })
	w.use(u)
	w.after(5 * time.Second)
	if w.use(u).Ready {
		t.Error("the multipath device was not waited for")
	}
	w.multipath = "/dev/dm-3"
	w.after(time.Second)
	calls := w.take()
	if !w.use(u).Ready || !strings.HasSuffix(calls, "MountDevice /dev/dm-3 ext4 false []") ||
		strings.Count(calls, "10.0.0.3:3260 -T "+iqn+" -I default --login") != 2 {
		t.Errorf("calls: %s", calls)
	}
	w.release("u")
	if calls = w.take(); strings.Count(calls, "--logout") != 2 || len(w.sessions) > 0 {
		t.Errorf("calls: %s", calls)
	}
}

// One path of two is used after five rounds, without a multipath device after ten seconds more.
func TestOnePathOfTwo(t *testing.T) {
	w := newRig(t)
	w.exits["-p 10.0.0.2:3260 -I default --discover"] = 4
	u := useBy("u", 0, func(s *v1.ISCSIVolumeSource) { s.Portals = []string{"10.0.0.2"} })
	w.use(u)
	if calls := w.take(); strings.Count(calls, "10.0.0.2:3260 -I default --discover") != 5 {
		t.Errorf("calls: %s", calls)
	}
	w.after(multipathWait)
	if !w.use(u).Ready {
		t.Error("not ready")
	}
}

// With an initiator name the disk has an interface of its own, which goes with it.
func TestInitiatorName(t *testing.T) {
	w := newRig(t)
	name := "iqn.2026-11.test:initiator"
	u := useBy("u", 0, func(s *v1.ISCSIVolumeSource) { s.InitiatorName = &name })
	w.use(u)
	iface := portal + ":v"
	want := strings.Join([]string{"-m iface -I default -o show", "-m iface -I " + iface + " -o new",
		"-m iface -I " + iface + " -o update -n iface.mtu -v 9000",
		"-m iface -I " + iface + " -o update -n iface.transport_name -v tcp",
		"-m iface -I " + iface + " -o update -n iface.initiatorname -v " + name,
		"-m discoverydb -t sendtargets -p " + portal + " -I " + iface + " -o new"}, "\n")
	if calls := w.take(); !strings.Contains(calls, want) || !w.use(u).Ready {
		t.Errorf("calls: %s", calls)
	}
	w.release("u")
	if calls := w.take(); !strings.Contains(calls, "-m iface -I "+iface+" -o delete\nRemoveTree") {
		t.Errorf("calls: %s", calls)
	}
}

// The secret for CHAP is given to the commands as passwords, and never as an argument.
func TestCHAP(t *testing.T) {
	secret := func(values map[string]string) *objectcache.Store {
		data := map[string][]byte{}
		for key, value := range values { //ordered: into a map
			data[key] = []byte(value)
		}
		target := world.WatchTarget{Resource: world.ResourceSecrets, Namespace: "ns", Name: "s"}
		store := &objectcache.Store{Watches: map[string]*objectcache.Watch{
			objectcache.Key(target): {Target: target, Listed: true, Users: []string{"u"},
				Objects: map[string]world.Object{"ns/s": {Secret: &v1.Secret{Data: data}}}}}}
		return store
	}
	u := useBy("u", 0, func(s *v1.ISCSIVolumeSource) {
		s.SessionCHAPAuth, s.DiscoveryCHAPAuth = true, true
		s.SecretRef = &v1.LocalObjectReference{Name: "s"}
	})
	w := newRig(t)
	w.objects = secret(map[string]string{"node.session.auth.username": "me",
		"node.session.auth.password": "hunter2", "discovery.sendtargets.auth.password": "other"})
	state := w.use(u)
	calls := w.take()
	if !state.Ready || strings.Contains(calls, "hunter2") || strings.Contains(calls, "me\n") ||
		!slices.Contains(w.passwords, "hunter2") || !slices.Contains(w.passwords, "other") ||
		!strings.Contains(calls, node+"-o update -n node.session.auth.password -v\n") ||
		strings.Contains(calls, "password_in") {
		t.Errorf("%+v, calls: %s", state, calls)
	}
	w = newRig(t)
	w.objects = secret(map[string]string{"node.session.auth.password": "two\nlines"})
	if state := w.use(u); !strings.Contains(state.Problem, `"node.session.auth.password"`) ||
		strings.Contains(state.Problem, "two") {
		t.Errorf("%+v", state)
	}
}

// A device is bound by its pod, and taken from it in order; then the disk is undone as any other.
func TestBlock(t *testing.T) {
	w := newRig(t)
	u := useBy("u", 0, nil)
	u.Block = true
	w.known = []string{"u"}
	state := w.use(u)
	root := "volumeDevices/" + rootA
	if !state.Ready || state.Device.Path != "/dev/sd10" || strings.Contains(w.take(), "MountDevice") {
		t.Fatalf("%+v", state)
	}
	if !w.release("u") || w.n.Holds("u") || !slices.Contains(w.planned, "u") {
		t.Error("the pod did not wait, or still waits")
	}
	w.expect("RemoveTree /k/pods/u/volumeDevices/kubernetes.io~iscsi", "ReleaseDevice "+root+"/u",
		"Unmount "+root+"/u", "RemoveTree "+root+"/u", "Remove 0", node+"--logout", node+"-o delete",
		"RemoveTree "+root)
}

// An agent that starts takes over what is mounted without a command, and undoes what no pod needs
// once all pods were listed. A file in the file system of a disk says nothing of it.
func TestSearch(t *testing.T) {
	at := "/k/plugins/kubernetes.io/iscsi/"
	w := newRig(t)
	w.n.Start(true)
	w.cleans = false
	rootB := strings.TrimSuffix(rootA, "0") + "1"
	w.dirs[strings.TrimSuffix(at, "/")] = []world.DirEntry{{Name: "iface-default", Directory: true},
		{Name: "volumeDevices", Directory: true}, {Name: "x", Directory: true}}
	w.dirs[at+"iface-default"] = []world.DirEntry{{Name: strings.TrimPrefix(rootA, "iface-default/"),
		Directory: true}, {Name: strings.TrimPrefix(rootB, "iface-default/"), Directory: true}}
	w.dirs[at+"volumeDevices"] = []world.DirEntry{{Name: "iface-default", Directory: true}}
	w.dirs[at+"volumeDevices/iface-default"] = []world.DirEntry{{Directory: true,
		Name: strings.TrimPrefix(rootB, "iface-default/")}}
	w.dirs[at+"volumeDevices/"+rootB] = []world.DirEntry{{Name: "iscsi.json"}, {Name: "gone"}}
	w.logIn(portal, "default")
	w.logIn("10.0.0.2:3260", "default")
	w.luns["1 0"], w.luns["1 1"] = true, true
	w.mounts[at+rootA], w.mounts["/k/pods/u/volumes/kubernetes.io~iscsi/v"] = "dev/dev/sd10",
		"dev/dev/sd10"
	of := useBy("x", 1, func(s *v1.ISCSIVolumeSource) { s.Portals = []string{"10.0.0.2"} }).Source
	w.files[at+rootB+"/iscsi.json"] = string(of.encode())
	if !w.n.Holds("u") {
		t.Error("nothing is known, and no pod waits")
	}
	w.run()
	w.take()
	if state := w.use(useBy("u", 0, nil)); !state.Ready || w.take() != "" {
		t.Errorf("%+v", state)
	}
	if w.n.Holds("u") || !w.n.Holds("gone") {
		t.Errorf("owners: %v", w.n.Owners)
	}
	w.cleans = true
	w.after(time.Minute)
	w.after(listedPeriod) // one has waited to know which portals the other has
	calls := w.take()
	if !strings.Contains(calls, "ReadFiles "+rootB+"/iscsi.json") ||
		!strings.Contains(calls, "-p 10.0.0.2:3260 -T "+iqn+" -I default --logout") ||
		strings.Contains(calls, "-p "+portal+" -T "+iqn+" -I default --logout") {
		t.Errorf("calls: %s", calls)
	}
	w.after(lateMax)
	if names := w.n.Names(); len(names) != 1 || names[0] != "iscsi/"+rootA || w.n.Holds("gone") {
		t.Errorf("left: %v, owners: %v", names, w.n.Owners)
	}
}

// A disk that waits to know which sessions another one needs looks at its own again then: it may
// have appeared meanwhile.
func TestDiskAppearsWhileItWaits(t *testing.T) {
	at := "/k/plugins/kubernetes.io/iscsi/"
	rootB := strings.TrimSuffix(rootA, "0") + "1"
	w := newRig(t)
	w.n.Start(true)
	w.dirs[strings.TrimSuffix(at, "/")] = []world.DirEntry{{Name: "iface-default", Directory: true}}
	w.dirs[at+"iface-default"] = []world.DirEntry{
		{Name: strings.TrimPrefix(rootA, "iface-default/"), Directory: true},
		{Name: strings.TrimPrefix(rootB, "iface-default/"), Directory: true}}
	for _, lun := range []int32{0, 1} {
		of := useBy("x", lun, nil).Source
		w.files[at+strings.TrimSuffix(rootA, "0")+fmt.Sprint(lun)+"/iscsi.json"] = string(of.encode())
	}
	w.logIn(portal, "default")
	w.fail["ReadFiles "+rootB] = world.Errorf(world.KindTimeout, "ReadFiles", "late")
	w.run()
	w.luns["1 0"] = true // by a scan of the agent before
	w.take()
	for range 4 {
		w.after(lateMax)
	}
	if calls := w.take(); !strings.Contains(calls, "Remove 0") || len(w.n.Disks) > 0 {
		t.Errorf("left: %v, after\n%s", w.n.Names(), calls)
	}
}

// While it is not known what an earlier agent has left, the Node goes on to say what is in use. A
// disk that was found is in use by the name that the Node has for it, with or without the port.
func TestVolumesInUseOfEarlierAgent(t *testing.T) {
	w := newRig(t)
	w.n.Start(true)
	named := v1.UniqueVolumeName("kubernetes.io/iscsi/10.0.0.1:" + iqn + ":0")
	node := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{named,
		"kubernetes.io/iscsi/10.0.0.1:" + iqn + ":7", "kubernetes.io/csi/d^x"}}}
	if names := w.n.VolumesInUse(node); len(names) != 2 {
		t.Errorf("in use: %v", names)
	}
	w.cleans = false
	w.dirs[w.n.Dir+"/iscsi"] = []world.DirEntry{{Name: "iface-default", Directory: true}}
	w.dirs[w.n.Dir+"/iscsi/iface-default"] = []world.DirEntry{{Directory: true,
		Name: strings.TrimPrefix(rootA, "iface-default/")}}
	w.run()
	if names := w.n.VolumesInUse(node); len(names) != 1 || names[0] != named {
		t.Errorf("in use: %v", names)
	}
}

// A pod that had a device before the agent started gets it without the Node.
func TestBoundDeviceIsAttached(t *testing.T) {
	w := newRig(t)
	w.n.Start(true)
	w.waits = true
	root := w.n.Dir + "/iscsi/volumeDevices"
	w.dirs[w.n.Dir+"/iscsi"] = []world.DirEntry{{Name: "volumeDevices", Directory: true}}
	w.dirs[root] = []world.DirEntry{{Name: "iface-default", Directory: true}}
	w.dirs[root+"/iface-default"] = []world.DirEntry{{Directory: true,
		Name: strings.TrimPrefix(rootA, "iface-default/")}}
	w.dirs[root+"/"+rootA] = []world.DirEntry{{Name: "u"}}
	w.mounts[root+"/"+rootA+"/u"] = "devtmpfs"
	w.logIn(portal, "default")
	w.luns["1 0"], w.known = true, []string{"u"}
	w.run()
	u := useBy("u", 0, nil)
	u.Block = true
	if state := w.use(u); !state.Ready || strings.Contains(w.take(), "-m ") {
		t.Errorf("%+v", state)
	}
}

// A disk whose undoing has failed halfway is looked for again before the next pod gets it: its
// device may be that of another disk by now.
func TestUseAfterFailedUndo(t *testing.T) {
	w := newRig(t)
	w.use(useBy("u1", 0, nil))
	w.fail["--logout"] = world.Errorf(world.KindTimeout, "RunISCSIAdm", "killed")
	w.release("u1")
	w.sessions[0].Host = 7 // whose disks have other names
	w.take()
	if state := w.use(useBy("u2", 0, nil)); !state.Ready ||
		w.mounts[w.n.Dir+"/iscsi/"+rootA] != "dev/dev/sd70" {
		t.Errorf("%+v, %v\n%s", state, w.mounts, w.take())
	}
}

// A pod is logged in to the portals that it names itself: what another one names does not get its
// secret.
func TestPortalsOfAnotherPod(t *testing.T) {
	w := newRig(t)
	w.exits["--login"] = 8
	w.use(useBy("u2", 0, func(s *v1.ISCSIVolumeSource) { s.Portals = []string{"10.6.6.6"} }))
	if calls := w.take(); !strings.Contains(calls, "10.6.6.6") {
		t.Fatalf("calls: %s", calls)
	}
	w.n.Release("u2", true)
	delete(w.exits, "--login")
	w.use(useBy("u1", 0, nil))
	w.after(time.Minute)
	if state := w.use(useBy("u1", 0, nil)); !state.Ready {
		t.Errorf("%+v", state)
	}
	if calls := w.take(); strings.Contains(calls, "10.6.6.6:3260 -T "+iqn+" -I default --login") {
		t.Errorf("calls: %s", calls)
	}
}

// A disk that waits for its attachment keeps no session: it may go without having had any.
func TestSharerWithoutSession(t *testing.T) {
	w := newRig(t)
	w.use(useBy("u1", 0, nil))
	w.waits = true
	w.use(useBy("u2", 1, nil))
	w.release("u1")
	w.release("u2")
	w.after(time.Minute)
	w.expectNothingLeft()
}

// A target that ends each session at once is not logged in to without end.
func TestLoginWithoutSession(t *testing.T) {
	w := newRig(t)
	w.exits["--login"] = 0 // it succeeds, and there is no session
	state := w.use(useBy("u", 0, nil))
	if calls := w.take(); strings.Count(calls, "--login") != 1 || state.Ready ||
		!strings.Contains(state.Problem, "Could not find a session") {
		t.Errorf("%+v after\n%s", state, calls)
	}
}

// Two names of one disk do not keep each other mounted.
func TestTwoNamesOfOneDisk(t *testing.T) {
	w := newRig(t)
	other := "10.0.0.2"
	w.use(useBy("u1", 0, func(s *v1.ISCSIVolumeSource) { s.Portals = []string{other} }))
	w.after(multipathWait)
	w.use(useBy("u2", 0, func(s *v1.ISCSIVolumeSource) {
		s.TargetPortal, s.Portals = other, []string{"10.0.0.1"}
	}))
	w.after(multipathWait)
	for at := range w.mounts {
		w.mounts[at] = "dev/dev/sd10"
	}
	w.n.Release("u1", true)
	w.n.Release("u2", true)
	w.run()
	w.after(time.Minute)
	if len(w.mounts) > 0 || len(w.n.Disks) > 0 || len(w.sessions) > 0 {
		t.Errorf("left: %v, %v, %v", w.mounts, w.n.Names(), w.sessions)
	}
}

// A pod that was refused a disk, as the node has too many, is planned when one has gone.
func TestRoomForDisk(t *testing.T) {
	w := newRig(t)
	w.use(useBy("u1", 0, nil))
	w.n.Full = true
	w.planned = nil
	w.release("u1")
	if !slices.Contains(w.planned, "all") || w.n.Full {
		t.Errorf("planned: %v", w.planned)
	}
}

// What an agent before has written of a disk is read before it is replaced: the sessions that it
// names are logged out of as well. That agent was killed before the mount.
func TestEarlierFileIsReadBeforeItIsReplaced(t *testing.T) {
	w := newRig(t)
	w.n.Start(true)
	at := w.n.Dir + "/iscsi"
	w.dirs[at] = []world.DirEntry{{Name: "iface-default", Directory: true}}
	w.dirs[at+"/iface-default"] = []world.DirEntry{{Directory: true,
		Name: strings.TrimPrefix(rootA, "iface-default/")}}
	of := useBy("x", 0, func(s *v1.ISCSIVolumeSource) { s.Portals = []string{"10.0.0.2"} }).Source
	w.files[at+"/"+rootA+"/iscsi.json"] = string(of.encode())
	w.logIn("10.0.0.2:3260", "default")
	w.cleans = false
	w.run()
	w.take()
	if state := w.use(useBy("u", 0, nil)); !state.Ready {
		t.Fatalf("%+v", state)
	}
	if !strings.Contains(w.files[at+"/"+rootA+"/iscsi.json"], "10.0.0.2:3260") {
		t.Errorf("written: %s", w.files[at+"/"+rootA+"/iscsi.json"])
	}
	w.cleans = true
	w.release("u")
	w.after(lateMax)
	w.expectNothingLeft()
}

// A pod that comes while a disk is logged in to for another one changes nothing of that login.
func TestLoginGoesOnByItsUse(t *testing.T) {
	w := newRig(t)
	w.hold = "--discover"
	w.use(useBy("u2", 0, nil))
	if len(w.held) != 1 {
		t.Fatalf("%d in flight", len(w.held))
	}
	w.n.Use(useBy("u1", 0, func(s *v1.ISCSIVolumeSource) { // the first one by its name
		s.DiscoveryCHAPAuth, s.SecretRef = true, &v1.LocalObjectReference{Name: "chap"}
	}), w.now)
	w.hold = ""
	w.take()
	w.complete(w.held[0], w.answer(w.held[0].Body))
	w.run()
	if calls := w.take(); strings.Contains(calls, "CHAP") || !strings.Contains(calls, "MountDevice") {
		t.Errorf("calls: %s", calls)
	}
}

// Volumes that share an interface record remove it once, with the last of them.
func TestSharedIfaceRecord(t *testing.T) {
	w := newRig(t)
	own := func(s *v1.ISCSIVolumeSource) {
		name := "iqn.2026-11.test:own"
		s.InitiatorName = &name
	}
	w.use(useBy("u1", 0, own))
	w.use(useBy("u2", 1, own))
	w.take()
	const removed = "-m iface -I 10.0.0.1:3260:v -o delete"
	if w.release("u1"); strings.Contains(w.take(), removed) {
		t.Error("removed under another volume")
	}
	if w.release("u2"); strings.Count(w.take(), removed) != 1 {
		t.Error("not removed")
	}
}
