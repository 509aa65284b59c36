package oracle

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// disks fires when a disk of a network goes, by a command of the agent, while it is mounted or
// bound anywhere; when the file system of one is unmounted for the node while a pod has it; when
// the agent writes a file into one; when it logs in to a session that it has, though nothing
// kept it from knowing of it, or with a secret that no volume of the session names; and when the
// mark of a disk is that of another one. That a container sees its disk, and no other, is checked
// by the oracles claims, volumes and devices, and what is left in the end by progress.
type disks struct{}

func (*disks) describe() Entry {
	return Entry{"disks", "A disk of a network stays for as long as anything has it mounted, pods " +
		"let go of it before the node does, nothing is written into it, and a session is logged in to " +
		"once, however many pods need it, with the secret of a volume that names it. The mark of a " +
		"fibre channel disk has the name of that disk."}
}

func (*disks) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.DiskRemoved:
		if f.Cause != "" {
			return nil
		}
		for i := range m.volumes.mounts {
			if at := &m.volumes.mounts[i]; at.isOfDisk(f.Source) {
				return findingf("%s was removed while it is mounted at %s", f.Source, at.path)
			}
		}
	case truth.Unmounted:
		return m.findUnmountedBelow(f)
	case truth.PathWritten:
		at := m.volumes.lookup(f.Path)
		if f.Cause == "" && isOfDisks(at.source) {
			return findingf("the agent has written %s, which is %s of %s", f.Path, at.path, at.source)
		}
	case truth.SessionTried:
		return m.findForeignSecret(f)
	case truth.PathCreated:
		return m.findWrongMark(f)
	case truth.SessionRepeated:
		from := f.Time.Add(-sessionsKnown)
		if m.agentStartedAt.Before(from) && !m.anyFaultPossible(from, f.Time, diskCalls...) {
			return findingf("a login to %s at %s, where the node has a session", f.Source, f.Path)
		}
	}
	return nil
}

// sessionsKnown is after which time without a fault the agent knows its sessions: a login that was
// killed may have its effect for a while.
const sessionsKnown = 10 * time.Minute

var diskCalls = []string{"RunISCSIAdm", "FindSCSIDisks", "ScanSCSIHost", "ScanSCSIHosts",
	"RemoveSCSIDisks"}

// isOfDisk reports whether a mount is of the file system of a disk, or of its device.
func (at *mounted) isOfDisk(node string) bool { return at.source == node || at.within == node }

// findUnmountedBelow returns that the mount of a disk for the whole node went before that of a pod.
// A pod that names the disk in another way has it from another such mount.
func (m *model) findUnmountedBelow(f *truth.Fact) *finding {
	if f.Cause != "" || !m.isInDisks(f.Path) {
		return nil
	}
	source := m.volumes.lookup(f.Path).source
	for i := range m.volumes.mounts {
		if at := &m.volumes.mounts[i]; source != nodeDisk && at.source == source &&
			isWithin(at.path, m.opts.PodsDir) && !m.hasByOtherName(at.path, path.Base(f.Path)) {
			return findingf("%s was unmounted from %s while it is mounted at %s", source, f.Path, at.path)
		}
	}
	return nil
}

// hasByOtherName reports whether what is mounted at a path is a volume of its pod whose disk has
// another directory.
func (m *model) hasByOtherName(at, dir string) bool {
	for _, p := range m.podsInOrder {
		for _, spec := range p.specs {
			for i := range spec.Spec.Volumes {
				d := m.volumes.diskOf(spec, &spec.Spec.Volumes[i])
				podDir := m.opts.PodsDir + "/" + p.uid
				if d != nil && !d.block && path.Base(d.dir()) != dir &&
					(at == d.backing(podDir).path || isWithin(at, podDir+"/volume-subpaths/"+d.name)) {
					return true
				}
			}
		}
	}
	return false
}

// lateDisksBound is how long after a fault, or its start, an agent may detach disks: it looks for
// sessions that a killed login may still open, and backs off by two minutes.
const lateDisksBound = 10 * time.Minute

// detachesDisk reports whether a request is one of those that take disks from the node, and may be
// late.
func (m *model) detachesDisk(now time.Time, request any) bool {
	if now.Sub(later(later(m.healedAt, m.lastFault(now)), m.agentStartedAt)) > lateDisksBound {
		return false
	}
	switch r := request.(type) {
	case *world.RunISCSIAdm, *world.FindSCSIDisks, *world.RemoveSCSIDisks, *world.ListMounts:
		return true
	case *world.Unmount:
		return m.isInDisks(r.Path)
	case *world.ReadFiles:
		return m.isInDisks(r.Path)
	case *world.RemoveTree:
		return m.isInDisks(r.Path)
	}
	return false
}

