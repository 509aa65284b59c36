package world

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

// FindISCSIDisks reads from sysfs which sessions the node has with a target, and which disk each
// has of a logical unit. It completes with ISCSIDisksFound.
type FindISCSIDisks struct {
	Target string `json:"target"` // its name
	LUN    int32  `json:"lun"`
}

// ISCSIDisksFound is the completion of FindISCSIDisks, sorted by host.
type ISCSIDisksFound struct {
	Sessions []ISCSISession `json:"sessions,omitempty"`
}

// ISCSISession is a session with a target.
type ISCSISession struct {
	Host int `json:"host"` // the number of its SCSI host
	// Portals are the addresses of its connections: those that it has, and those that it was logged in
	// with.
	Portals []string `json:"portals,omitempty"`
	Iface   string   `json:"iface,omitempty"` // of iscsiadm; empty: not known
	// Device is the path of the disk of the logical unit, empty if there is none, and Multipath that
	// of the device that joins it with those of other sessions.
	Device    string `json:"device,omitempty"`
	Multipath string `json:"multipath,omitempty"`
	// OfDisk are the file systems that may be on the disk, OfAny those that may be on any disk of the
	// session, each by what Mount.Device is where it is mounted.
	OfDisk []string `json:"ofDisk,omitempty"`
	OfAny  []string `json:"ofAny,omitempty"`
}

// ScanSCSIHost has the kernel look for one logical unit of a host. It completes with Done; the disk
// may appear later.
type ScanSCSIHost struct {
	Host int   `json:"host"`
	LUN  int32 `json:"lun"`
}

// RemoveISCSIDisks removes the disks that the node has of a logical unit of a target, in all
// sessions, and flushes and removes the multipath device over them before. The sessions stay. A
// disk that is mounted, or that something else has claimed, is KindRefused, and while one is
// removed nothing can mount it. It completes with Done, also if there is none.
type RemoveISCSIDisks struct {
	Target string `json:"target"`
	LUN    int32  `json:"lun"`
}
