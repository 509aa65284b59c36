package scsi

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Disk is what is known of one disk.
type Disk struct {
	// Name is the directory of the disk below that of all disks:
	//
	//	iscsi/iface-IFACE/PORTAL-TARGET-lun-LUN                its file system is mounted here
	//	iscsi/volumeDevices/iface-IFACE/PORTAL-TARGET-lun-LUN  it has a file for each pod
	//	fc/WWN-WWN-lun-LUN, fc/WWID-WWID, fc/volumeDevices/…   the same of fibre channel
	Name   string `json:"name"`
	Block  bool   `json:"block,omitempty"`
	Source Source `json:"source"`
	// Found is set for a disk of an earlier agent, of which no pod has said yet what it is: only the
	// name is known.
	Found bool `json:"found,omitempty"`

	Uses  map[string]*Use   `json:"uses,omitempty"`  // desired, by UID and name of the volume
	Bound map[string]*Bound `json:"bound,omitempty"` // devices that may be bound, by UID of the pods

	// MayExist is set once anything of the disk may be on the node.
	MayExist bool  `json:"mayExist,omitempty"`
	Mounted  State `json:"mounted,omitempty"` // of its file system, at the global path
	// Label is the SELinux label of all its files; empty: each has its own. It is that of the mount
	// table once Mounted is Done, and that of the last attempt to mount it before.
	Label string `json:"label,omitempty"`
	// Written is set once this agent has written what the disk is, and DataRead once what an earlier
	// agent has written was read.
	Written  bool `json:"written,omitempty"`
	DataRead bool `json:"dataRead,omitempty"`
	// PortalsWritten are the portals in the last iscsi.json that this agent has written.
	PortalsWritten []string `json:"portalsWritten,omitempty"`
	// Tried are the portals of which something may be on the node: a login was issued, a session was
	// found or left to this disk by another one, or an earlier agent has written them down.
	Tried []string `json:"tried,omitempty"`
	// FullAt is how many portals the disk had when a pod was refused because of them; zero: none was.
	FullAt int `json:"fullAt,omitempty"`

	Setup Setup `json:"setup,omitzero"`
	Undo  Undo  `json:"undo,omitzero"`

	Op world.OpID `json:"op,omitempty"` // the one operation in flight
	// Session is the portal whose session that operation is about; empty: about none.
	Session string `json:"session,omitempty"`
	// Outdated is set if sessions may have changed since the operation in flight was issued.
	Outdated bool `json:"outdated,omitempty"`
	// LateUntil is until when a command whose outcome is not known, or one of an earlier agent, may
	// still have an effect.
	LateUntil time.Time `json:"lateUntil,omitzero"`
	// ScanUntil is until when disks of a scan may still appear; zero once all of them have.
	// ScannedHosts are the hosts of those scans. Rescanned is set if a host was scanned twice: one of
	// its scans may bring the disk back after the other one has.
	ScanUntil    time.Time `json:"scanUntil,omitzero"`
	ScannedHosts []int     `json:"scannedHosts,omitempty"`
	Rescanned    bool      `json:"rescanned,omitempty"`
	// Devices are what was found of the disk last, and IDs, of fibre channel, its WWIDs, once it was
	// found: they tell it from others, whatever a volume says of it, and lead to it without its ports.
	Devices []world.BlockDevice `json:"devices,omitempty"`
	IDs     []string            `json:"ids,omitempty"`
	// Taken is set, of fibre channel, once the agent has taken the disk: had the kernel look for it
	// when it was not there, mounted it, or bound it. What was on the node already and was never used
	// is not removed. Marked is set once that was to be made durable, and MarkedID is the WWID that
	// was with it.
	Taken    bool   `json:"taken,omitempty"`
	Marked   bool   `json:"marked,omitempty"`
	MarkedID string `json:"markedID,omitempty"`
	// RemovedOnce is set once the disk was removed from the kernel after its last use, or was found to
	// have gone: a scan before that may bring it back.
	RemovedOnce bool `json:"removedOnce,omitempty"`
	// Detached is set once this agent has removed the disk from the kernel after its last use: a late
	// request that would mount it fails.
	Detached bool `json:"detached,omitempty"`
	// User is the UID of the pod that has used it last, also after its end.
	User string `json:"user,omitempty"`
	// Secrets is the secret that is watched for the disk; empty: none.
	Secrets []world.WatchTarget `json:"secretTargets,omitempty"`
}

