package scsi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// fcUseBy returns the use of a fibre channel disk.
func fcUseBy(uid string, s v1.FCVolumeSource) Use {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types(uid), Namespace: "ns", Name: uid}}
	return InlineFCUse(p, &v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{FC: &s}})
}

func lunOf(lun int32) *int32 { return &lun }

// fcPath returns a path to a disk, which may be joined with others.
func fcPath(device, multipath string) world.SCSIPath {
	return world.SCSIPath{Host: 1, Device: world.BlockDevice{Path: device, Sequence: 5},
		Multipath: world.BlockDevice{Path: multipath}, Present: true,
		OfDisk: []string{"dev" + device}, OfAny: []string{"dev" + device}}
}

const wwn = "50060a0b00c26ae2"

// A disk appears with a scan, is mounted for the node, and goes once no pod needs it; what a scan
// still brings is looked for.
func TestFC(t *testing.T) {
	w := newRig(t)
	w.fcScan = []world.SCSIPath{fcPath("/dev/sdb", "")}
	u := fcUseBy("u", v1.FCVolumeSource{TargetWWNs: []string{wwn}, Lun: lunOf(3), FSType: "xfs",
		ReadOnly: true})
	root := w.n.Dir + "/fc/" + wwn + "-lun-3"
	w.use(u)
	w.after(multipathWait)
	if state := w.use(u); !state.Ready || w.mounts[root] != "dev/dev/sdb" {
		t.Errorf("%+v, %v", state, w.mounts)
	}
	mark := w.n.Dir + "/fc/.attached/" + wwn + "-lun-3"
	w.expect("MakeDir "+root, "MakeDir "+mark,
		"Scan ["+wwn+"] 3 []", "MountDevice /dev/sdb xfs true []")
	if names := w.n.VolumesInUse(&v1.Node{}); len(names) != 1 ||
		names[0] != "kubernetes.io/fc/["+v1.UniqueVolumeName(wwn)+"]:3" {
		t.Errorf("in use: %v", names)
	}
	w.release("u")
	w.expect("Unmount "+root, "Remove 3")
	w.fcPaths = w.fcScan // the scan brings it back
	w.after(disksWait)
	w.expect("Remove 3", "RemoveTree "+mark, "RemoveTree "+root)
	if len(w.n.Disks) > 0 {
		t.Errorf("left: %v", w.n.Names())
	}
}

// A multipath device that is there is used without a scan. Otherwise, it is waited for as long as
// there are several paths, and a disk is waited for before the pod has an event.
func TestFCMultipath(t *testing.T) {
	w := newRig(t)
	w.fcPaths = []world.SCSIPath{fcPath("/dev/sdb", ""), fcPath("/dev/sdc", "/dev/dm-0")}
	w.use(fcUseBy("u", v1.FCVolumeSource{WWIDs: []string{"3600 a", "b"}}))
	w.expect("MakeDir "+w.n.Dir+"/fc/3600_a-b", "MountDevice /dev/dm-0 ext4 false []",
		"MakeDir "+w.n.Dir+"/fc/.attached/3600_a-b")

	w = newRig(t)
	w.fcScan = []world.SCSIPath{fcPath("/dev/sdb", ""), fcPath("/dev/sdc", "")}
	u := fcUseBy("u", v1.FCVolumeSource{WWIDs: []string{"3600"}})
	if state := w.use(u); state.Ready {
		t.Error("the multipath device was not waited for")
	}
	w.after(multipathWait)
	if state := w.use(u); !state.Ready || !strings.Contains(w.take(), "MountDevice /dev/sdb") {
		t.Errorf("%+v", state)
	}

	w = newRig(t)
	if state := w.use(u); state.Problem != "" {
		t.Errorf("%+v", state)
	}
	for range disksWait / time.Second {
		w.after(time.Second)
	}
	if state := w.use(u); state.Problem !=
		`MountVolume.WaitForAttach failed for volume "v" : no fc disk found` {
		t.Errorf("%+v", state)
	}
}