// diskKinds are the kinds of volumes that are disks of a network.
var diskKinds = []string{"iscsi", "fc"}

// diskDir returns the directory of the volumes of a kind.
func (m *model) diskDir(kind string) string {
	return path.Dir(m.opts.PodsDir) + "/plugins/kubernetes.io/" + kind
}

// diskBlocks returns the directory of those of volumeMode Block.
func (m *model) diskBlocks(kind string) string { return m.diskDir(kind) + "/volumeDevices" }

// isInDisks reports whether a path is in the directory of disks, isInDiskBlocks whether it is in
// that of those of volumeMode Block.
func (m *model) isInDisks(p string) bool {
	return slices.ContainsFunc(diskKinds, func(k string) bool { return isWithin(p, m.diskDir(k)) })
}

func (m *model) isInDiskBlocks(p string) bool {
	return slices.ContainsFunc(diskKinds, func(k string) bool { return isWithin(p, m.diskBlocks(k)) })
}

// disk is a disk that a volume names.
type disk struct {
	kind                        string
	source                      *v1.FCVolumeSource // of the kind fc
	target, portal, iface, name string
	lun                         int32
	portals                     []string // of the kind iscsi
	block, readOnly             bool
	secret                      *v1.SecretReference
	hasCHAP                     bool // its sessions are given what the secret has
}

// diskOf returns the disk that a volume of a pod names; nil if it names none, or is not known.
func (o *volumeModel) diskOf(pod *v1.Pod, v *v1.Volume) *disk {
	if s := v.FC; s != nil {
		return &disk{kind: "fc", source: s, name: v.Name, readOnly: s.ReadOnly}
	}
	if s := v.ISCSI; s != nil {
		d := &disk{kind: "iscsi", target: s.IQN, portal: s.TargetPortal, iface: s.ISCSIInterface,
			name: v.Name,
			lun:  s.Lun, portals: s.Portals, readOnly: s.ReadOnly, hasCHAP: s.SessionCHAPAuth}
		if s.SecretRef != nil {
			d.secret = &v1.SecretReference{Namespace: pod.Namespace, Name: s.SecretRef.Name}
		}
		return d.completed(s.InitiatorName)
	}
	pv := o.volumeOf(pod, v)
	_, readOnly := claimName(pod, v)
	switch {
	case pv == nil || pv.Spec.ISCSI == nil && pv.Spec.FC == nil:
		return nil
	case pv.Spec.FC != nil:
		return &disk{kind: "fc", source: pv.Spec.FC, name: pv.Name, readOnly: readOnly,
			block: *pv.Spec.VolumeMode == v1.PersistentVolumeBlock}
	}
	s := pv.Spec.ISCSI
	d := &disk{kind: "iscsi", target: s.IQN, portal: s.TargetPortal, iface: s.ISCSIInterface,
		name: pv.Name,
		lun:  s.Lun, portals: s.Portals, readOnly: readOnly, secret: s.SecretRef,
		hasCHAP: s.SessionCHAPAuth,
		block:   *pv.Spec.VolumeMode == v1.PersistentVolumeBlock}
	return d.completed(s.InitiatorName)
}

// completed returns a disk with what its volume leaves out.
func (d *disk) completed(initiator *string) *disk {
	d.portals = append([]string{d.portal}, d.portals...)
	for i, portal := range d.portals {
		if !strings.Contains(portal, ":") {
			d.portals[i] += ":3260"
		}
	}
	d.portal = d.portals[0]
	if d.iface == "" {
		d.iface = "default"
	}
	if initiator != nil {
		d.iface = d.portal + ":" + d.name
	}
	return d
}

// node returns where the devices of the disk lead.
func (d *disk) node() string {
	if d.kind != "fc" {
		return fmt.Sprintf("/dev/iscsi/%s-lun-%d", d.target, d.lun)
	}
	if len(d.source.TargetWWNs) > 0 { // the last two digits are those of the port
		wwn := d.source.TargetWWNs[0]
		return fmt.Sprintf("/dev/fc/%s00-lun-%d", wwn[:len(wwn)-2], *d.source.Lun)
	}
	_, wwid, isSerial := strings.Cut(d.source.WWIDs[0], "_DISK_")
	if !isSerial {
		wwid = d.source.WWIDs[0][1:] // after a 3
	}
	array, digits := wwid[:len(wwid)-4], wwid[len(wwid)-4:]
	lun, _ := strconv.Atoi(digits)
	return fmt.Sprintf("/dev/fc/%s-lun-%d", array, lun)
}

// dir returns the directory of the disk below that of all disks of its mode.
func (d *disk) dir() string {
	if d.kind == "fc" && len(d.source.TargetWWNs) > 0 {
		return fmt.Sprintf("%s-lun-%d", strings.Join(d.source.TargetWWNs, "-"), *d.source.Lun)
	}
	if d.kind == "fc" {
		return strings.Join(d.source.WWIDs, "-")
	}
	return fmt.Sprintf("iface-%s/%s-%s-lun-%d", d.iface, d.portal, d.target, d.lun)
}

