package scsi

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Disks of fibre channel (pkg/volume/fc): they come without a login. A volume names ports of its
// target, by their WWNs, and a LUN, or else the disk itself by its WWIDs. Its directory, whose name
// says all of that, is what an agent that is started after a crash finds.

const fcDir = "fc"

// allHosts stands for all hosts in Setup.Scanned.
const allHosts = -1

// InlineFCUse returns the use of a fibre channel disk that is written in a pod.
func InlineFCUse(pod *v1.Pod, v *v1.Volume) Use {
	u := fcUse(pod, v.Name, v.Name, v.FC)
	u.Inline, u.ReadOnly = true, v.FC.ReadOnly
	return u
}

// PersistentFCUse returns the use of a persistent volume of the kind fc by a pod.
func PersistentFCUse(pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume, readOnly bool) Use {
	u := fcUse(pod, v.Name, pv.Name, pv.Spec.FC)
	u.ReadOnly = readOnly
	u.setMode(pod, v, pv)
	return u
}

// fcUse returns a use. With ports and a LUN, the WWIDs do not count (getWwnsLunWwids upstream).
func fcUse(pod *v1.Pod, volume, specName string, source *v1.FCVolumeSource) Use {
	u := Use{UID: string(pod.UID), Volume: volume, SpecName: specName,
		Source: Source{IsFC: true, Volume: specName}, FSType: source.FSType}
	if u.FSType == "" {
		u.FSType = "ext4"
	}
	if len(source.TargetWWNs) > 0 && source.Lun != nil {
		u.Source.WWNs, u.Source.LUN = source.TargetWWNs, *source.Lun
		u.Unique = fcUniqueName(source.TargetWWNs, *source.Lun, nil)
		return u
	}
	for _, wwid := range source.WWIDs { // as udev has it in its links
		u.Source.WWIDs = append(u.Source.WWIDs, strings.ReplaceAll(wwid, " ", "_"))
	}
	u.Unique = fcUniqueName(nil, 0, source.WWIDs)
	return u
}

// fcUniqueName returns the name of a volume in the status of the Node (GetVolumeName upstream).
func fcUniqueName(wwns []string, lun int32, wwids []string) string {
	if len(wwns) > 0 {
		return fmt.Sprintf("%s%v:%d", fcPluginName, wwns, lun)
	}
	return fmt.Sprintf("%s%v", fcPluginName, wwids)
}

// What is accepted becomes a part of a path. The API server checks no more than that there are
// some.
var (
	wwnName  = regexp.MustCompile(`^[0-9A-Za-z]{1,64}$`)
	wwidName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z_.:+=#@-]{0,127}$`)
	lunName  = regexp.MustCompile(`-lun-[0-9]+$`)
	partName = regexp.MustCompile(`-part[0-9]+$`) // as udev has it in the links to partitions
)

const wwnsMax = 32

// checkFC returns why a fibre channel disk is none, with the field of the volume.
func checkFC(s *Source) string {
	name := strings.TrimPrefix(diskName(s, false), fcDir+"/")
	all := func(names []string, are *regexp.Regexp) bool {
		return !slices.ContainsFunc(names, func(n string) bool { return !are.MatchString(n) })
	}
	switch {
	case len(s.WWNs) == 0 && len(s.WWIDs) == 0:
		return "fc: no fc disk information found"
	case len(s.WWNs) > wwnsMax || !all(s.WWNs, wwnName):
		return fmt.Sprintf("fc.targetWWNs: more than %d, or not hexadecimal numbers", wwnsMax)
	case s.LUN < 0 || s.LUN > 255:
		return "fc.lun: not between 0 and 255"
	case len(s.WWIDs) > wwnsMax || !all(s.WWIDs, wwidName):
		return fmt.Sprintf("fc.wwids: more than %d, or not the names of disks", wwnsMax)
	case slices.ContainsFunc(s.WWIDs, partName.MatchString):
		return "fc.wwids: the name of a partition"
	case len(s.WWNs) == 0 && (name == blocksDir || lunName.MatchString(name)):
		return "fc.wwids: the name of another directory"
	case len(name) > world.NameBytesMax:
		return "fc: the names are too long for a directory"
	}
	return ""
}