// What cannot be a disk, or would be the path of something else, is refused with its field.
func TestFCChecks(t *testing.T) {
	many := strings.Split(strings.Repeat("5006,", wwnsMax), ",")
	for field, s := range map[string]v1.FCVolumeSource{ //ordered: each by itself
		"fc: no fc disk":          {TargetWWNs: []string{wwn}}, // without a LUN
		"fc.targetWWNs":           {TargetWWNs: []string{"../" + wwn}, Lun: lunOf(0)},
		"fc.targetWWNs: more":     {TargetWWNs: append(many, wwn), Lun: lunOf(0)},
		"fc.lun":                  {TargetWWNs: []string{wwn}, Lun: lunOf(256)},
		"fc.wwids":                {WWIDs: []string{"a/b"}},
		"fc.wwids: the name of a": {WWIDs: []string{"3600-part1"}},
		"fc.wwids: the name":      {WWIDs: []string{"volumeDevices"}},
		"fc.wwids: the name of":   {WWIDs: []string{"a", "lun", "3"}},
		"fc: the names":           {WWIDs: []string{strings.Repeat("a", 128), strings.Repeat("b", 128)}},
		"fc.fsType":               {WWIDs: []string{"a"}, FSType: "-x"},
	} {
		w := newRig(t)
		if state := w.use(fcUseBy("u", s)); !strings.Contains(state.Problem, field) {
			t.Errorf("%s: %+v", field, state)
		}
	}
}

// Disks of an earlier agent, or of a kubelet, are found by their names, in use by the names that
// the Node has for them, and undone.
func TestFCOfEarlierAgent(t *testing.T) {
	w := newRig(t)
	w.n.Start(true)
	w.cleans = false
	w.dirs[w.n.Dir+"/fc"] = []world.DirEntry{{Name: wwn + "-lun-1", Directory: true},
		{Name: "3600_a", Directory: true}, {Name: "a-b-c", Directory: true},
		{Name: "volumeDevices", Directory: true}}
	w.dirs[w.n.Dir+"/fc/volumeDevices"] = []world.DirEntry{{Name: "3600", Directory: true}}
	w.dirs[w.n.Dir+"/fc/volumeDevices/3600"] = []world.DirEntry{{Name: "gone"}}
	w.mounts[w.n.Dir+"/fc/"+wwn+"-lun-1"] = "dev/dev/sdb"
	w.fcPaths = []world.SCSIPath{fcPath("/dev/sdb", "")}
	w.run()
	if got := fmt.Sprint(w.n.Names()); got != "[fc/3600_a fc/"+wwn+
		"-lun-1 fc/a-b-c fc/volumeDevices/3600]" ||
		!w.n.Holds("gone") {
		t.Fatalf("found %s", got)
	}
	node := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{
		"kubernetes.io/fc/[3600 a]", "kubernetes.io/fc/[" + wwn + "]:1", "kubernetes.io/fc/[gone]",
		"kubernetes.io/fc/[a-b c]"}}}
	if names := w.n.VolumesInUse(node); len(names) != 3 {
		t.Errorf("in use: %v", names)
	}
	w.cleans = true
	w.after(lateMax)
	w.after(listedPeriod)
	calls := w.take()
	if len(w.n.Disks) > 0 || !strings.Contains(calls, "ReleaseDevice ") ||
		!strings.Contains(calls, "Unmount "+w.n.Dir+"/fc/"+wwn+"-lun-1") {
		t.Errorf("left: %v, calls: %s", w.n.Names(), calls)
	}
}

// Two volumes that name one disk in different ways share it: it is removed with the last one.
func TestFCSameDisk(t *testing.T) {
	w := newRig(t)
	w.fcPaths = []world.SCSIPath{fcPath("/dev/sdb", "/dev/dm-0")}
	w.use(fcUseBy("u1", v1.FCVolumeSource{TargetWWNs: []string{wwn}, Lun: lunOf(0)}))
	w.use(fcUseBy("u2", v1.FCVolumeSource{TargetWWNs: []string{"5006", wwn}, Lun: lunOf(0)}))
	w.take()
	if w.release("u1"); strings.Contains(w.take(), "Remove 0") {
		t.Error("removed under another volume")
	}
	if w.release("u2"); !strings.Contains(w.take(), "Remove 0") {
		t.Error("not removed")
	}
}

// withWWID returns a path with the name of its disk.
func withWWID(p world.SCSIPath, wwid string) world.SCSIPath {
	p.WWID = wwid
	return p
}

