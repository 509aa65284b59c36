package world

import "fmt"

// The SCSI port: disks that the node gets over a network. The node's iSCSI initiator is controlled
// by the program iscsiadm, and what the kernel has made of its sessions is read from sysfs.
// Targets, portals and all that commands name are the choice of authors of pods: the core checks
// them before they become an argument.
//
// A command may hang on a server that does not answer, so each has a deadline, at which it is
// killed: what it did is unknown then. Neither the loop nor the port orders the commands of a
// session. The loop shares the slots of their lane by Effect.Tenant and by namespace.

// ISCSIOutputBytesMax bounds the output of a command of which the core gets something.
const ISCSIOutputBytesMax = 16 << 10

// RunISCSIAdm runs iscsiadm. It completes with ISCSIAdmRan whatever its exit code is, with
// KindNotFound if it is not installed, and with KindTimeout if it was killed.
type RunISCSIAdm struct {
	Args []string `json:"args"`
	// Password, if it is not empty, is the last argument. No log and no snapshot shows it. Others on
	// the node see it in the list of processes while the command runs, as with a kubelet: iscsiadm
	// takes it in no other way.
	Password string `json:"password,omitempty"`
}

// The exit codes of iscsiadm that have a meaning for the core (include/iscsi_err.h of open-iscsi).
const (
	ISCSISessionNotFound = 2
	ISCSISessionExists   = 15
	ISCSINothingFound    = 21 // no records, targets, sessions or portals
)

// ISCSIAdmRan is the completion of RunISCSIAdm.
type ISCSIAdmRan struct {
	ExitCode int    `json:"exitCode,omitempty"`
	Output   string `json:"output,omitempty"` // its beginning, both streams
}

// LogicalUnit is what a volume says of a disk: a LUN of an iSCSI target, or of fibre channel ports,
// or names of the disk itself.
type LogicalUnit struct {
	Target string   `json:"target,omitempty"` // the name of the iSCSI target
	WWNs   []string `json:"wwns,omitempty"`   // of fibre channel ports, hexadecimal
	LUN    int32    `json:"lun"`
	WWIDs  []string `json:"wwids,omitempty"` // as udev has them in /dev/disk/by-id
	// Of fibre channel, what is known of the disk itself, also if no port or link leads to it any
	// more: its WWIDs (SCSIPath.WWID), and where it is mounted, what Mount.Device is there.
	IDs     []string `json:"ids,omitempty"`
	Mounted string   `json:"mounted,omitempty"`
}

// Key identifies what must be neither found nor removed at the same time.
func (u *LogicalUnit) Key() string {
	if u.Target != "" {
		return u.Target
	}
	return fmt.Sprint(u.WWNs, u.LUN, u.WWIDs)
}

// FindSCSIDisks reads from sysfs which ways the node has to a logical unit: the sessions with its
// target, with the disk that each has, or the disks of fibre channel. It completes with
// SCSIDisksFound.
type FindSCSIDisks struct {
	Unit LogicalUnit `json:"unit"`
}

// SCSIDisksFound is the completion of FindSCSIDisks, sorted by host.
type SCSIDisksFound struct {
	Paths []SCSIPath `json:"paths,omitempty"`
}

// SCSIPath is a session with a target, or a disk of fibre channel. Of the latter, a multipath
// device that has lost all its disks is one without a Device.
type SCSIPath struct {
	Host int `json:"host"` // the number of its SCSI host
	// Portals are the addresses of its connections: those that it has, and those that it was logged in
	// with.
	Portals []string `json:"portals,omitempty"`
	Iface   string   `json:"iface,omitempty"` // of iscsiadm; empty: not known
	// Device is the disk of the logical unit, zero if there is none, and Multipath the device that
	// joins it with those of other paths.
	Device    BlockDevice `json:"device,omitzero"`
	Multipath BlockDevice `json:"multipath,omitzero"`
	// WWID is the name of the disk of fibre channel, as the kernel has it; empty: not known.
	WWID string `json:"wwid,omitempty"`
	// Present is set if the kernel has the logical unit, be it without a block device.
	Present bool `json:"present,omitempty"`
	// OfDisk are the file systems that may be on the disk, OfAny those that may be on any disk of the
	// session, each by what Mount.Device is where it is mounted.
	OfDisk []string `json:"ofDisk,omitempty"`
	OfAny  []string `json:"ofAny,omitempty"`
	// UsedBy is what uses another disk of the session without a mount that names it, as swap, btrfs or
	// LVM; empty if nothing does.
	UsedBy string `json:"usedBy,omitempty"`
}

// BlockDevice is a block device of the node. The kernel gives the path, and the number, of one that
// has gone to the next one that appears, but never its sequence number (diskseq in sysfs).
type BlockDevice struct {
	Path     string `json:"path,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"` // zero: not known, as before Linux 5.15
}

// ScanSCSIHost has the kernel look for one logical unit of a host. It completes with Done; the disk
// may appear later.
type ScanSCSIHost struct {
	Host int   `json:"host"`
	LUN  int32 `json:"lun"`
}

// ScanSCSIHosts has the kernel look for a logical unit of fibre channel: at the hosts that are
// connected with its ports, or else at all hosts that are none of iSCSI. It completes with Done;
// the disk may appear later.
type ScanSCSIHosts struct {
	Unit LogicalUnit `json:"unit"`
}

// RemoveSCSIDisks removes the disks that the node has of a logical unit, by all its paths, and
// flushes and removes the multipath device over them before. Sessions stay. A disk that is mounted,
// that is bound or kept open for a pod, or that something else has claimed, is KindRefused, and
// while one is removed nothing can mount it. It completes with Done, also if there is none.
type RemoveSCSIDisks struct {
	Unit LogicalUnit `json:"unit"`
	// Devices are, of fibre channel, those that are removed: what FindSCSIDisks has found. If another
	// one has the path of any by now, that is KindRefused.
	Devices []BlockDevice `json:"devices,omitempty"`
}