// fcName returns the name of a fibre channel disk (makePDNameInternal upstream).
func fcName(s *Source) string {
	if len(s.WWNs) > 0 {
		return strings.Join(s.WWNs, "-") + lunPart + strconv.Itoa(int(s.LUN))
	}
	return strings.Join(s.WWIDs, "-")
}

// fcSourceOfName returns what the name of a fibre channel disk says of it (parsePDName upstream).
func fcSourceOfName(name string) (s Source, isDisk bool) {
	rest := strings.TrimPrefix(strings.TrimPrefix(name, fcDir+"/"), blocksDir+"/")
	s = Source{IsFC: true}
	if at := strings.LastIndex(rest, lunPart); at >= 0 && lunName.MatchString(rest) {
		lun, err := strconv.ParseInt(rest[at+len(lunPart):], 10, 32)
		if err != nil {
			return s, false
		}
		s.WWNs, s.LUN = strings.Split(rest[:at], "-"), int32(lun)
	} else {
		s.WWIDs = strings.Split(rest, "-")
	}
	return s, checkFC(&s) == "" && diskName(&s, isBlockName(name)) == name
}

// isSameUnit reports whether two fibre channel disks may be one.
func isSameUnit(x, y *Source) bool {
	return x.LUN == y.LUN && haveCommon(x.WWNs, y.WWNs) || haveCommon(x.WWIDs, y.WWIDs)
}

func haveCommon(x, y []string) bool {
	return slices.ContainsFunc(x, func(name string) bool { return slices.Contains(y, name) })
}

// shares reports whether two disks may have a session, or the disk itself, in common.
func (d *Disk) shares(o *Disk) bool { return o.Source.sharesTarget(&d.Source) || d.overlaps(o) }

// overlaps reports whether a device was found for both of two disks, which their volumes may name
// in different ways.
func (d *Disk) overlaps(o *Disk) bool {
	return haveCommon(d.IDs, o.IDs) ||
		slices.ContainsFunc(d.Devices, func(device world.BlockDevice) bool {
			return device.Sequence != 0 && slices.Contains(o.Devices, device)
		})
}

// noteFound notes what was found of a disk.
func (d *Disk) noteFound(paths []world.SCSIPath) {
	d.Devices = devicesOf(paths)
	if ids := wwidsOf(paths); len(ids) == 1 {
		d.IDs = ids
	}
}

// devicesOf returns the block devices of paths.
func devicesOf(paths []world.SCSIPath) (devices []world.BlockDevice) {
	for i := range paths {
		for _, device := range []world.BlockDevice{paths[i].Device, paths[i].Multipath} {
			if device.Path != "" && !slices.Contains(devices, device) {
				devices = append(devices, device)
			}
		}
	}
	return devices
}