// Volumes that name one disk in ways that have no word in common share it, too: what is found for
// them tells.
func TestFCSameDiskByAnotherName(t *testing.T) {
	for _, wwid := range []string{"", "naa.600"} { // without, the device tells
		w := newRig(t)
		w.fcPaths = []world.SCSIPath{withWWID(fcPath("/dev/sdb", "/dev/dm-0"), wwid)}
		w.use(fcUseBy("u1", v1.FCVolumeSource{TargetWWNs: []string{wwn}, Lun: lunOf(0)}))
		w.use(fcUseBy("u2", v1.FCVolumeSource{WWIDs: []string{"3600"}}))
		w.take()
		if w.release("u1"); strings.Contains(w.take(), "Remove 0") {
			t.Error("removed under another volume")
		}
		if w.release("u2"); !strings.Contains(w.take(), "Remove 0") {
			t.Error("not removed")
		}
	}
}

// A disk that was on the node before, and could not be mounted, is the node's own: it stays.
func TestFCOfNode(t *testing.T) {
	w := newRig(t)
	w.fcPaths = []world.SCSIPath{withWWID(fcPath("/dev/sda", ""), "naa.600")}
	w.fcScan = w.fcPaths
	w.mounts["/var"] = "dev/dev/sda"
	w.fail["MountDevice"] = world.Errorf(world.KindInternal, "MountDevice", "already mounted")
	w.use(fcUseBy("u", v1.FCVolumeSource{WWIDs: []string{"3600"}}))
	w.after(multipathWait)
	w.release("u")
	w.after(disksWait)
	if calls := w.take(); strings.Contains(calls, "Remove 0") || len(w.n.Disks) > 0 ||
		!strings.Contains(calls, "MountDevice /dev/sda") {
		t.Errorf("left: %v, calls: %s", w.n.Names(), calls)
	}
}

// Of a disk that an earlier agent has left unmounted, a mark tells if it was that agent's, also if
// the directory of the disk has gone.
func TestFCMarkOfEarlierAgent(t *testing.T) {
	for _, c := range []struct{ isMarked, hasDir bool }{{false, true}, {true, true}, {true, false}} {
		w := newRig(t)
		w.n.Start(true)
		fc := w.n.Dir + "/fc"
		w.dirs[fc] = []world.DirEntry{{Name: ".attached", Directory: true},
			{Name: "3600", Directory: true}, {Name: "volumeDevices", Directory: true}}
		if c.hasDir {
			w.dirs[fc+"/volumeDevices"] = []world.DirEntry{{Name: "3601", Directory: true}}
		}
		w.dirs[fc+"/.attached"] = []world.DirEntry{{Name: "volumeDevices", Directory: true},
			{Name: "notes.txt"}, {Name: "no disk", Directory: true}}
		if c.isMarked {
			w.dirs[fc+"/.attached/volumeDevices"] = []world.DirEntry{{Name: "3601", Directory: true}}
		}
		w.fcPaths = []world.SCSIPath{fcPath("/dev/sdb", "")}
		w.run()
		w.after(lateMax)
		calls := w.take()
		if strings.Contains(calls, "Remove 0") != c.isMarked || len(w.n.Disks) > 0 ||
			strings.Contains(calls, "RemoveTree "+fc+"/.attached/volumeDevices/3601") != c.isMarked {
			t.Errorf("%+v: left: %v, calls: %s", c, w.n.Names(), calls)
		}
	}
}

// Ports that lead to different disks are no paths of one: none is mounted, none removed.
func TestFCDifferentDisks(t *testing.T) {
	w := newRig(t)
	w.fcScan = []world.SCSIPath{withWWID(fcPath("/dev/sdb", ""), "naa.600"),
		withWWID(fcPath("/dev/sdc", ""), "naa.601")}
	u := fcUseBy("u", v1.FCVolumeSource{TargetWWNs: []string{"5006", wwn}, Lun: lunOf(0)})
	if state := w.use(u); !strings.Contains(state.Problem, "different disks: naa.600, naa.601") {
		t.Errorf("%+v", state)
	}
	w.release("u")
	w.after(2 * disksWait)
	if calls := w.take(); strings.Contains(calls, "Remove 0") || strings.Contains(calls, "Mount") ||
		len(w.n.Disks) > 0 {
		t.Errorf("left: %v, calls: %s", w.n.Names(), calls)
	}
}