// State is how far something is done. A state is uncertain from the moment a call is issued.
type State string

// The states. Without a state, nothing is there.
const (
	Uncertain State = "Uncertain"
	Done      State = "Done"
)

// Source is what a disk is, as iscsi.json has it.
type Source struct {
	Portals []string `json:"portals"` // with their ports; the first one is in the name
	Target  string   `json:"target"`  // its IQN
	LUN     int32    `json:"lun"`
	// Iface is the interface of iscsiadm. With an initiator name it is one of the disk's own, which is
	// made after BaseIface.
	Iface     string `json:"iface"`
	BaseIface string `json:"baseIface,omitempty"`
	Initiator string `json:"initiator,omitempty"`
	Volume    string `json:"volume,omitempty"` // the name of the volume, which is in that of Iface

	// Of fibre channel: the ports of the target, which have the LUN, or else the names of the disk.
	IsFC  bool     `json:"isFC,omitempty"`
	WWNs  []string `json:"wwns,omitempty"`
	WWIDs []string `json:"wwids,omitempty"`
}

// Use is that a pod needs a disk, and how.
type Use struct {
	UID      string `json:"uid"`
	Volume   string `json:"volume"`   // the name in the spec of the pod
	SpecName string `json:"specName"` // that of the PersistentVolume, or of an inline volume
	Inline   bool   `json:"inline,omitempty"`
	Block    bool   `json:"block,omitempty"`
	Source   Source `json:"source"`
	// Unique is the name of the volume in the status of the Node.
	Unique   string   `json:"unique"`
	ReadOnly bool     `json:"readOnly,omitempty"`
	FSType   string   `json:"fsType,omitempty"`
	Options  []string `json:"options,omitempty"` // for mounting it, sorted

	DiscoveryCHAP bool                `json:"discoveryCHAP,omitempty"`
	SessionCHAP   bool                `json:"sessionCHAP,omitempty"`
	Secret        *v1.SecretReference `json:"secretRef,omitempty"`
	// AccessModes and SELinux, the options of the containers that mount the volume, decide with which
	// label it is mounted. An inline volume has neither.
	AccessModes []v1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	SELinux     []v1.SELinuxOptions             `json:"selinux,omitempty"`
	// HasMount is set if an earlier agent has given the pod the disk, with the label MountedLabel.
	HasMount     bool   `json:"hasMount,omitempty"`
	MountedLabel string `json:"mountedLabel,omitempty"`
	// LabelConflict is why the disk cannot be mounted with the pod's SELinux label; empty: it can.
	LabelConflict string `json:"labelConflict,omitempty"`
	// BindFailures is how often in a row the pod could not get what is set up.
	BindFailures int `json:"bindFailures,omitempty"`

	Since time.Time `json:"since,omitzero"`
}

// target identifies a use of a disk.
func (u *Use) target() string { return u.UID + "/" + u.SpecName }

// UseState is how far a use is.
type UseState struct {
	Ready  bool
	Device world.BlockDevice // of volumeMode Block
	// HasLabel is set if the file system is mounted with an SELinux label: the runtime has to relabel
	// no file.
	HasLabel bool
	// Problem is why it is not ready, as an event says it; empty if nothing has failed. Failures is
	// how often in a row.
	Problem  string
	Failures int
	// OverBudget is the bound that it exceeds, by its name in package budget.
	OverBudget string
}

// The names of the plugins, with which those of volumes begin in the status of the Node.
const (
	iscsiPluginName = "kubernetes.io/" + iscsiDir + "/"
	fcPluginName    = "kubernetes.io/" + fcDir + "/"
)

const (
	iscsiDir  = "iscsi"
	blocksDir = "volumeDevices"
	ifaceDir  = "iface-"
	lunPart   = "-lun-"
	dataFile  = "iscsi.json"
)

