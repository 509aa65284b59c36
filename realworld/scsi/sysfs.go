package scsi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"seedlet.dev/world"
)

// kernel is what the kernel has of sessions and disks. The layout is that of
// drivers/scsi/scsi_transport_iscsi.c: an iSCSI host has one session, which has connections, and
// the target and the channel of its disks are always 0.
type kernel struct {
	sys, dev, swaps, mounts string
	scans                   *scans
}

// iscsiSession is a session, with its directory.
type iscsiSession struct {
	host int
	dir  string
}

// sessions returns the sessions with a target, sorted by host. One that goes meanwhile is left out.
func (k kernel) sessions(target string) ([]iscsiSession, error) {
	hosts, err := os.ReadDir(filepath.Join(k.sys, "class/iscsi_host"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // the module is not loaded
	}
	if err != nil {
		return nil, err
	}
	var found []iscsiSession
	for _, h := range hosts {
		number, err := strconv.Atoi(strings.TrimPrefix(h.Name(), "host"))
		if err != nil {
			continue
		}
		dirs, _ := filepath.Glob(filepath.Join(k.sys, "class/iscsi_host", h.Name(), "device/session*"))
		for _, dir := range dirs {
			if attribute(dir, "iscsi_session", filepath.Base(dir), "targetname") == target {
				found = append(found, iscsiSession{number, dir})
			}
		}
	}
	slices.SortFunc(found, func(x, y iscsiSession) int { return x.host - y.host })
	return found, nil
}

// attribute returns the text of an attribute; empty if there is none.
func attribute(parts ...string) string {
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// portals returns the addresses of the connections of a session.
func (s iscsiSession) portals() (portals []string) {
	dirs, _ := filepath.Glob(filepath.Join(s.dir, "connection*"))
	for _, dir := range dirs {
		at := filepath.Join(dir, "iscsi_connection", filepath.Base(dir))
		for _, kind := range []string{"", "persistent_"} {
			address, port := attribute(at, kind+"address"), attribute(at, kind+"port")
			if portal := net.JoinHostPort(address, port); address != "" && port != "" &&
				!slices.Contains(portals, portal) {
				portals = append(portals, portal)
			}
		}
	}
	return portals
}

// iface returns the interface of iscsiadm of a session; empty if it is not known.
func (s iscsiSession) iface() string {
	name := attribute(s.dir, "iscsi_session", filepath.Base(s.dir), "ifacename")
	if strings.HasPrefix(name, "<") || strings.HasPrefix(name, "(") { // as "<NULL>"
		return ""
	}
	return name
}

// unit returns the directory of a logical unit; empty if there is none.
func (s iscsiSession) unit(lun int32) string {
	dir := filepath.Join(s.dir, fmt.Sprintf("target%d:0:0/%d:0:0:%d", s.host, s.host, lun))
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}

// block returns the directory of the block device of a logical unit; empty if there is none.
func (s iscsiSession) block(lun int32) string {
	dirs, _ := filepath.Glob(filepath.Join(s.unit(lun), "block/*"))
	if s.unit(lun) == "" || len(dirs) == 0 {
		return ""
	}
	return dirs[0]
}

// userOf returns what uses a disk without a mount that names it; empty if nothing does.
func (k kernel) userOf(block string) string {
	name := filepath.Base(block)
	for line := range strings.Lines(attribute(k.swaps)) {
		if strings.HasPrefix(line, filepath.Join(k.dev, name)) {
			return "swap on " + name
		}
	}
	if of, _ := filepath.Glob(filepath.Join(k.sys, "fs/btrfs/*/devices", name)); len(of) > 0 {
		return "btrfs on " + name
	}
	for _, holder := range k.holders(block) {
		if !k.isMultipath(holder) {
			return filepath.Base(holder) + " on " + name
		}
	}
	return ""
}

// find finds the sessions with a target, and their disks.
func (k kernel) find(m *world.FindSCSIDisks) (*world.SCSIDisksFound, error) {
	if m.Unit.Target == "" {
		return k.findFC(&m.Unit)
	}
	sessions, err := k.sessions(m.Unit.Target)
	if err != nil {
		return nil, err
	}
	found := &world.SCSIDisksFound{}
	for _, s := range sessions {
		is := world.SCSIPath{Host: s.host, Portals: s.portals(), Iface: s.iface()}
		all, _ := filepath.Glob(filepath.Join(s.dir, fmt.Sprintf("target%d:0:0/*/block/*", s.host)))
		for _, dir := range all {
			is.OfAny = append(is.OfAny, k.numbers(dir, 0)...)
			if dir != s.block(m.Unit.LUN) && is.UsedBy == "" {
				is.UsedBy = k.userOf(dir)
			}
		}
		is.Present = s.unit(m.Unit.LUN) != ""
		if dir := s.block(m.Unit.LUN); dir != "" {
			is.Device = k.device(dir)
			is.OfDisk = k.numbers(dir, 0)
			if name := k.multipath(dir); name != "" {
				is.Multipath = k.device(k.block(name))
			}
		}
		found.Paths = append(found.Paths, is)
	}
	return found, nil
}

// device returns the block device of a directory.
func (k kernel) device(block string) world.BlockDevice {
	sequence, err := strconv.ParseUint(attribute(block, "diskseq"), 10, 64)
	if err != nil {
		sequence = 0 // an older kernel
	}
	return world.BlockDevice{Path: filepath.Join(k.dev, filepath.Base(block)), Sequence: sequence}
}

// holdersDepthMax bounds how many devices can be on top of each other.
const holdersDepthMax = 8

// numbers returns the device numbers of a block device, of its partitions, and of what is on top of
// them, as multipath devices and logical volumes.
func (k kernel) numbers(block string, depth int) (numbers []string) {
	if number := attribute(block, "dev"); number != "" {
		numbers = append(numbers, number)
	}
	if depth >= holdersDepthMax {
		return numbers
	}
	for _, part := range partitions(block) {
		numbers = append(numbers, k.numbers(part, depth+1)...)
	}
	dirs, _ := os.ReadDir(filepath.Join(block, "holders"))
	for _, holder := range dirs {
		numbers = append(numbers, k.numbers(k.block(holder.Name()), depth+1)...)
	}
	return numbers
}

func partitions(block string) (dirs []string) {
	files, _ := filepath.Glob(filepath.Join(block, "*", "partition"))
	for _, file := range files {
		dirs = append(dirs, filepath.Dir(file))
	}
	return dirs
}

// block returns the directory of a block device of any kind.
func (k kernel) block(name string) string { return filepath.Join(k.sys, "class/block", name) }

// holders returns the directories of the devices on top of a block device, or of a partition of it.
func (k kernel) holders(block string) (dirs []string) {
	for _, dir := range append(partitions(block), block) {
		names, _ := os.ReadDir(filepath.Join(dir, "holders"))
		for _, name := range names {
			dirs = append(dirs, k.block(name.Name()))
		}
	}
	return dirs
}

// isMultipath reports whether a block device is one of multipathd.
func (k kernel) isMultipath(block string) bool {
	return strings.HasPrefix(filepath.Base(block), "dm-") &&
		strings.HasPrefix(attribute(block, "dm/uuid"), "mpath-")
}

// multipath returns the name of the device of multipathd on top of a block device; empty if there
// is none.
func (k kernel) multipath(block string) string {
	for _, holder := range k.holders(block) {
		if k.isMultipath(holder) {
			return filepath.Base(holder)
		}
	}
	return ""
}

// scan has the kernel look for a logical unit (scanOneLun in pkg/volume/iscsi): a scan of the whole
// host would bring disks that no volume is, and that may go without notice.
func (k kernel) scan(ctx context.Context, m *world.ScanSCSIHost) error {
	return k.scanHosts(ctx, map[string][]string{
		fmt.Sprintf("host%d", m.Host): {fmt.Sprintf("0 0 %d", m.LUN)}})
}

func writeAttribute(text string, parts ...string) error {
	f, err := os.OpenFile(filepath.Join(parts...), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