// A disk of an earlier agent is known by its mount before that ends, and looked for by its own name
// then: its port may be lost. Another disk that the port leads to by now stays.
func TestFCIsIdentified(t *testing.T) {
	w := newRig(t)
	w.n.Start(true)
	at := w.n.Dir + "/fc/" + wwn + "-lun-0"
	w.dirs[w.n.Dir+"/fc"] = []world.DirEntry{{Name: wwn + "-lun-0", Directory: true}}
	w.mounts[at] = "dev/dev/sdb"
	w.fcPaths = []world.SCSIPath{withWWID(fcPath("/dev/sdb", ""), "naa.600"),
		withWWID(fcPath("/dev/sdc", ""), "naa.601")}
	w.hold = "Find 0"
	w.run()
	find, _ := w.held[0].Body.(*world.FindSCSIDisks)
	if len(w.held) != 1 || find.Unit.Mounted != "dev/dev/sdb" || w.mounts[at] == "" {
		t.Fatalf("%+v", w.held)
	}
	w.complete(w.held[0], w.answer(find))
	w.held = nil
	w.run()
	if find, _ = w.held[0].Body.(*world.FindSCSIDisks); fmt.Sprint(find.Unit.IDs) != "[naa.600]" {
		t.Fatalf("%+v", find)
	}
	w.complete(w.held[0], w.answer(find))
	w.hold = "Remove 0"
	w.held = nil
	w.run()
	if m, _ := w.held[0].Body.(*world.RemoveSCSIDisks); len(m.Devices) != 1 ||
		m.Devices[0].Path != "/dev/sdb" {
		t.Errorf("%+v", m)
	}
}

// A WWID with a dash is looked for by the name of the directory as well.
func TestFCWithDash(t *testing.T) {
	w := newRig(t)
	w.n.Start(true)
	w.dirs[w.n.Dir+"/fc"] = []world.DirEntry{{Name: "1a-b", Directory: true}}
	w.hold = "Find"
	w.run()
	if find, _ := w.held[0].Body.(*world.FindSCSIDisks); fmt.Sprint(find.Unit.WWIDs) != "[1a b 1a-b]" {
		t.Errorf("%+v", find)
	}
}

// The kernel goes on with a scan that has timed out, and the disk is looked for as long.
func TestFCLateScan(t *testing.T) {
	w := newRig(t)
	w.fail["Scan"] = world.Errorf(world.KindTimeout, "ScanSCSIHosts", "late")
	w.use(fcUseBy("u", v1.FCVolumeSource{WWIDs: []string{"3600"}}))
	w.release("u")
	w.after(2 * disksWait)
	w.fcPaths = []world.SCSIPath{fcPath("/dev/sdb", "")}
	if w.after(lateMax); !strings.Contains(w.take(), "Remove 0") {
		t.Error("not removed")
	}
}

// A scan of an earlier agent may end as late, also if the disk is mounted: by another scan.
func TestFCLateScanOfEarlierAgent(t *testing.T) {
	for _, isMounted := range []bool{false, true} {
		w := newRig(t)
		w.n.Start(true)
		w.dirs[w.n.Dir+"/fc"] = []world.DirEntry{{Name: "3600", Directory: true},
			{Name: ".attached", Directory: true}}
		w.dirs[w.n.Dir+"/fc/.attached"] = []world.DirEntry{{Name: "3600", Directory: true}}
		if isMounted {
			w.mounts[w.n.Dir+"/fc/3600"] = "dev/dev/sda"
		}
		w.run()
		w.after(2 * disksWait)
		w.fcPaths = []world.SCSIPath{fcPath("/dev/sdb", "")}
		if w.after(lateMax); !strings.Contains(w.take(), "Remove 0") || len(w.n.Disks) > 0 {
			t.Errorf("mounted %v: left: %v, %v", isMounted, w.n.Names(), w.fcPaths)
		}
	}
}

// A pod that has the disk by another name keeps no other mount of it: its own stays. Any other
// mount of the disk does.
func TestFCMountsOfAnotherName(t *testing.T) {
	w := newRig(t)
	w.fcPaths = []world.SCSIPath{withWWID(fcPath("/dev/sdb", "/dev/dm-0"), "naa.600")}
	one := w.n.Dir + "/fc/" + wwn + "-lun-0"
	w.use(fcUseBy("u1", v1.FCVolumeSource{TargetWWNs: []string{wwn}, Lun: lunOf(0)}))
	w.use(fcUseBy("u2", v1.FCVolumeSource{WWIDs: []string{"3600"}}))
	other := "/k/pods/u2/volumes/kubernetes.io~fc/v"
	w.mounts["/k/pods/u2/volume-subpaths/v/app/0"] = "dev/dev/dm-0"
	w.mounts[other], w.mounts["/k/pods/u3/x"] = "dev/dev/dm-0", "dev/dev/dm-0"
	w.release("u1")
	if w.mounts[one] == "" {
		t.Error("unmounted under a pod that is not known")
	}
	delete(w.mounts, "/k/pods/u3/x")
	w.n.NoteUnmount()
	w.run()
	if w.mounts[one] != "" || w.mounts[other] == "" || len(w.n.Disks) != 1 {
		t.Errorf("mounts %v, disks %v", w.mounts, w.n.Names())
	}
}