// diskName returns the name of a disk (makePDNameInternal upstream).
func diskName(s *Source, block bool) string {
	kind := s.dir() + "/"
	if block {
		kind += blocksDir + "/"
	}
	if s.IsFC {
		return kind + fcName(s)
	}
	return kind + ifaceDir + s.Iface + "/" + s.Portals[0] + "-" + s.Target + lunPart +
		fmt.Sprint(s.LUN)
}

// dir returns the directory of the kind of a disk.
func (s *Source) dir() string {
	if s.IsFC {
		return fcDir
	}
	return iscsiDir
}

func isBlockName(name string) bool {
	return strings.HasPrefix(name, iscsiDir+"/"+blocksDir+"/") ||
		strings.HasPrefix(name, fcDir+"/"+blocksDir+"/")
}

// sourceOfName returns what the name of a disk says of it (extractPortalAndIqn and extractIface
// upstream); false if it is the name of no disk.
func sourceOfName(name string) (s Source, isDisk bool) {
	if strings.HasPrefix(name, fcDir+"/") {
		return fcSourceOfName(name)
	}
	rest := strings.TrimPrefix(strings.TrimPrefix(name, iscsiDir+"/"), blocksDir+"/")
	iface, disk, isDisk := strings.Cut(rest, "/")
	if !isDisk || !strings.HasPrefix(iface, ifaceDir) {
		return s, false
	}
	s.Iface = strings.TrimPrefix(iface, ifaceDir)
	at := strings.LastIndex(disk, lunPart)
	if at < 0 {
		return s, false
	}
	if _, err := fmt.Sscanf(disk[at+len(lunPart):], "%d", &s.LUN); err != nil {
		return s, false
	}
	for _, kind := range targetKinds {
		if portal, target, isOf := strings.Cut(disk[:at], "-"+kind); isOf {
			s.Portals, s.Target = []string{portal}, kind+target
			return s, checkSource(&s) == "" && diskName(&s, isBlockName(name)) == name
		}
	}
	return s, false
}

func (n *Node) path(d *Disk) string { return n.Dir + "/" + d.Name }

// GlobalPath returns where the file system of a disk is mounted for all pods.
func GlobalPath(rootDir string, u *Use) string {
	n := NewNode(rootDir)
	return n.Dir + "/" + diskName(&u.Source, u.Block)
}

// BoundPath returns the file to which the device of a disk is bound for a pod.
func BoundPath(rootDir string, u *Use) string { return GlobalPath(rootDir, u) + "/" + u.UID }

// LinkPath returns the link to a device, below the directory of its pod.
func LinkPath(podDir string, u *Use) string {
	return linksDir(podDir, &u.Source) + "/" + u.SpecName
}

func linksDir(podDir string, s *Source) string {
	return podDir + "/volumeDevices/kubernetes.io~" + s.dir()
}

// MountPath returns where a pod has the file system of a disk.
func MountPath(podDir string, u *Use) string {
	return podDir + "/volumes/kubernetes.io~" + u.Source.dir() + "/" + u.SpecName
}

// checkRoom returns an error if the node takes no more disks for a pod.
func (n *Node) checkRoom(uid string) error {
	switch {
	case len(n.Disks) >= budget.DisksMax:
		return budget.Disks.Errorf("the node has %d disks of networks, and can have no more",
			budget.DisksMax)
	case len(n.Disks) >= budget.DisksLargeMax && len(n.Owners[uid]) >= budget.DisksSmallMax:
		return budget.SmallPodDisks.Errorf("the node has %d disks of networks, and the rest is for pods "+
			"with at most %d", budget.DisksLargeMax, budget.DisksSmallMax)
	}
	return nil
}

