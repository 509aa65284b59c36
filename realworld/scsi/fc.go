package scsi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"seedlet.dev/world"
)

// Disks of fibre channel are found by the port of the target and the LUN, or by the name of the
// disk (findDisk and findDiskWWIDs in pkg/volume/fc), and from there by what all paths to a disk
// have in common. A kubelet goes by the links of udev. They lag behind the kernel, and one that is
// older than its disk leads to another disk, so what the kernel says of a disk counts. Only names
// that the kernel does not have, such as those made of a serial number, are looked for as links.

// fcFound are the devices of a logical unit: the names of its disks, and of its multipath devices
// with the WWIDs.
type fcFound struct {
	disks map[string]bool
	maps  map[string]string
}

// kernelWWID returns the name that the kernel has for a disk which udev calls scsi-WWID; empty if
// that cannot be said (page 83 of SPC-4: 3 is NAA, 2 EUI-64).
func kernelWWID(wwid string) string {
	kind, hex := "", strings.TrimLeft(wwid[min(1, len(wwid)):], "0123456789abcdef")
	switch {
	case hex != "" || len(wwid) < 2:
	case wwid[0] == '3':
		kind = "naa."
	case wwid[0] == '2':
		kind = "eui."
	}
	if kind == "" {
		return ""
	}
	return kind + wwid[1:]
}

// uniqueWWID returns the name of a disk if no other one in the world has it; otherwise nothing.
func uniqueWWID(block string) string {
	wwid := attribute(block, "device/wwid")
	if strings.HasPrefix(wwid, "naa.") || strings.HasPrefix(wwid, "eui.") {
		return wwid
	}
	return ""
}

// mapWWID returns the name of the disk of a multipath device; empty if it is none.
func (k kernel) mapWWID(name string) string {
	wwid, isMap := strings.CutPrefix(attribute(k.block(name), "dm/uuid"), "mpath-")
	if !isMap {
		return ""
	}
	return kernelWWID(wwid)
}

// fcDevices finds the devices of a logical unit, to some of which links lead.
func (k kernel) fcDevices(unit *world.LogicalUnit, linked map[string]bool) (*fcFound, error) {
	entries, err := readDir(filepath.Join(k.sys, "class/block"))
	if err != nil {
		return nil, err
	}
	found := &fcFound{map[string]bool{}, map[string]string{}}
	wwids := map[string]bool{}
	for _, wwid := range unit.IDs {
		wwids[wwid] = true
	}
	for _, wwid := range unit.WWIDs {
		wwids[kernelWWID(wwid)] = true
	}
	for _, entry := range entries {
		name, block := entry.Name(), k.block(entry.Name())
		isMounted := unit.Mounted != "" && attribute(block, "dev") == unit.Mounted
		switch {
		case isMounted && k.isMultipath(block):
			linked[name] = true
		case k.isDisk(name) && (isMounted || linked[name] || k.isAt(block, unit)):
			found.disks[name] = true
			wwids[uniqueWWID(block)] = true
		}
		if linked[name] && k.isMultipath(block) {
			found.maps[name] = k.mapWWID(name)
			wwids[found.maps[name]] = true
		}
	}
	delete(wwids, "")
	for _, entry := range entries {
		name, block := entry.Name(), k.block(entry.Name())
		switch wwid := k.mapWWID(name); {
		case k.isDisk(name) && wwids[uniqueWWID(block)]:
			found.disks[name] = true
		case wwid != "" && wwids[wwid]:
			found.maps[name] = wwid
		}
	}
	for name := range found.maps { //ordered: into a set
		slaves, _ := os.ReadDir(filepath.Join(k.block(name), "slaves"))
		for _, slave := range slaves {
			found.disks[slave.Name()] = true
		}
	}
	return found, nil
}

// isDisk reports whether a block device is a whole SCSI disk.
func (k kernel) isDisk(name string) bool {
	return strings.HasPrefix(name, "sd") && attribute(k.block(name), "partition") == "" &&
		attribute(k.block(name), "dev") != ""
}

// address returns the directory of the SCSI device of a disk, whose name is HOST:CHANNEL:ID:LUN;
// empty if it has gone.
func address(block string) string {
	dir, err := filepath.EvalSymlinks(filepath.Join(block, "device"))
	if err != nil {
		return ""
	}
	return dir
}

// isAt reports whether a disk is the LUN of one of the ports of a logical unit.
func (k kernel) isAt(block string, unit *world.LogicalUnit) bool {
	at := filepath.Base(address(block))
	target, isLUN := strings.CutSuffix(at, fmt.Sprintf(":%d", unit.LUN))
	port := attribute(k.sys, "class/fc_transport/target"+target, "port_name")
	return isLUN && port != "" && slices.Contains(unit.WWNs, strings.TrimPrefix(port, "0x"))
}