// A mark says which disk it is of, once that is known: the next agent knows by it that two volumes
// name one disk, and finds it though its port has gone.
func TestFCMarkNamesDisk(t *testing.T) {
	w := newRig(t)
	w.fcScan = []world.SCSIPath{withWWID(fcPath("/dev/sdb", "/dev/dm-0"), "naa.600")}
	w.use(fcUseBy("u", v1.FCVolumeSource{WWIDs: []string{"3600"}}))
	mark := w.n.Dir + "/fc/.attached/3600"
	if calls := w.take(); !strings.Contains(calls, "MakeDir "+mark+"\n") ||
		!strings.Contains(calls, "MakeDir "+mark+"/naa.600\nMountDevice") {
		t.Errorf("calls: %s", calls)
	}
	for _, c := range []struct {
		ids  []world.DirEntry
		want string
	}{{nil, "[]"}, {[]world.DirEntry{{Name: "naa.600", Directory: true}}, "[naa.600]"},
		// The name has changed its disk.
		{[]world.DirEntry{{Name: "naa.600", Directory: true}, {Name: "naa.601", Directory: true}}, "[]"},
		{[]world.DirEntry{{Name: "naa.600"}}, "[]"},
		{[]world.DirEntry{{Name: "x y", Directory: true}}, "[]"},
	} {
		w := newRig(t)
		w.n.Start(true)
		fc := w.n.Dir + "/fc"
		w.dirs[fc] = []world.DirEntry{{Name: ".attached", Directory: true},
			{Name: "volumeDevices", Directory: true}}
		w.dirs[fc+"/volumeDevices"] = []world.DirEntry{{Name: "3600", Directory: true}}
		w.dirs[fc+"/.attached"] = []world.DirEntry{{Name: "volumeDevices", Directory: true}}
		w.dirs[fc+"/.attached/volumeDevices"] = []world.DirEntry{{Name: "3600", Directory: true}}
		w.dirs[fc+"/.attached/volumeDevices/3600"] = c.ids
		w.hold = "Find"
		w.run()
		if find, _ := w.held[0].Body.(*world.FindSCSIDisks); fmt.Sprint(find.Unit.IDs) != c.want {
			t.Errorf("%+v, want %s", find, c.want)
		}
	}
}

// A scan for one disk may bring another one back that is just removed: it is looked for again.
func TestFCScanOfAll(t *testing.T) {
	w := newRig(t)
	w.fcScan = []world.SCSIPath{withWWID(fcPath("/dev/sdb", "/dev/dm-0"), "naa.600")}
	w.use(fcUseBy("u1", v1.FCVolumeSource{WWIDs: []string{"3600"}}))
	w.after(2 * disksWait)
	w.take()
	w.hold = "Remove 0"
	w.release("u1")
	w.fcPaths, w.fcScan = nil, nil
	w.use(fcUseBy("u2", v1.FCVolumeSource{WWIDs: []string{"3601"}}))
	if calls := w.take(); !strings.Contains(calls, "Scan [] 0 [3601]") {
		t.Fatalf("calls: %s", calls)
	}
	w.hold = ""
	w.complete(w.held[0], world.Event{Body: &world.Done{}})
	w.fcPaths = []world.SCSIPath{withWWID(fcPath("/dev/sdc", ""), "naa.600")}
	w.run()
	if w.after(disksWait); !strings.Contains(w.take(), "Remove 0") {
		t.Error("what the scan has brought was not removed")
	}
}

