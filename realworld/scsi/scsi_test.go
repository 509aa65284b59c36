package scsi

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// This machine has no iSCSI: iscsiadm is a script, and sysfs a directory of files.

// install has a script be a program, besides those of the system.
func install(t *testing.T, name, script string) {
	t.Helper()
	dir := t.TempDir()
	text := []byte("#!/bin/sh\n" + script + "\n")
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// do carries out a request that has a time to end.
func do(t *testing.T, opts Options, request any, timeout time.Duration) world.Event {
	t.Helper()
	w := porttest.New()
	opts.Clock, opts.Deliver = w.Clock, w.Deliver
	port := New(opts)
	defer port.Close()
	w.Port = port
	body, err := w.CallWithin(request, timeout)
	return world.Event{Body: body, Err: err}
}

// A command has its arguments, the password as the last one, and its output is returned without the
// password, whatever its exit code is.
func TestCommand(t *testing.T) {
	install(t, "iscsiadm", `echo "$# $1 $4"; echo "$5 is wrong" >&2; exit 15`)
	ev := do(t, Options{}, &world.RunISCSIAdm{Args: []string{"-m", "node", "-o", "x"},
		Password: "hunter2"}, porttest.Patience)
	want := &world.ISCSIAdmRan{ExitCode: world.ISCSISessionExists,
		Output: "5 -m x\n[redacted] is wrong\n"}
	if !reflect.DeepEqual(ev.Body, want) || ev.Err != nil {
		t.Errorf("%+v, %v, want %+v", ev.Body, ev.Err, want)
	}
}

// Where iscsiadm is not installed, the error says so and names it.
func TestNotInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	ev := do(t, Options{}, &world.RunISCSIAdm{Args: []string{"-m", "iface"}}, porttest.Patience)
	if !ev.Err.Has(world.KindNotFound) || !strings.Contains(ev.Err.Message, `"iscsiadm"`) {
		t.Error(ev.Err)
	}
}

