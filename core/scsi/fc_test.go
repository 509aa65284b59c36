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
	if state := w.use(u); !state.Ready || w.mounts[root] != "dev/dev/sdb" {
		t.Errorf("%+v, %v", state, w.mounts)
	}
	w.expect("MakeDir "+root, "Scan ["+wwn+"] 3 []", "MountDevice /dev/sdb xfs true []")
	if names := w.n.VolumesInUse(&v1.Node{}); len(names) != 1 ||
		names[0] != "kubernetes.io/fc/["+v1.UniqueVolumeName(wwn)+"]:3" {
		t.Errorf("in use: %v", names)
	}
	w.release("u")
	w.expect("Unmount "+root, "Remove 3")
	w.fcPaths = w.fcScan // the scan brings it back
	w.after(disksWait)
	w.expect("Remove 3", "RemoveTree "+root)
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
	w.expect("MakeDir "+w.n.Dir+"/fc/3600_a-b", "MountDevice /dev/dm-0 ext4 false []")

	w = newRig(t)
	w.fcScan = []world.SCSIPath{fcPath("/dev/sdb", ""), fcPath("/dev/sdc", "")}
	u := fcUseBy("u", v1.FCVolumeSource{TargetWWNs: []string{wwn}, Lun: lunOf(0)})
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
		"fc: no fc disk":        {TargetWWNs: []string{wwn}}, // without a LUN
		"fc.targetWWNs":         {TargetWWNs: []string{"../" + wwn}, Lun: lunOf(0)},
		"fc.targetWWNs: more":   {TargetWWNs: append(many, wwn), Lun: lunOf(0)},
		"fc.lun":                {TargetWWNs: []string{wwn}, Lun: lunOf(256)},
		"fc.wwids":              {WWIDs: []string{"a/b"}},
		"fc.wwids: the name":    {WWIDs: []string{"volumeDevices"}},
		"fc.wwids: the name of": {WWIDs: []string{"a", "lun", "3"}},
		"fc: the names":         {WWIDs: []string{strings.Repeat("a", 128), strings.Repeat("b", 128)}},
		"fc.fsType":             {WWIDs: []string{"a"}, FSType: "-x"},
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
		{Name: "3600_a", Directory: true}, {Name: "volumeDevices", Directory: true}}
	w.dirs[w.n.Dir+"/fc/volumeDevices"] = []world.DirEntry{{Name: "3600", Directory: true}}
	w.dirs[w.n.Dir+"/fc/volumeDevices/3600"] = []world.DirEntry{{Name: "gone"}}
	w.mounts[w.n.Dir+"/fc/"+wwn+"-lun-1"] = "dev/dev/sdb"
	w.fcPaths = []world.SCSIPath{fcPath("/dev/sdb", "")}
	w.run()
	if got := fmt.Sprint(w.n.Names()); got != "[fc/3600_a fc/"+wwn+"-lun-1 fc/volumeDevices/3600]" ||
		!w.n.Holds("gone") {
		t.Fatalf("found %s", got)
	}
	node := &v1.Node{Status: v1.NodeStatus{VolumesInUse: []v1.UniqueVolumeName{
		"kubernetes.io/fc/[3600 a]", "kubernetes.io/fc/[" + wwn + "]:1", "kubernetes.io/fc/[gone]"}}}
	if names := w.n.VolumesInUse(node); len(names) != 2 {
		t.Errorf("in use: %v", names)
	}
	w.cleans = true
	w.after(time.Minute)
	w.after(lateMax)
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
