package truth

import "time"

// Kinds of facts about CSI drivers and their volumes on the node. A fact about a volume has Volume,
// and the Path at which it is.
const (
	DriverStarted Kind = "DriverStarted" // the process of a driver answers calls: Driver
	DriverEnded   Kind = "DriverEnded"   // the process has ended; what it has mounted stays

	VolumeStaged      Kind = "VolumeStaged"
	VolumeUnstaged    Kind = "VolumeUnstaged"
	VolumePublished   Kind = "VolumePublished"
	VolumeUnpublished Kind = "VolumeUnpublished"
	// VolumeNotPublished is that of a driver that says that it has published a volume, and has not.
	VolumeNotPublished Kind = "VolumeNotPublished"
	VolumeExpanded     Kind = "VolumeExpanded" // its file system has Bytes
)

// Driver is the node service of a CSI driver.
type Driver struct {
	Name, Endpoint string
	Stages         bool // it has STAGE_UNSTAGE_VOLUME
	Measures       bool // it has GET_VOLUME_STATS
	Groups         bool // it has VOLUME_MOUNT_GROUP
	// VolumesMax is how many volumes the node can have, and VolumesThen from LimitAt on; zero: any
	// number, or it never changes.
	VolumesMax, VolumesThen int64
	LimitAt                 time.Time
}

// RenewedFile is the name of the file that a driver makes in a volume, as root, each time that it
// publishes the volume again where it is published.
const RenewedFile = "renewed"

// Volume is a volume of a CSI driver.
type Volume struct {
	Driver, Handle string
	IsReadOnly     bool
	IsEphemeral    bool   // it lives as long as it is published
	Label          string `json:",omitempty"` // the SELinux label of all its files, if they have one
}