// Use declares that a pod uses a disk, and returns how far that is. A change is a reason to plan
// the disk.
func (n *Node) Use(u Use, now time.Time) (state UseState, changed bool) {
	if err := u.check(); err != nil {
		return u.refused(err), false
	}
	name := diskName(&u.Source, u.Block)
	d := n.Disks[name]
	if d == nil {
		if err := n.checkRoom(u.UID); err != nil {
			n.Full = true
			return u.refused(err), false
		}
		d = n.add(name, u.Source)
	}
	known := d.Uses[u.target()]
	if known == nil {
		if err := d.checkPortals(&u); err != nil {
			d.FullAt = len(d.Source.Portals)
			return u.refused(err), false
		}
		if d.Found {
			d.takeOver(&u)
		}
		u.Since = now
		// It may have been undone meanwhile, and its device be another disk's; of one that pods share,
		// the sessions may be others by now.
		if len(d.Uses) == 0 || d.Block {
			d.weaken()
		}
		if d.Uses == nil {
			d.Uses = map[string]*Use{}
		}
		d.addPortals(u.Source.Portals)
		d.User, d.Uses[u.target()], known, changed = u.UID, &u, &u, true
		n.Owners.Add(u.UID, name)
		if d.Mounted == Done && !n.hasLabelFor(d, known) { // the pod may have it since before
			d.weaken()
		}
		if b := d.Bound[u.UID]; b != nil {
			b.Released, b.Removal = false, volumeop.Removal{Op: b.Removal.Op}
		}
	}
	if u.BindFailures > known.BindFailures { // it may not be there any more
		changed = true
		d.weaken()
	}
	known.BindFailures = u.BindFailures
	if d.Mounted != Done {
		changed = known.adoptOptions(&u) || changed
	}
	state = n.stateOf(d, known)
	if state.Ready && d.Block { // the pod is about to bind it
		n.note(d, u.UID)
	}
	return state, changed
}

// adoptOptions takes over what an administrator may change in a persistent volume, for a disk that
// is not mounted yet, and reports whether that has changed.
func (u *Use) adoptOptions(newer *Use) (changed bool) {
	if slices.Equal(u.Options, newer.Options) && slices.Equal(u.AccessModes, newer.AccessModes) {
		return false
	}
	u.Options, u.AccessModes = newer.Options, newer.AccessModes
	return true
}

// weaken notes that it has to be looked at what is there.
func (d *Disk) weaken() {
	if d.Mounted == Done {
		d.Mounted = Uncertain
	}
	d.Setup.restart()
}

func (n *Node) add(name string, s Source) *Disk {
	if n.Disks == nil {
		n.Disks = map[string]*Disk{}
	}
	n.Disks[name] = &Disk{Name: name, Block: isBlockName(name), Source: s}
	return n.Disks[name]
}

// problem returns a failure of a step in the kubelet's words.
func (u *Use) problem(step, problem string) string {
	kind := "MountVolume."
	if u.Block {
		kind = "MapVolume."
	}
	return fmt.Sprintf("%s%s failed for volume %q : %s", kind, step, budget.Cut(u.SpecName,
		world.NameBytesMax), problem)
}

// refused returns the state of a use that an error keeps from being planned.
func (u *Use) refused(err error) UseState {
	return UseState{Problem: u.problem("WaitForAttach", err.Error()), Failures: 1,
		OverBudget: budget.NameOf(err)}
}

func (n *Node) stateOf(d *Disk, u *Use) UseState {
	state := UseState{Ready: d.isReady() && n.hasLabelFor(d, u)}
	switch {
	case state.Ready:
		state.Device, state.HasLabel = d.Setup.Device, !d.Block && n.mountedLabel(d, u) != ""
	case u.LabelConflict != "":
		state.Problem, state.Failures = u.LabelConflict, max(1, d.Setup.Attempts.Failures)
	case d.Setup.Attempts.Problem != "":
		state.Problem = u.problem(cmp.Or(d.Setup.FailedStep, "WaitForAttach"), d.Setup.Attempts.Problem)
		state.Failures = d.Setup.Attempts.Failures
	}
	return state
}

// isReady reports whether pods can get the disk.
func (d *Disk) isReady() bool {
	if d.Undo.hasStarted() {
		return false
	}
	if d.Block {
		return d.Setup.Device.Path != ""
	}
	return d.Mounted == Done
}

// isGone reports whether nothing is desired of a disk, and nothing is left of it.
func (d *Disk) isGone() bool {
	return d.Op == 0 && len(d.Uses) == 0 && len(d.Bound) == 0 && !d.MayExist
}