// backing returns what the disk is mounted from for a pod.
func (d *disk) backing(podDir string) *backing {
	return &backing{place{d.node(), "/"}, podDir + "/volumes/kubernetes.io~" + d.kind + "/" + d.name,
		d.name,
		d.readOnly}
}

// boundDisk returns the name of the volume whose device is to be bound to a path for a pod; empty
// if there is none.
func (m *model) boundDisk(p *pod, at string) string {
	if p == nil {
		return ""
	}
	for _, spec := range p.specs {
		for i := range spec.Spec.Volumes {
			if d := m.volumes.diskOf(spec, &spec.Spec.Volumes[i]); d != nil && d.block &&
				at == m.diskBlocks(d.kind)+"/"+d.dir()+"/"+p.uid {
				return d.name
			}
		}
	}
	return ""
}

// diskModel is which sessions and disks the node has.
type diskModel struct {
	sessions map[string]bool // "TARGET PORTAL IFACE"
	devices  map[string]int  // by node: from how many sessions
	// unasked are the nodes of disks that appeared for others, and that the agent has neither marked
	// as taken nor mounted, or that came only after it had looked for them for the last time.
	unasked map[string]bool
	// changedAt is when disks came or went last, unaskedAt when one appeared that was not there, by a
	// scan for others since it had gone, and lookedForAt when the agent has started to look for one of
	// fibre channel, by node. scannedAt is when the last scan has started.
	changedAt, unaskedAt, lookedForAt map[string]time.Time
	scannedAt                         time.Time
}

// noteSearch notes that the agent looks for disks of fibre channel, or scans for them.
func (o *diskModel) noteSearch(now time.Time, request any) {
	if _, isScan := request.(*world.ScanSCSIHosts); isScan {
		o.scannedAt = now
	}
	find, isFind := request.(*world.FindSCSIDisks)
	if !isFind || len(find.Unit.WWNs)+len(find.Unit.WWIDs) == 0 {
		return
	}
	o.begin()
	d := disk{kind: "fc", source: &v1.FCVolumeSource{TargetWWNs: find.Unit.WWNs,
		Lun: &find.Unit.LUN, WWIDs: find.Unit.WWIDs}}
	o.lookedForAt[d.node()] = now
}

// begin makes the maps.
func (o *diskModel) begin() {
	if o.sessions != nil {
		return
	}
	o.sessions, o.devices, o.unasked = map[string]bool{}, map[string]int{}, map[string]bool{}
	o.changedAt, o.unaskedAt, o.lookedForAt = map[string]time.Time{}, map[string]time.Time{},
		map[string]time.Time{}
}

func (o *diskModel) apply(m *model, f *truth.Fact) {
	name := f.Source + " " + f.Path + " " + f.NewPath
	o.begin()
	switch f.Kind {
	case truth.Mounted:
		delete(o.unasked, f.Source)
		delete(o.unasked, f.NewPath) // bound
	case truth.SessionOpened:
		o.sessions[name] = true
	case truth.SessionClosed:
		delete(o.sessions, name)
	case truth.DiskAppeared:
		goneAt := o.changedAt[f.Source]
		o.changedAt[f.Source] = f.Time
		isNew := o.devices[f.Source] == 0
		if o.devices[f.Source]++; f.Cause == "" {
			delete(o.unasked, f.Source)
		} else if isNew {
			o.unasked[f.Source] = !m.isMarked(f.Source)
			if delete(o.unaskedAt, f.Source); o.scannedAt.After(goneAt) {
				o.unaskedAt[f.Source] = f.Time
			}
		}
	case truth.PathCreated:
		if len(o.unasked) > 0 && isWithin(f.Path, m.diskDir("fc")+"/"+diskMarks) {
			delete(o.unasked, m.nodeOfMark(f.Path))
		}
	case truth.PathRemoved:
		if isWithin(f.Path, m.diskDir("fc")+"/"+diskMarks) {
			node := m.nodeOfMark(f.Path)
			if o.devices[node] > 0 && o.unaskedAt[node].After(o.lookedForAt[node]) && !m.isMarked(node) {
				o.unasked[node] = true
			}
		}
	case truth.DiskRemoved:
		o.changedAt[f.Source] = f.Time
		if o.devices[f.Source]--; o.devices[f.Source] == 0 {
			delete(o.devices, f.Source)
			delete(o.unasked, f.Source)
		}
	}
}