// A disk that an earlier agent has left is let go while a pod has it by another name, which is
// mounted since before: the mount table tells that it is the same disk. It goes with that pod.
func TestFCLeftByAnotherName(t *testing.T) {
	w := newRig(t)
	w.n.Start(true)
	mounted := w.n.Dir + "/fc/" + wwn + "-lun-0"
	w.dirs[w.n.Dir+"/fc"] = []world.DirEntry{{Name: wwn + "-lun-0", Directory: true},
		{Name: "3600", Directory: true}, {Name: ".attached", Directory: true}}
	w.dirs[w.n.Dir+"/fc/.attached"] = []world.DirEntry{{Name: "3600", Directory: true}}
	w.mounts[mounted], w.mounts["/k/pods/u/volumes/kubernetes.io~fc/v"] = "dev/dev/sdb", "dev/dev/sdb"
	w.fcPaths = []world.SCSIPath{withWWID(fcPath("/dev/sdb", ""), "naa.600")}
	w.use(fcUseBy("u", v1.FCVolumeSource{TargetWWNs: []string{wwn}, Lun: lunOf(0)}))
	w.after(lateMax)
	if calls := w.take(); len(w.n.Disks) != 1 || w.mounts[mounted] == "" ||
		strings.Contains(calls, "Remove 0") {
		t.Errorf("disks %v, mounts %v, calls: %s", w.n.Names(), w.mounts, calls)
	}
	delete(w.mounts, "/k/pods/u/volumes/kubernetes.io~fc/v")
	w.release("u")
	w.after(lateMax)
	if calls := w.take(); len(w.n.Disks) > 0 || !strings.Contains(calls, "Remove 0") {
		t.Errorf("disks %v, calls: %s", w.n.Names(), calls)
	}
}

// Of two names of one disk that are undone together, the one that is still looked for stays mounted
// until it is unmounted: what is found for the other one meanwhile does not count as that.
func TestFCTwoNamesAreUndone(t *testing.T) {
	w := newRig(t)
	w.n.Start(true)
	one, other := w.n.Dir+"/fc/"+wwn+"-lun-0", w.n.Dir+"/fc/3600"
	w.dirs[w.n.Dir+"/fc"] = []world.DirEntry{{Name: wwn + "-lun-0", Directory: true},
		{Name: "3600", Directory: true}}
	w.mounts[one], w.mounts[other] = "dev/dev/sdb", "dev/dev/sdb"
	w.fcPaths = []world.SCSIPath{withWWID(fcPath("/dev/sdb", ""), "naa.600")}
	w.hold = "Find 0"
	w.run()
	if len(w.held) != 2 {
		t.Fatalf("%d searches", len(w.held))
	}
	w.hold = ""
	w.complete(w.held[0], w.answer(w.held[0].Body))
	w.run()
	left := one
	if w.mounts[one] == "" {
		left = other
	}
	w.complete(w.held[1], w.answer(w.held[1].Body))
	w.run()
	if calls := w.take(); !strings.Contains(calls, "Unmount "+left) || len(w.mounts) > 0 {
		t.Errorf("mounts %v, calls: %s", w.mounts, calls)
	}
	if w.after(lateMax); len(w.n.Disks) > 0 || len(w.fcPaths) > 0 {
		t.Errorf("disks %v, paths %v", w.n.Names(), w.fcPaths)
	}
}

// A disk that waits for what late commands bring is not in use, and is undone at once if a pod has
// used it meanwhile.
func TestFCUsedWhileItIsLookedFor(t *testing.T) {
	w := newRig(t)
	w.n.Start(true)
	at := w.n.Dir + "/fc/3600"
	w.dirs[w.n.Dir+"/fc"] = []world.DirEntry{{Name: "3600", Directory: true}}
	w.mounts[at] = "dev/dev/sdb"
	w.fcPaths = []world.SCSIPath{fcPath("/dev/sdb", "/dev/dm-0")}
	w.run()
	node := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{
		"kubernetes.io/fc/[3600]"}}}
	if names := w.n.VolumesInUse(node); len(names) > 0 || len(w.n.Disks) != 1 || len(w.mounts) > 0 {
		t.Errorf("in use: %v, mounts %v", names, w.mounts)
	}
	w.fcScan = []world.SCSIPath{fcPath("/dev/sdc", "/dev/dm-0")}
	w.use(fcUseBy("u", v1.FCVolumeSource{WWIDs: []string{"3600"}}))
	if w.mounts[at] == "" || len(w.n.VolumesInUse(node)) != 1 {
		t.Errorf("mounts %v", w.mounts)
	}
	if w.release("u"); len(w.mounts) > 0 || len(w.fcPaths) > 0 {
		t.Errorf("mounts %v, paths %v", w.mounts, w.fcPaths)
	}
}