// UseStateOf returns how far a declared use is; the zero state if it is not declared.
func (n *Node) UseStateOf(u *Use) UseState {
	if u.check() == nil {
		if d := n.Disks[diskName(&u.Source, u.Block)]; d != nil && d.Uses[u.target()] != nil {
			return n.stateOf(d, d.Uses[u.target()])
		}
	}
	return UseState{}
}

// Release takes back the uses of a pod: those of devices, and, once it has unmounted its file
// systems, those of them. It returns the names of the disks that are to be planned for that, and
// whether any device is, or may be, bound for the pod.
func (n *Node) Release(uid string, hasUnmounted bool) (changed []string, held bool) {
	for _, name := range slices.Clone(n.Owners[uid]) {
		d := n.Disks[name]
		if !d.Block && !hasUnmounted {
			continue
		}
		before := len(d.Uses)
		maps.DeleteFunc(d.Uses, func(_ string, u *Use) bool { return u.UID == uid })
		isChanged := len(d.Uses) < before
		if b := d.Bound[uid]; b != nil && !b.Released {
			b.Released, isChanged = true, true
		}
		if isChanged {
			d.dropPortals()
			changed = append(changed, name)
		}
		n.dropOwner(d, uid)
	}
	return changed, n.Holds(uid)
}

// Holds reports whether any device is, or may be, bound for a pod.
func (n *Node) Holds(uid string) bool {
	if !n.Search.Complete {
		return true
	}
	return slices.ContainsFunc(n.Owners[uid], func(name string) bool {
		return n.Disks[name].Bound[uid] != nil
	})
}

// dropOwner notes in Owners if a pod has nothing of a disk any more.
func (n *Node) dropOwner(d *Disk, uid string) {
	if d.Bound[uid] != nil || slices.ContainsFunc(d.sortedUses(), func(u *Use) bool {
		return u.UID == uid
	}) {
		return
	}
	n.Owners.Remove(uid, d.Name)
}

// sortedUses returns the uses by their targets.
func (d *Disk) sortedUses() []*Use {
	var uses []*Use
	for _, target := range slices.Sorted(maps.Keys(d.Uses)) {
		uses = append(uses, d.Uses[target])
	}
	return uses
}

// firstUse returns the use whose parameters a disk is set up with; another one after each failure,
// so that the author of one pod cannot keep another from the disk by wrong ones. A login goes on by
// the use that it was started with. Nil if no pod can have the disk.
func (n *Node) firstUse(d *Disk) *Use {
	if u := d.Uses[d.Setup.User]; u != nil {
		return u
	}
	uses, turn := n.usesInTurn(d)
	if len(uses) == 0 {
		return nil
	}
	return uses[turn%len(uses)]
}

// NoteUnmount returns the names of the disks that may be undone now, as something was unmounted.
func (n *Node) NoteUnmount() (changed []string) {
	for _, name := range slices.Sorted(maps.Keys(n.InUse)) {
		if d := n.Disks[name]; d != nil && d.Undo.IsInUse {
			d.Undo = Undo{}
			changed = append(changed, name)
		}
	}
	n.InUse = nil
	return changed
}

// uniqueNames returns the names that the status of the Node may have for a disk: the port of a
// portal need not be written.
func (d *Disk) uniqueNames() []string {
	if s := &d.Source; s.IsFC { // a WWID may have a space for an underscore
		return []string{fcUniqueName(s.WWNs, s.LUN, s.WWIDs)}
	}
	portal := d.Source.Portals[0]
	rest := fmt.Sprintf(":%s:%d", d.Source.Target, d.Source.LUN)
	return []string{iscsiPluginName + portal + rest,
		iscsiPluginName + strings.TrimSuffix(portal, ":"+portDefault) + rest}
}

// Names returns the names of all disks, sorted.
func (n *Node) Names() []string { return slices.Sorted(maps.Keys(n.Disks)) }

// DiskName returns the name of the disk that is used.
func (u *Use) DiskName() string { return diskName(&u.Source, u.Block) }
