package scsi

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// This machine has no fibre channel: sysfs and the devices are directories of files and links.

const wwn = "50060a0b00c26ae2"

// fcNode makes directories that are like those of a node which has LUN 3 of a port by two hosts,
// joined by multipathd, LUN 4 by one, and a link that is older than its disk.
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
	for name, target := range map[string]string{ //ordered: each by itself
		"by-path/pci-0000:41:00.0-fc-0x" + wwn + "-lun-3":  "sdb",
		"by-path/pci-0000:41:00.0-fc-0x" + wwn + "-lun-30": "sde",
		"by-path/fc-0x" + wwn + "-lun-4":                   "sdd",
		"by-path/fc-0x" + wwn + "-lun-6":                   "sdz",
		"by-id/scsi-3600":                                  "dm-0",
		"by-id/scsi-3601":                                  "sdd",
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

// A disk is found with all paths to it, by a port of its target, by its name, and by the link to
// its multipath device; a link that leads nowhere is none.
func TestFindFC(t *testing.T) {
	opts := fcNode(t)
	path := func(host int, name, multipath string, numbers ...string) world.SCSIPath {
		p := world.SCSIPath{Host: host, Present: true, OfDisk: numbers, OfAny: numbers,
			Device: world.BlockDevice{Path: opts.Dev + "/" + name, Sequence: 7}}
		if multipath != "" {
			p.Multipath.Path = opts.Dev + "/" + multipath
		}
		return p
	}
	joined := []world.SCSIPath{path(1, "sdc", "dm-0", "8:sdc", "253:0"),
		path(2, "sdb", "dm-0", "8:sdb", "253:0")}
	single := []world.SCSIPath{path(1, "sdd", "", "8:sdd")}
	for i, c := range []struct {
		unit world.LogicalUnit
		want []world.SCSIPath
	}{
		{unitOf(3), joined}, {unitOf(4), single}, {unitOf(6), nil}, {unitOf(7), nil},
		{world.LogicalUnit{WWIDs: []string{"x", "3600"}}, joined},
		{world.LogicalUnit{WWIDs: []string{"3601"}}, single},
		{world.LogicalUnit{WWIDs: []string{"360"}}, nil},
	} {
		ev := do(t, opts, &world.FindSCSIDisks{Unit: c.unit}, porttest.Patience)
		if want := (&world.SCSIDisksFound{Paths: c.want}); !reflect.DeepEqual(ev.Body, want) {
			t.Errorf("%d: %+v, %v, want %+v", i, ev.Body, ev.Err, want)
		}
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

// All paths of a disk are removed, after its multipath device, which has a path and is flushed.
func TestRemoveFC(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	install(t, "multipath", `echo "$@" >> `+log)
	opts := fcNode(t)
	ev := do(t, opts, &world.RemoveSCSIDisks{Unit: unitOf(3)}, porttest.Patience)
	got := ""
	for _, unit := range []string{"1:0:1:3", "2:0:1:3", "1:0:1:4", "1:0:1:5"} {
		got += read(t, opts.Sys, "devices", unit, "delete") + ";"
	}
	if got != "1;1;;;" || read(t, log) != "-f "+opts.Dev+"/dm-0\n" || ev.Err != nil {
		t.Errorf("wrote %q, flushed %q, %v", got, read(t, log), ev.Err)
	}
}