// A command that does not end is killed with what it has started.
func TestHungCommandIsKilled(t *testing.T) {
	pids := filepath.Join(t.TempDir(), "pids")
	install(t, "iscsiadm", `sleep 1000 & echo $! > `+pids+`; wait`)
	ev := do(t, Options{}, &world.RunISCSIAdm{Args: []string{"-m", "node"}}, time.Second)
	if !ev.Err.Has(world.KindTimeout) {
		t.Error(ev.Err)
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	porttest.Eventually(t, "the child of the command has gone", func() bool {
		state, err := os.ReadFile("/proc/" + strings.TrimSpace(string(text)) + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

func TestOutputIsBounded(t *testing.T) {
	install(t, "iscsiadm", `head -c 1000000 /dev/zero | tr '\0' x`)
	ev := do(t, Options{}, &world.RunISCSIAdm{Args: []string{"-m", "node"}}, porttest.Patience)
	ran, isRan := ev.Body.(*world.ISCSIAdmRan)
	if !isRan || len(ran.Output) != world.ISCSIOutputBytesMax {
		t.Errorf("%d bytes, %v", len(ran.Output), ev.Err)
	}
}

const target = "iqn.2026-11.test:a"

// sysfs makes a directory that is like sysfs of two sessions with a target and one with another.
// The disks of LUN 1 are joined by multipathd, and have a partition that is a logical volume's.
func sysfs(t *testing.T) (sys string) {
	t.Helper()
	sys = t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(sys, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	session := func(host, name, target, iface, portal string) string {
		at := "class/iscsi_host/host" + host + "/device/session" + name + "/"
		write(at+"iscsi_session/session"+name+"/targetname", target+"\n")
		write(at+"iscsi_session/session"+name+"/ifacename", iface+"\n")
		connection := at + "connection" + name + ":0/iscsi_connection/connection" + name + ":0/"
		write(connection+"address", portal+"\n")
		write(connection+"port", "3260\n")
		write(connection+"persistent_address", "10.0.0.9\n")
		write(connection+"persistent_port", "3260\n")
		write("class/scsi_host/host"+host+"/scan", "")
		return at + "target" + host + ":0:0/"
	}
	one := session("4", "11", target, "default", "10.0.0.1")
	two := session("3", "12", target, "<NULL>", "fd00::1")
	session("5", "13", "iqn.2026-11.test:b", "default", "10.0.0.3")
	disk := func(at, name, number, holder string) {
		write(at+"block/"+name+"/dev", number+"\n")
		write(at+"delete", "")
		write(at+"block/"+name+"/diskseq", "9\n")
		if holder != "" {
			write(at+"block/"+name+"/holders/"+holder, "")
		}
	}
	disk(one+"4:0:0:1/", "sdb", "8:16", "dm-0")
	disk(two+"3:0:0:1/", "sdc", "8:32", "dm-0")
	disk(two+"3:0:0:2/", "sdd", "8:48", "")
	write(two+"3:0:0:2/block/sdd/sdd1/partition", "1\n")
	write(two+"3:0:0:2/block/sdd/sdd1/dev", "8:49\n")
	write(two+"3:0:0:2/block/sdd/sdd1/holders/dm-1", "")
	write("class/block/dm-0/dev", "253:0\n")
	write("class/block/dm-0/dm/uuid", "mpath-3600\n")
	write("class/block/dm-0/dm/name", "mpatha\n")
	write("class/block/dm-1/dev", "253:1\n")
	write("class/block/dm-1/dm/uuid", "LVM-xyz\n")
	write("class/block/dm-1/dm/name", "vg-lv\n")
	return sys
}

func TestFind(t *testing.T) {
	opts := Options{Sys: sysfs(t), Dev: "/dev"}
	ofB := []string{"8:32", "253:0", "8:48", "8:49", "253:1"}
	host3 := world.SCSIPath{Host: 3, Portals: []string{"[fd00::1]:3260", "10.0.0.9:3260"},
		OfAny: ofB, UsedBy: "dm-1 on sdd"}
	host4 := world.SCSIPath{Host: 4, Portals: []string{"10.0.0.1:3260", "10.0.0.9:3260"},
		Iface: "default", OfAny: []string{"8:16", "253:0"}}
	with := func(s world.SCSIPath, device, multipath string,
		numbers ...string) world.SCSIPath {
		s.Present = true
		if device == "/dev/sdd" { // what uses the disk itself is no other's
			s.UsedBy = ""
		}
		s.Device, s.OfDisk = world.BlockDevice{Path: device, Sequence: 9}, numbers
		s.Multipath.Path = multipath
		return s
	}
	for _, c := range []struct {
		target string
		lun    int32
		want   []world.SCSIPath
	}{
		{target, 1, []world.SCSIPath{with(host3, "/dev/sdc", "/dev/dm-0", "8:32", "253:0"),
			with(host4, "/dev/sdb", "/dev/dm-0", "8:16", "253:0")}},
		{target, 2, []world.SCSIPath{with(host3, "/dev/sdd", "", "8:48", "8:49", "253:1"), host4}},
		{target, 3, []world.SCSIPath{host3, host4}},
		{"iqn.2026-11.test:c", 1, nil},
	} {
		ev := do(t, opts, &world.FindSCSIDisks{Unit: world.LogicalUnit{Target: c.target, LUN: c.lun}},
			porttest.Patience)
		if want := (&world.SCSIDisksFound{Paths: c.want}); !reflect.DeepEqual(ev.Body, want) {
			t.Errorf("%s LUN %d: %+v, %v, want %+v", c.target, c.lun, ev.Body, ev.Err, want)
		}
	}
	opts.Sys = t.TempDir() // without the module
	ev := do(t, opts, &world.FindSCSIDisks{Unit: world.LogicalUnit{Target: target}},
		porttest.Patience)
	if found, isFound := ev.Body.(*world.SCSIDisksFound); !isFound || len(found.Paths) > 0 {
		t.Errorf("%+v, %v", ev.Body, ev.Err)
	}
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestScan(t *testing.T) {
	opts := Options{Sys: sysfs(t)}
	ev := do(t, opts, &world.ScanSCSIHost{Host: 4, LUN: 7}, porttest.Patience)
	if got := read(t, opts.Sys, "class/scsi_host/host4/scan"); got != "0 0 7" || ev.Err != nil {
		t.Errorf("wrote %q, %v", got, ev.Err)
	}
	if ev = do(t, opts, &world.ScanSCSIHost{Host: 8}, porttest.Patience); ev.Err == nil {
		t.Error("a host that does not exist was scanned")
	}
}

// All disks of a logical unit are removed, and no other one, after multipath has flushed what is on
// top of them, which has no path any more and must not wait for one.
func TestRemove(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	install(t, "multipath", `echo "$@" >> `+log)
	install(t, "dmsetup", `[ "$1" = table ] || echo "$@" >> `+log)
	opts := Options{Sys: sysfs(t), Dev: t.TempDir()}
	ev := do(t, opts, &world.RemoveSCSIDisks{Unit: world.LogicalUnit{Target: target, LUN: 1}},
		porttest.Patience)
	at := opts.Sys + "/class/iscsi_host/"
	got := read(t, at, "host4/device/session11/target4:0:0/4:0:0:1/delete") +
		read(t, at, "host3/device/session12/target3:0:0/3:0:0:1/delete") + " " +
		read(t, at, "host3/device/session12/target3:0:0/3:0:0:2/delete")
	flushed := "message mpatha 0 fail_if_no_path\n-f " + opts.Dev + "/dm-0\n"
	if got != "11 " || read(t, log) != flushed || ev.Err != nil {
		t.Errorf("wrote %q, flushed %q, %v", got, read(t, log), ev.Err)
	}
}

// A multipath device that is in use stays, and so do its disks.
func TestRemoveOfBusyMultipath(t *testing.T) {
	install(t, "multipath", `echo "map in use"; exit 1`)
	install(t, "dmsetup", `[ "$1" = message ]`)
	opts := Options{Sys: sysfs(t), Dev: t.TempDir()}
	ev := do(t, opts, &world.RemoveSCSIDisks{Unit: world.LogicalUnit{Target: target, LUN: 1}},
		porttest.Patience)
	got := read(t, opts.Sys, "class/iscsi_host/host4/device/session11/target4:0:0/4:0:0:1", "delete")
	if got != "" || !ev.Err.Has(world.KindRefused) || !strings.Contains(ev.Err.Message, "map in use") {
		t.Errorf("wrote %q, %v", got, ev.Err)
	}
}

// loopOn makes a loop device, which is the device of a name, and returns its path.
func loopOn(t *testing.T, opts Options, name string) (device string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	if err != nil {
		t.Fatalf("no loop device: %v: %s", err, out)
	}
	device = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	if err := os.Symlink(device, filepath.Join(opts.Dev, name)); err != nil {
		t.Fatal(err)
	}
	return device
}

// A disk that something has claimed, as a file system does, is not removed.
func TestRemoveOfClaimedDisk(t *testing.T) {
	opts := Options{Sys: sysfs(t), Dev: t.TempDir()}
	device := loopOn(t, opts, "sdd")
	deleted := opts.Sys + "/class/iscsi_host/host3/device/session12/target3:0:0/3:0:0:2/delete"
	install(t, "dmsetup", "exit 0")
	claimed, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0)
	if err != nil {
		t.Fatal(err)
	}
	ev := do(t, opts, &world.RemoveSCSIDisks{Unit: world.LogicalUnit{Target: target, LUN: 2}},
		porttest.Patience)
	if !ev.Err.Has(world.KindRefused) || read(t, deleted) != "" {
		t.Errorf("removed a disk in use: %v", ev.Err)
	}
	if err := claimed.Close(); err != nil {
		t.Fatal(err)
	}
	ev = do(t, opts, &world.RemoveSCSIDisks{Unit: world.LogicalUnit{Target: target, LUN: 2}},
		porttest.Patience)
	if ev.Err != nil || read(t, deleted) != "1" {
		t.Errorf("%v", ev.Err)
	}
}

// A program that hangs is ended with the context.
func TestExecuteEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := execute(ctx, "sleep", "1000"); err == nil {
		t.Error("no error")
	}
}

// Logical volumes that the node has found on a disk are removed with it, unless they are in use.
func TestRemoveOfHeldDisk(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	install(t, "dmsetup", `echo "$@" >> `+log)
	opts := Options{Sys: sysfs(t), Dev: t.TempDir()}
	remove := &world.RemoveSCSIDisks{Unit: world.LogicalUnit{Target: target, LUN: 2}}
	deleted := opts.Sys + "/class/iscsi_host/host3/device/session12/target3:0:0/3:0:0:2/delete"
	ev := do(t, opts, remove, porttest.Patience)
	if read(t, log) != "remove vg-lv\n" || read(t, deleted) != "1" || ev.Err != nil {
		t.Errorf("%q, %v", read(t, log), ev.Err)
	}
	install(t, "dmsetup", `echo "device is busy"; exit 1`)
	ev = do(t, opts, remove, porttest.Patience)
	if !ev.Err.Has(world.KindRefused) || !strings.Contains(ev.Err.Message, "sdd is in use by dm-1") {
		t.Error(ev.Err)
	}
}

// A logical unit without a block device is there, and can be removed.
func TestUnitWithoutDevice(t *testing.T) {
	opts := Options{Sys: sysfs(t), Dev: "/dev"}
	unit := opts.Sys + "/class/iscsi_host/host4/device/session11/target4:0:0/4:0:0:9"
	if err := os.MkdirAll(unit, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(unit+"/delete", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	of := world.LogicalUnit{Target: target, LUN: 9}
	ev := do(t, opts, &world.FindSCSIDisks{Unit: of}, porttest.Patience)
	found := ev.Body.(*world.SCSIDisksFound)
	if len(found.Paths) != 2 || !found.Paths[1].Present || found.Paths[1].Device.Path != "" {
		t.Errorf("%+v", found)
	}
	ev = do(t, opts, &world.RemoveSCSIDisks{Unit: of}, porttest.Patience)
	if ev.Err != nil || read(t, unit, "delete") != "1" {
		t.Error(ev.Err)
	}
}

// What uses another disk of a session without a mount is named.
func TestUserOfAnotherDisk(t *testing.T) {
	opts := Options{Sys: sysfs(t), Dev: "/dev", Swaps: filepath.Join(t.TempDir(), "swaps")}
	text := []byte("Filename Type\n/dev/sdc partition 1 0 -2\n")
	if err := os.WriteFile(opts.Swaps, text, 0o644); err != nil {
		t.Fatal(err)
	}
	of := world.LogicalUnit{Target: target, LUN: 2}
	ev := do(t, opts, &world.FindSCSIDisks{Unit: of}, porttest.Patience)
	found := ev.Body.(*world.SCSIDisksFound)
	if len(found.Paths) != 2 || found.Paths[0].UsedBy != "swap on sdc" || found.Paths[1].UsedBy != "" {
		t.Errorf("%+v", found)
	}
}
