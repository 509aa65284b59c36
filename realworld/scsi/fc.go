package scsi

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"seedlet.dev/world"
)

// Disks of fibre channel are found by the links of udev (findDisk and findDiskWWIDs in
// pkg/volume/fc): by the port of the target and the LUN, or by the name of the disk, and from there
// by what all paths to a disk have in common.

// fcBlocks returns the directories of the block devices of a logical unit, one for each path, by
// name.
func (k kernel) fcBlocks(unit *world.LogicalUnit) []string {
	names := map[string]bool{}
	for _, pattern := range linksTo(unit) {
		k.addLinked(pattern, names)
	}
	wwids := map[string]bool{}
	for name := range names { //ordered: into a set
		if wwid := attribute(k.block(name), "device/wwid"); strings.HasPrefix(wwid, "naa.") {
			wwids[wwid] = true // unique in the world (T10, NAA identifiers)
		}
	}
	if len(wwids) > 0 {
		all, _ := filepath.Glob(filepath.Join(k.sys, "class/block/sd*/device/wwid"))
		for _, file := range all {
			if wwids[attribute(file)] {
				names[filepath.Base(filepath.Dir(filepath.Dir(file)))] = true
			}
		}
	}
	var blocks []string
	for name := range names { //ordered: sorted below
		blocks = append(blocks, k.block(name))
	}
	slices.Sort(blocks)
	return blocks
}

// linksTo returns the links of udev to a logical unit, below /dev/disk.
func linksTo(unit *world.LogicalUnit) (patterns []*regexp.Regexp) {
	for _, wwn := range unit.WWNs {
		patterns = append(patterns, regexp.MustCompile(fmt.Sprintf(`^by-path/(pci-.*-fc|fc)-0x%s-lun-%d$`,
			regexp.QuoteMeta(wwn), unit.LUN)))
	}
	for _, wwid := range unit.WWIDs {
		patterns = append(patterns, regexp.MustCompile("^by-id/scsi-"+regexp.QuoteMeta(wwid)+"$"))
	}
	return patterns
}

// addLinked adds the disks that links lead to, of a multipath device those below it.
func (k kernel) addLinked(pattern *regexp.Regexp, names map[string]bool) {
	for _, dir := range []string{"by-path", "by-id"} {
		entries, _ := os.ReadDir(filepath.Join(k.dev, "disk", dir))
		for _, entry := range entries {
			if !pattern.MatchString(dir + "/" + entry.Name()) {
				continue
			}
			target, err := os.Readlink(filepath.Join(k.dev, "disk", dir, entry.Name()))
			if err != nil {
				continue
			}
			block := k.block(filepath.Base(target))
			if _, err := os.Stat(filepath.Join(block, "dev")); err != nil {
				continue // the link is older than the last disk of that name
			}
			joined := block
			if name := k.multipath(block); name != "" {
				joined = k.block(name)
			}
			if !k.isMultipath(joined) {
				names[filepath.Base(block)] = true
				continue
			}
			slaves, _ := os.ReadDir(filepath.Join(joined, "slaves"))
			for _, slave := range slaves {
				names[slave.Name()] = true
			}
		}
	}
}

// findFC finds the disks of a logical unit of fibre channel.
func (k kernel) findFC(unit *world.LogicalUnit) (*world.SCSIDisksFound, error) {
	found := &world.SCSIDisksFound{}
	for _, block := range k.fcBlocks(unit) {
		path := world.SCSIPath{Device: k.device(block), Present: true, OfDisk: k.numbers(block, 0)}
		path.OfAny = path.OfDisk
		if dir, err := filepath.EvalSymlinks(filepath.Join(block, "device")); err == nil {
			host, _, _ := strings.Cut(filepath.Base(dir), ":") // HOST:CHANNEL:ID:LUN
			path.Host, _ = strconv.Atoi(host)
		}
		if name := k.multipath(block); name != "" {
			path.Multipath = k.device(k.block(name))
		}
		found.Paths = append(found.Paths, path)
	}
	slices.SortStableFunc(found.Paths, func(x, y world.SCSIPath) int {
		return cmp.Compare(x.Host, y.Host)
	})
	return found, nil
}

// scanAll has the kernel look for a logical unit of fibre channel. The ports that are known have
// its LUN looked for, and nothing else. Otherwise, all hosts look for everything (scsiHostRescan in
// pkg/volume/fc), but those of iSCSI, whose disks appear for their volumes alone.
func (k kernel) scanAll(unit *world.LogicalUnit) error {
	known, err := k.scanPorts(unit)
	if known || err != nil {
		return err
	}
	lun := "-"
	if len(unit.WWNs) > 0 {
		lun = strconv.Itoa(int(unit.LUN))
	}
	hosts, err := os.ReadDir(filepath.Join(k.sys, "class/scsi_host"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, host := range hosts {
		_, isNot := os.Stat(filepath.Join(k.sys, "class/iscsi_host", host.Name()))
		if isNot == nil {
			continue
		}
		// A host that cannot be scanned keeps the others from nothing.
		err = errors.Join(err, writeAttribute("- - "+lun, k.sys, "class/scsi_host", host.Name(), "scan"))
	}
	return err
}

// remotePort is the name of a port of a target: rport-HOST:CHANNEL-NUMBER.
var remotePort = regexp.MustCompile(`^rport-([0-9]+):([0-9]+)-[0-9]+$`)

// scanPorts scans the ports of a logical unit, and reports whether there are any.
func (k kernel) scanPorts(unit *world.LogicalUnit) (known bool, err error) {
	ports, _ := os.ReadDir(filepath.Join(k.sys, "class/fc_remote_ports"))
	for _, port := range ports {
		at := filepath.Join(k.sys, "class/fc_remote_ports", port.Name())
		parts := remotePort.FindStringSubmatch(port.Name())
		name := strings.TrimPrefix(attribute(at, "port_name"), "0x")
		id := attribute(at, "scsi_target_id") // -1: it is no target
		if parts == nil || !slices.Contains(unit.WWNs, name) || id == "" || id == "-1" {
			continue
		}
		known = true
		err = errors.Join(err, writeAttribute(fmt.Sprintf("%s %s %d", parts[2], id, unit.LUN), k.sys,
			"class/scsi_host", "host"+parts[1], "scan"))
	}
	return known, err
}