// isMarked reports whether the agent has marked the disk of a node as taken.
func (m *model) isMarked(node string) bool {
	for _, block := range []bool{false, true} {
		for _, mark := range m.marks(block) {
			if m.nodeOfMark(mark) == node {
				return true
			}
		}
	}
	return false
}

// marks returns the names of the marks of fibre channel disks of one mode.
func (m *model) marks(block bool) (names []string) {
	if m.opts.ListFiles == nil {
		return nil
	}
	dir := m.diskDir("fc") + "/" + diskMarks
	if block {
		dir += "/volumeDevices"
	}
	for mark := range m.opts.ListFiles(dir) {
		if mark.Name != "volumeDevices" {
			names = append(names, mark.Name)
		}
	}
	return names
}

// nodeOfMark returns the node of the disk that the agent has marked as taken, by the file's path;
// empty if no pod has had such a volume.
func (m *model) nodeOfMark(mark string) string {
	for _, p := range m.podsInOrder {
		for _, spec := range p.specs {
			for i := range spec.Spec.Volumes {
				d := m.volumes.diskOf(spec, &spec.Spec.Volumes[i])
				if d != nil && d.kind == "fc" && d.dir() == path.Base(mark) {
					return d.node()
				}
			}
		}
	}
	return ""
}

// neededDisks returns the disks that pods need which are desired and have not ended.
func (m *model) neededDisks() (needed []*disk) {
	for _, p := range m.podsInOrder {
		if p.spec == nil || p.hasEnded() {
			continue
		}
		for i := range p.spec.Spec.Volumes {
			if d := m.volumes.diskOf(p.spec, &p.spec.Spec.Volumes[i]); d != nil {
				needed = append(needed, d)
			}
		}
	}
	return needed
}

// unsettledDisks returns which sessions, disks and directories the node has although no pod needs
// them.
func (m *model) unsettledDisks() (lines []string) {
	if len(m.disks.sessions)+len(m.disks.devices) == 0 && m.opts.ListFiles == nil {
		return nil
	}
	needed := m.neededDisks()
	for _, name := range slices.Sorted(maps.Keys(m.disks.sessions)) {
		f := strings.Fields(name)
		if !slices.ContainsFunc(needed, func(d *disk) bool {
			return d.target == f[0] && d.iface == f[2]
		}) {
			lines = append(lines, "no pod needs the session "+name)
		}
	}
	for _, node := range slices.Sorted(maps.Keys(m.disks.devices)) {
		if !m.disks.unasked[node] &&
			!slices.ContainsFunc(needed, func(d *disk) bool { return d.node() == node }) {
			lines = append(lines, "no pod needs the disk "+node)
		}
	}
	if m.opts.ListFiles == nil {
		return lines
	}
	for iface := range m.opts.ListFiles(m.diskDir("iscsi")) {
		lines = append(lines, m.unsettledDiskDirs("iscsi", iface.Name+"/", false, needed)...)
	}
	for iface := range m.opts.ListFiles(m.diskBlocks("iscsi")) {
		lines = append(lines, m.unsettledDiskDirs("iscsi", iface.Name+"/", true, needed)...)
	}
	for _, block := range []bool{false, true} {
		lines = append(lines, m.unsettledDiskDirs("fc", "", block, needed)...)
		for _, mark := range m.marks(block) {
			if !slices.ContainsFunc(needed, func(d *disk) bool {
				return d.kind == "fc" && d.block == block && d.dir() == mark
			}) {
				lines = append(lines, "no pod needs the mark of "+mark)
			}
		}
	}
	return lines
}

// diskMarks is the directory of what the agent notes of fibre channel disks.
const diskMarks = ".attached"

// unsettledDiskDirs returns the directories of disks of a kind, of one mode and below one of that
// kind, that no pod needs, and the files for pods in them that have ended.
func (m *model) unsettledDiskDirs(kind, below string, block bool, needed []*disk) (lines []string) {
	dir := m.diskDir(kind)
	if block {
		dir = m.diskBlocks(kind)
	}
	if below == "volumeDevices/" {
		return nil
	}
	for of := range m.opts.ListFiles(dir + "/" + strings.TrimSuffix(below, "/")) {
		name := below + of.Name
		if name == "volumeDevices" || kind == "fc" && name == diskMarks {
			continue
		}
		if !slices.ContainsFunc(needed, func(d *disk) bool {
			return d.kind == kind && d.block == block && d.dir() == name
		}) {
			lines = append(lines, fmt.Sprintf("no pod needs %s/%s", dir, name))
			continue
		}
		for file := range m.opts.ListFiles(dir + "/" + name) {
			if p := m.pods[file.Name]; block && file.Name != "iscsi.json" &&
				(p == nil || p.spec == nil || p.hasEnded()) {
				lines = append(lines, fmt.Sprintf("no pod needs %s/%s/%s", dir, name, file.Name))
			}
		}
	}
	return lines
}