// linked returns the names of the devices to which links of udev lead by the names of a disk,
// without those names that the kernel has as well.
func (k kernel) linked(unit *world.LogicalUnit) (map[string]bool, error) {
	names := map[string]bool{}
	for _, wwid := range unit.WWIDs {
		if kernelWWID(wwid) != "" {
			continue
		}
		target, err := os.Readlink(filepath.Join(k.dev, "disk/by-id/scsi-"+wwid))
		switch {
		case err == nil:
			names[filepath.Base(target)] = k.hasLinks(filepath.Base(target))
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return names, nil
}

// hasLinks reports whether the links of udev to a disk are of the one that is there by now. Since
// systemd 251, udev makes one by the sequence number along with them; before, and for devices of
// the device mapper, that is not known.
func (k kernel) hasLinks(name string) bool {
	sequence := attribute(k.block(name), "diskseq")
	byDiskseq := filepath.Join(k.dev, "disk/by-diskseq")
	if _, err := os.Stat(byDiskseq); err != nil || sequence == "" || !strings.HasPrefix(name, "sd") {
		return true
	}
	target, err := os.Readlink(filepath.Join(byDiskseq, sequence))
	return err == nil && filepath.Base(target) == name
}

// readDir reads a directory; one that does not exist is empty.
func readDir(path string) ([]os.DirEntry, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

// findFC finds the disks of a logical unit of fibre channel, and multipath devices that have none.
func (k kernel) findFC(unit *world.LogicalUnit) (*world.SCSIDisksFound, error) {
	linked, err := k.linked(unit)
	if err != nil {
		return nil, err
	}
	devices, err := k.fcDevices(unit, maps.Clone(linked))
	if err != nil {
		return nil, err
	}
	found := &world.SCSIDisksFound{}
	for _, name := range slices.Sorted(maps.Keys(devices.disks)) {
		block := k.block(name)
		path := world.SCSIPath{Device: k.device(block), Present: true, OfDisk: k.numbers(block, 0),
			WWID: attribute(block, "device/wwid")}
		path.OfAny = path.OfDisk
		host, _, _ := strings.Cut(filepath.Base(address(block)), ":")
		path.Host, _ = strconv.Atoi(host)
		if name := k.multipath(block); name != "" {
			path.Multipath = k.device(k.block(name))
			delete(devices.maps, name)
		}
		found.Paths = append(found.Paths, path)
	}
	for _, name := range slices.Sorted(maps.Keys(devices.maps)) {
		numbers := k.numbers(k.block(name), 0)
		found.Paths = append(found.Paths, world.SCSIPath{Multipath: k.device(k.block(name)),
			Present: true, OfDisk: numbers, OfAny: numbers, WWID: devices.maps[name]})
	}
	slices.SortStableFunc(found.Paths, func(x, y world.SCSIPath) int {
		return cmp.Compare(x.Host, y.Host)
	})
	// A name may have gone to another disk, and its links with it, since it was read where they lead.
	again, err := k.linked(unit)
	switch {
	case err != nil:
		return nil, err
	case !maps.Equal(linked, again):
		return nil, fmt.Errorf("the links of udev to %v have just changed", unit.WWIDs)
	}
	return found, nil
}

// scanAll has the kernel look for a logical unit of fibre channel. The ports that are known have
// its LUN looked for, and nothing else. Otherwise, all hosts look for everything (scsiHostRescan in
// pkg/volume/fc), but those of iSCSI, whose disks appear for their volumes alone, and, for a port,
// those that are none of fibre channel.
func (k kernel) scanAll(ctx context.Context, unit *world.LogicalUnit) error {
	scans, err := k.scansOfPorts(unit)
	if err != nil {
		return err
	}
	if len(scans) > 0 {
		return k.scanHosts(ctx, scans)
	}
	lun, class := "-", "class/scsi_host"
	if len(unit.WWNs) > 0 {
		lun = strconv.Itoa(int(unit.LUN))
		if _, err := os.Stat(filepath.Join(k.sys, "class/fc_host")); err == nil {
			class = "class/fc_host"
		}
	}
	hosts, err := readDir(filepath.Join(k.sys, class))
	if err != nil {
		return err
	}
	for _, host := range hosts {
		if _, err := os.Stat(filepath.Join(k.sys, "class/iscsi_host", host.Name())); err != nil {
			scans[host.Name()] = []string{"- - " + lun}
		}
	}
	return k.scanHosts(ctx, scans)
}

// remotePort is the name of a port of a target: rport-HOST:CHANNEL-NUMBER.
var remotePort = regexp.MustCompile(`^rport-([0-9]+):([0-9]+)-[0-9]+$`)

// scansOfPorts returns the scans for the ports of a logical unit, by host; none if there are none.
func (k kernel) scansOfPorts(unit *world.LogicalUnit) (map[string][]string, error) {
	scans := map[string][]string{}
	ports, err := readDir(filepath.Join(k.sys, "class/fc_remote_ports"))
	for _, port := range ports {
		at := filepath.Join(k.sys, "class/fc_remote_ports", port.Name())
		parts := remotePort.FindStringSubmatch(port.Name())
		name := strings.TrimPrefix(attribute(at, "port_name"), "0x")
		id := attribute(at, "scsi_target_id") // -1: it is no target
		if parts == nil || !slices.Contains(unit.WWNs, name) || id == "" || id == "-1" {
			continue
		}
		scans["host"+parts[1]] = append(scans["host"+parts[1]],
			fmt.Sprintf("%s %s %d", parts[2], id, unit.LUN))
	}
	return scans, err
}
