package scsi

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// This machine has no fibre channel: sysfs and the devices are directories of files and links.

const wwn = "50060a0b00c26ae2"

// fcNode makes directories that are like those of a node which has LUN 3 of a port by two hosts,
// joined by multipathd, LUN 4 by one, links that are older than their disks, and a multipath device
// that has lost its disk.
func fcNode(t *testing.T) Options {
	t.Helper()
	opts := Options{Sys: t.TempDir(), Dev: t.TempDir()}
	write := func(path, text string) {
		path = filepath.Join(opts.Sys, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(path, target string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	disk := func(name, unit, wwid string) {
		write("devices/"+unit+"/delete", "")
		write("devices/"+unit+"/wwid", wwid+"\n")
		write("devices/"+unit+"/block/"+name+"/dev", "8:"+name+"\n")
		write("devices/"+unit+"/block/"+name+"/diskseq", "7\n")
		link(filepath.Join(opts.Sys, "devices", unit, "block", name, "device"), "../..")
		link(filepath.Join(opts.Sys, "class/block", name), "../../devices/"+unit+"/block/"+name)
	}
	disk("sdb", "2:0:1:3", "naa.600")
	disk("sdc", "1:0:1:3", "naa.600")
	disk("sdd", "1:0:1:4", "naa.601")
	disk("sde", "1:0:1:5", "")
	for _, name := range []string{"sdb", "sdc"} {
		write("class/block/"+name+"/holders/dm-0", "")
		link(filepath.Join(opts.Sys, "class/block/dm-0/slaves", name), "../../"+name)
	}
	write("class/block/dm-0/dev", "253:0\n")
	write("class/block/dm-0/dm/uuid", "mpath-3600\n")
	write("class/block/dm-0/dm/name", "mpatha\n")
	write("class/block/sdb/device/state", "running\n")
	write("class/block/dm-1/dev", "253:1\n")
	write("class/block/dm-1/dm/uuid", "mpath-3602\n")
	write("class/block/dm-1/dm/name", "mpathb\n")
	write("class/fc_transport/target1:0:1/port_name", "0x"+wwn+"\n")
	write("class/fc_transport/target2:0:1/port_name", "0x"+wwn+"\n")
	for name, target := range map[string]string{ //ordered: each by itself
		"by-path/fc-0x" + wwn + "-lun-6": "sdd",
		"by-id/scsi-3600":                "sdd",
		"by-id/scsi-3603":                "sdd",
		"by-id/scsi-SMAKER_1":            "sde",
	} {
		link(filepath.Join(opts.Dev, "disk", name), "../../"+target)
	}
	write("class/scsi_host/host1/scan", "")
	write("class/scsi_host/host2/scan", "")
	write("class/scsi_host/host3/scan", "")
	write("class/iscsi_host/host3/x", "")
	return opts
}

func unitOf(lun int32) world.LogicalUnit {
	return world.LogicalUnit{WWNs: []string{"5006", wwn}, LUN: lun}
}

// A disk is found with all paths to it, by a port of its target, by its name, and by where it is
// mounted; a link counts only for a name that the kernel does not have.
func TestFindFC(t *testing.T) {
	opts := fcNode(t)
	path := func(host int, name, multipath string, numbers ...string) world.SCSIPath {
		p := world.SCSIPath{Host: host, Present: true, OfDisk: numbers, OfAny: numbers, WWID: "naa.600",
			Device: world.BlockDevice{Path: opts.Dev + "/" + name, Sequence: 7}}
		if multipath != "" {
			p.Multipath.Path = opts.Dev + "/" + multipath
		}
		return p
	}
	joined := []world.SCSIPath{path(1, "sdc", "dm-0", "8:sdc", "253:0"),
		path(2, "sdb", "dm-0", "8:sdb", "253:0")}
	single := []world.SCSIPath{path(1, "sdd", "", "8:sdd")}
	single[0].WWID = "naa.601"
	named := []world.SCSIPath{path(1, "sde", "", "8:sde")}
	named[0].WWID = ""
	lost := []world.SCSIPath{{Present: true, OfDisk: []string{"253:1"}, OfAny: []string{"253:1"},
		WWID: "naa.602", Multipath: world.BlockDevice{Path: opts.Dev + "/dm-1"}}}
	for i, c := range []struct {
		unit world.LogicalUnit
		want []world.SCSIPath
	}{
		{unitOf(3), joined}, {unitOf(4), single}, {unitOf(6), nil}, {unitOf(7), nil},
		{world.LogicalUnit{WWIDs: []string{"x", "3600"}}, joined},
		{world.LogicalUnit{WWIDs: []string{"3601"}}, single},
		{world.LogicalUnit{WWIDs: []string{"360"}}, nil},
		{world.LogicalUnit{WWIDs: []string{"3603"}}, nil}, // the link is older than sdd
		{world.LogicalUnit{WWIDs: []string{"SMAKER_1"}}, named},
		{world.LogicalUnit{WWIDs: []string{"3602"}}, lost},
		// The port is lost, but what the disk is was seen before, or its mount is.
		{world.LogicalUnit{WWNs: []string{"5006"}, IDs: []string{"naa.600"}}, joined},
		{world.LogicalUnit{WWNs: []string{"5006"}, Mounted: "253:0"}, joined},
		{world.LogicalUnit{WWNs: []string{"5006"}, Mounted: "253:1"}, lost},
		{world.LogicalUnit{WWNs: []string{"5006"}, Mounted: "8:sdd"}, single},
	} {
		ev := do(t, opts, &world.FindSCSIDisks{Unit: c.unit}, porttest.Patience)
		if want := (&world.SCSIDisksFound{Paths: c.want}); !reflect.DeepEqual(ev.Body, want) {
			t.Errorf("%d: %+v, %v, want %+v", i, ev.Body, ev.Err, want)
		}
	}
}

// A link of udev that is older than its disk does not count: none by the sequence number of the
// disk has been made with it.
func TestStaleLink(t *testing.T) {
	opts := fcNode(t)
	find := func() int {
		ev := do(t, opts, &world.FindSCSIDisks{Unit: world.LogicalUnit{WWIDs: []string{"SMAKER_1"}}},
			porttest.Patience)
		return len(ev.Body.(*world.SCSIDisksFound).Paths)
	}
	link := func(sequence, name string) {
		path := filepath.Join(opts.Dev, "disk/by-diskseq", sequence)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../"+name, path); err != nil {
			t.Fatal(err)
		}
	}
	before := find()
	link("6", "sde")
	stale := find()
	if link("7", "sde"); before != 1 || stale != 0 || find() != 1 {
		t.Errorf("found %d, %d, %d", before, stale, find())
	}
}

// Ports that are known are asked for the LUN alone; otherwise all hosts are, but those of iSCSI.
func TestScanFC(t *testing.T) {
	opts := fcNode(t)
	scanned := func(unit world.LogicalUnit) string {
		ev := do(t, opts, &world.ScanSCSIHosts{Unit: unit}, porttest.Patience)
		if ev.Err != nil {
			t.Error(ev.Err)
		}
		text := ""
		for _, host := range []string{"host1", "host2", "host3"} {
			at := filepath.Join(opts.Sys, "class/scsi_host", host, "scan")
			text += read(t, at) + ";"
			if err := os.WriteFile(at, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return text
	}
	if got := scanned(unitOf(3)); got != "- - 3;- - 3;;" {
		t.Errorf("scanned %q", got)
	}
	if got := scanned(world.LogicalUnit{WWIDs: []string{"3600"}}); got != "- - -;- - -;;" {
		t.Errorf("scanned %q", got)
	}
	if err := os.MkdirAll(filepath.Join(opts.Sys, "class/fc_host/host1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := scanned(unitOf(3)); got != "- - 3;;;" {
		t.Errorf("scanned %q, a host that is none of fibre channel as well", got)
	}
	for port, id := range map[string]string{ //ordered: each by itself
		"rport-2:0-4": "1", "rport-1:0-4": "-1"} {
		dir := filepath.Join(opts.Sys, "class/fc_remote_ports", port)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{ //ordered: each by itself
			"port_name": "0x" + wwn, "scsi_target_id": id} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := scanned(unitOf(3)); got != ";0 1 3;;" {
		t.Errorf("scanned %q", got)
	}
}

// A host whose scan hangs keeps no other one from its scan, and is not scanned again meanwhile:
// what waits for that gives up at its deadline.
func TestScanThatHangs(t *testing.T) {
	opts := fcNode(t)
	at := filepath.Join(opts.Sys, "class/scsi_host/host1/scan")
	if err := os.Remove(at); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(at, 0o600); err != nil { // opening it waits for a reader
		t.Fatal(err)
	}
	w := porttest.New()
	opts.Clock, opts.Deliver = w.Clock, w.Deliver
	port := New(opts)
	w.Port = port
	var before int
	for i := range 4 {
		if i == 1 {
			before = runtime.NumGoroutine()
		}
		_, err := w.CallWithin(&world.ScanSCSIHosts{Unit: unitOf(3)}, 200*time.Millisecond)
		if !err.Has(world.KindTimeout) {
			t.Errorf("%v", err)
		}
	}
	if got := read(t, opts.Sys, "class/scsi_host/host2/scan"); got != "- - 3" {
		t.Errorf("scanned %q", got)
	}
	if after := runtime.NumGoroutine(); after > before+1 {
		t.Errorf("%d goroutines, and %d before the scans were repeated", after, before)
	}
	reader, err := os.OpenFile(at, os.O_RDWR, 0) // ends the scan
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if _, err := w.CallWithin(&world.ScanSCSIHosts{Unit: unitOf(3)}, porttest.Patience); err != nil {
		t.Error(err)
	}
	port.Close()
}

// All paths of a disk are removed, after its multipath device, which has a path and is flushed.
func TestRemoveFC(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	install(t, "multipath", `echo "$@" >> `+log)
	opts := fcNode(t)
	ev := do(t, opts, removalOf(opts, 7, "sdb", "sdc"), porttest.Patience)
	if got := removed(t, opts); got != "1;1;;;" || read(t, log) != "-f "+opts.Dev+"/dm-0\n" ||
		ev.Err != nil {
		t.Errorf("wrote %q, flushed %q, %v", got, read(t, log), ev.Err)
	}
}

// removalOf returns the removal of disks that were found with a sequence number.
func removalOf(opts Options, sequence uint64, names ...string) *world.RemoveSCSIDisks {
	m := &world.RemoveSCSIDisks{Unit: unitOf(3)}
	for _, name := range names {
		m.Devices = append(m.Devices, world.BlockDevice{Path: opts.Dev + "/" + name, Sequence: sequence})
	}
	return m
}

func removed(t *testing.T, opts Options) (got string) {
	for _, unit := range []string{"1:0:1:3", "2:0:1:3", "1:0:1:4", "1:0:1:5"} {
		got += read(t, opts.Sys, "devices", unit, "delete") + ";"
	}
	return got
}

// A disk that has the path of the one that was found stays.
func TestRemoveOfAnotherDisk(t *testing.T) {
	opts := fcNode(t)
	ev := do(t, opts, removalOf(opts, 6, "sdd"), porttest.Patience)
	if got := removed(t, opts); got != ";;;;" || !ev.Err.Has(world.KindRefused) {
		t.Errorf("wrote %q, %v", got, ev.Err)
	}
}

// A device that a pod has stays: it is bound to a file, or a loop device on such a file holds it.
func TestRemoveOfDeviceInUse(t *testing.T) {
	opts := fcNode(t)
	at := filepath.Join(t.TempDir(), "uid")
	if err := unix.Mknod(at, unix.S_IFBLK|0o600, int(unix.Mkdev(240, 7))); err != nil {
		t.Fatal(err)
	}
	put := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(opts.Sys, "class/block/sdd/dev"), "240:7\n")
	opts.Mounts = filepath.Join(t.TempDir(), "mountinfo")
	bind := "36 35 0:6 /sdd " + at + " rw shared:1 - devtmpfs devtmpfs rw\n"
	file := filepath.Join(opts.Sys, "block/loop3/loop/backing_file")
	dev := "30 1 0:6 / " + filepath.Dir(at) + " rw shared:1 - devtmpfs devtmpfs rw\n"
	for _, c := range []struct{ mounts, loop string }{{bind, "/x"}, {dev, at}} {
		put(opts.Mounts, c.mounts)
		put(file, c.loop+"\n")
		ev := do(t, opts, removalOf(opts, 7, "sdd"), porttest.Patience)
		if removed(t, opts) != ";;;;" || !ev.Err.Has(world.KindRefused) ||
			!strings.Contains(ev.Err.Message, "sdd is in use at "+at) {
			t.Errorf("%+v: %q, %v", c, removed(t, opts), ev.Err)
		}
	}
	put(file, "/x\n")
	if ev := do(t, opts, removalOf(opts, 7, "sdd"), porttest.Patience); ev.Err != nil {
		t.Error(ev.Err)
	}
}

// What a loop device is on is not looked at if it is on a file system that may hang: no device that
// is removed is there.
func TestUsersOnOtherFileSystems(t *testing.T) {
	dir := t.TempDir()
	k := kernel{sys: dir, mounts: filepath.Join(dir, "mountinfo")}
	mounts := "1 0 8:1 / / rw - ext4 /dev/sda rw\n" +
		"2 1 0:6 / /dev rw - devtmpfs devtmpfs rw\n" +
		"3 1 0:9 / /nfs rw - nfs4 host:/ rw\n" +
		"4 1 0:6 /sdb /k/uid rw - devtmpfs devtmpfs rw\n" +
		"5 1 0:7 / /run rw - tmpfs tmpfs rw\n" +
		"6 5 0:8 / /run/hung rw - fuse.x x rw\n" +
		"7 1 0:7 / /over rw - tmpfs tmpfs rw\n" +
		"8 7 0:9 / /over rw - nfs4 host:/ rw\n"
	if err := os.WriteFile(k.mounts, []byte(mounts), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, backing := range []string{"/nfs/image", "/dev/sdc", "/home/image", "/k/uid", "/run/x",
		"/run/hung/image", "/over/image", "/runs/image", "relative"} {
		file := filepath.Join(dir, "block", fmt.Sprint("loop", i), "loop/backing_file")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(backing+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := k.users()
	if want := "[/k/uid /dev/sdc /k/uid /run/x]"; err != nil || fmt.Sprint(got) != want {
		t.Errorf("%v, %v, want %s", got, err, want)
	}
}

// A multipath device without a path that cannot be removed waits for one again, if it did; one
// that is claimed is left as it is.
func TestRemoveOfMapWithoutPath(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	install(t, "multipath", `echo "map in use"; exit 1`)
	install(t, "dmsetup", `if [ "$1" = table ]; then echo "0 9 multipath 1 queue_if_no_path"; exit; fi
		echo "$@" >> `+log)
	opts := fcNode(t)
	ev := do(t, opts, removalOf(opts, 0, "dm-1"), porttest.Patience)
	if want := "message mpathb 0 fail_if_no_path\nmessage mpathb 0 queue_if_no_path\n"; read(t,
		log) != want || !ev.Err.Has(world.KindRefused) {
		t.Errorf("sent %q, %v", read(t, log), ev.Err)
	}
	claimed, err := os.OpenFile(loopOn(t, opts, "dm-1"), os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer claimed.Close()
	if err := os.Truncate(log, 0); err != nil {
		t.Fatal(err)
	}
	ev = do(t, opts, removalOf(opts, 0, "dm-1"), porttest.Patience)
	if read(t, log) != "" || !ev.Err.Has(world.KindRefused) {
		t.Errorf("sent %q, %v", read(t, log), ev.Err)
	}
}

// Errors of reading are not taken for a disk that is not there.
func TestFindFCFails(t *testing.T) {
	opts := fcNode(t)
	if err := os.RemoveAll(filepath.Join(opts.Dev, "disk/by-id")); err != nil {
		t.Fatal(err)
	}
	find := &world.FindSCSIDisks{Unit: world.LogicalUnit{WWIDs: []string{"SMAKER_1"}}}
	if ev := do(t, opts, find, porttest.Patience); ev.Err != nil {
		t.Error(ev.Err)
	}
	if err := os.WriteFile(filepath.Join(opts.Dev, "disk/by-id"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if ev := do(t, opts, find, porttest.Patience); ev.Err == nil {
		t.Errorf("%+v", ev.Body)
	}
}