// wwidsOf returns the WWIDs of the disks of paths.
func wwidsOf(paths []world.SCSIPath) (ids []string) {
	for i := range paths {
		if id := paths[i].WWID; id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// ownPaths returns those of the paths that were found which are of the disk that was set up: its
// ports may lead to another one by now. Of several disks none is, if that is not known.
func (d *Disk) ownPaths(paths []world.SCSIPath) (own []world.SCSIPath) {
	if len(d.IDs) == 0 && len(wwidsOf(paths)) > 1 {
		return nil
	}
	for i := range paths {
		if id := paths[i].WWID; id == "" || len(d.IDs) == 0 || slices.Contains(d.IDs, id) {
			own = append(own, paths[i])
		}
	}
	return own
}

// unit returns what is looked for. Of a disk that was found, only the name is known: a WWID may
// have the dashes that are between others.
func (d *Disk) unit() world.LogicalUnit {
	unit := d.Source.unit()
	if unit.IDs = d.IDs; d.Found && len(unit.WWIDs) > 1 {
		unit.WWIDs = append(slices.Clone(unit.WWIDs), strings.Join(unit.WWIDs, "-"))
	}
	return unit
}

// identify takes over which disk is mounted, from a search for that. The disk is unmounted in any
// case.
func (d *Disk) identify(ev world.Event) {
	d.Undo.Identified = true
	if found, isFound := ev.Body.(*world.SCSIDisksFound); isFound && ev.Err == nil && len(d.IDs) == 0 {
		d.IDs = wwidsOf(slices.DeleteFunc(slices.Clone(found.Paths), func(p world.SCSIPath) bool {
			return !slices.Contains(p.OfDisk, d.Undo.Device)
		}))
	}
}

// marksDir is the directory below that of fibre channel disks with one for each disk that is Taken.
// Their own are where they are mounted, and those that a kubelet removes only when empty. The
// directory of a disk has one whose name is the WWID, once that is known: the next agent finds the
// disk by it if the ports have gone, and which volumes name the same disk.
const marksDir = fcDir + "/.attached"

// idName is a WWID that a directory can have as its name.
var idName = regexp.MustCompile(`^[0-9a-z]+\.[0-9A-Za-z_.:+=#@-]{1,127}$`)

// id returns the WWID of a disk for its mark; empty if there is none, or not one alone.
func (d *Disk) id() string {
	if len(d.IDs) == 1 && idName.MatchString(d.IDs[0]) {
		return d.IDs[0]
	}
	return ""
}

// needsMark reports whether it is not durable yet that a disk is taken, or which one that is. The
// second does not matter for one that was found by its name just before it is removed.
func (d *Disk) needsMark() bool {
	return d.Taken && (!d.Marked || d.id() != "" && d.id() != d.MarkedID && !d.Undo.Known)
}

func (n *Node) markPath(d *Disk) string {
	return n.Dir + "/" + marksDir + strings.TrimPrefix(d.Name, fcDir)
}

// handleMark applies the end of marking a disk. Without the mark, an agent that is started after a
// crash may leave the disk in the kernel; that is no reason to keep pods from it.
func (d *Disk) handleMark(ev world.Event, env *Env) {
	d.Marked, d.MarkedID = true, d.id()
	if ev.Err != nil {
		env.Effects.Log(world.LevelWarning, "Failed to note that a disk is attached", "disk", d.Name,
			"err", ev.Err.Message)
	}
}

// connectFC takes the next step to a fibre channel disk (searchDisk upstream): unless there is a
// multipath device over it, the hosts are scanned for it, and then for more paths.
func (n *Node) connectFC(d *Disk, u *Use, env *Env) time.Time {
	s, now := &d.Setup, env.Effects.Now()
	var found []*world.SCSIPath
	isJoined := false
	for i := range s.Paths {
		if s.Paths[i].Device.Path != "" {
			found = append(found, &s.Paths[i])
			isJoined = isJoined || s.Paths[i].Multipath.Path != ""
		}
	}
	isScanned := slices.Contains(s.Scanned, allHosts)
	switch ids := wwidsOf(s.Paths); {
	case len(ids) > 1:
		d.failSetup("WaitForAttach", "the ports lead to different disks: "+strings.Join(ids, ", "), env)
		return s.Attempts.NotBefore
	case !isJoined && !isScanned && len(found) == 0 && !d.Taken:
		d.Taken = true
		return now
	case !isJoined && !isScanned:
		s.Scanned, s.DisksUntil = append(s.Scanned, allHosts), now.Add(disksWait)
		d.noteScan(allHosts, now)
		n.noteScanOfAll(d, now)
		d.issue(subjectSetup, scanTimeout, &world.ScanSCSIHosts{Unit: d.Source.unit()}, env)
		return time.Time{}
	case len(found) > 0:
		return n.useDisk(d, u, found, env)
	case now.Before(s.DisksUntil):
		return s.look(now)
	}
	d.failSetup("WaitForAttach", "no fc disk found", env)
	return s.Attempts.NotBefore
}

// noteScanOfAll notes that a scan for one disk may bring others back: it looks for all of them if
// the volume names no LUN, and for those of its LUN if no port that it names is there. A disk that
// was removed once since its last use is looked for once more, and not for later scans: there may
// always be one, by volumes that name what does not exist.
func (n *Node) noteScanOfAll(d *Disk, now time.Time) {
	for _, o := range n.Disks { //ordered: each by itself
		hasOtherLUN := len(d.Source.WWNs) > 0 && len(o.Source.WWNs) > 0 && d.Source.LUN != o.Source.LUN
		if o != d && o.Source.IsFC && !o.RemovedOnce && !hasOtherLUN {
			o.noteScan(allHosts, now)
		}
	}
}

// scanTimeout has room for all hosts of the node.
const scanTimeout = 2 * time.Minute
