package world

// The CSI port: the node service of the CSI drivers that have registered (package plugins of core),
// by the Container Storage Interface, version 1. The names are those of its messages. A driver may
// be wrong, late or hang, so each call has a deadline, and the port bounds each answer.
//
// The calls for one volume never overlap: the specification asks this of the caller, and the core
// keeps to it, also across restarts of the agent as far as it can know. Neither the loop nor the
// port orders them. The loop shares the slots of its lane by driver and by Effect.Tenant, so that
// neither a driver that hangs nor a pod with many volumes delays others.
//
// Whether a failed call had an effect follows from the kind of its error, as for all operations.
// The port maps CANCELED and DEADLINE_EXCEEDED to KindTimeout; UNAVAILABLE, ABORTED and
// RESOURCE_EXHAUSTED, which a driver may return while an earlier call for the volume is pending, to
// KindUnavailable. Without an effect are NOT_FOUND (KindNotFound), ALREADY_EXISTS (KindExists),
// FAILED_PRECONDITION (KindConflict), INVALID_ARGUMENT and OUT_OF_RANGE (KindInvalid),
// PERMISSION_DENIED and UNAUTHENTICATED (KindRefused), UNIMPLEMENTED (KindUnimplemented), and a
// request that cannot be sent, as a value of a secret is no text (KindInvalid). All others are
// KindInternal. A kubelet takes INTERNAL for an error without an effect; a repeated call, or one
// that undoes it, does no harm, since all calls are idempotent. An answer that is longer than its
// bound is KindUnavailable, as the call may have had its effect.

// The bounds of the CSI port.
const (
	CSIAnswerBytesMax = 256 << 10 // of an answer
	CSIErrorBytesMax  = 4 << 10   // of the message of an error
	CSIDriverNameMax  = 63        // characters (ValidateCSIDriverName in pkg/apis/core/validation)
)

// CSICall is a call of a driver. Every effect of the CSI port is one.
type CSICall interface {
	// CalledDriver returns the driver that is called.
	CalledDriver() CSIDriver
}

// CSITokensKey is the key of an attribute, or of a secret, that has tokens of the pod's service
// account for the driver (KEP-1855). No log and no snapshot shows its value.
const CSITokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// CSIDriver is a registered driver.
type CSIDriver struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"` // the path of its socket
}

// GetCSINodeInfo asks a driver for its node and what its node service can do (NodeGetInfo and
// NodeGetCapabilities). It completes with CSINodeInfo.
type GetCSINodeInfo struct {
	Driver CSIDriver `json:"driver"`
}

// CSINodeInfo is the completion of GetCSINodeInfo: what the driver has answered, unchecked.
type CSINodeInfo struct {
	NodeID       string            `json:"nodeID"`
	VolumesMax   int64             `json:"volumesMax,omitempty"` // zero: the driver names no limit
	Topology     map[string]string `json:"topology,omitempty"`   // the segments that the node is in
	Capabilities CSICapabilities   `json:"capabilities"`
}

// CSICapabilities are the capabilities of a node service that have a meaning for the agent.
type CSICapabilities struct {
	StageUnstage          bool `json:"stageUnstage,omitempty"`
	Stats                 bool `json:"stats,omitempty"`
	Expand                bool `json:"expand,omitempty"`
	Condition             bool `json:"condition,omitempty"`
	SingleNodeMultiWriter bool `json:"singleNodeMultiWriter,omitempty"`
	VolumeMountGroup      bool `json:"volumeMountGroup,omitempty"`
}

// CSIVolume is what the calls that mount a volume have in common.
type CSIVolume struct {
	Driver         CSIDriver         `json:"driver"`
	Handle         string            `json:"handle"` // the driver's ID of the volume
	PublishContext map[string]string `json:"publishContext,omitempty"`
	VolumeContext  map[string]string `json:"volumeContext,omitempty"`
	// Secrets are shown by no log and no snapshot.
	Secrets    map[string]string `json:"secrets,omitempty"`
	Capability CSICapability     `json:"capability"`
	// Migrated is set for a volume of a kind whose plugin the driver has replaced. Metrics have it.
	Migrated bool `json:"migrated,omitempty"`
}

// CSICapability is how a volume is used.
type CSICapability struct {
	Block      bool     `json:"block,omitempty"` // a device; otherwise a file system
	FSType     string   `json:"fsType,omitempty"`
	MountFlags []string `json:"mountFlags,omitempty"`
	// MountGroup is the group of the files, for drivers with VolumeMountGroup.
	MountGroup string        `json:"mountGroup,omitempty"`
	Access     CSIAccessMode `json:"access"`
}

// CSIAccessMode is an access mode of the CSI specification.
type CSIAccessMode string

// The access modes.
const (
	CSISingleNodeWriter       CSIAccessMode = "SINGLE_NODE_WRITER"
	CSISingleNodeReaderOnly   CSIAccessMode = "SINGLE_NODE_READER_ONLY"
	CSIMultiNodeReaderOnly    CSIAccessMode = "MULTI_NODE_READER_ONLY"
	CSIMultiNodeMultiWriter   CSIAccessMode = "MULTI_NODE_MULTI_WRITER"
	CSISingleNodeSingleWriter CSIAccessMode = "SINGLE_NODE_SINGLE_WRITER"
	CSISingleNodeMultiWriter  CSIAccessMode = "SINGLE_NODE_MULTI_WRITER"
)

// StageVolume has a driver make a volume available at a path of the node, once for all pods that
// use it there (NodeStageVolume). It completes with Done.
type StageVolume struct {
	CSIVolume
	StagingPath string `json:"stagingPath"` // a directory that exists
}

// UnstageVolume undoes StageVolume (NodeUnstageVolume). It succeeds if the volume is not staged. It
// completes with Done.
type UnstageVolume struct {
	Driver      CSIDriver `json:"driver"`
	Handle      string    `json:"handle"`
	StagingPath string    `json:"stagingPath"`
}

// PublishVolume has a driver make a volume available to a pod (NodePublishVolume). The parent of
// the target exists, the target does not have to: the driver makes it. It completes with Done.
type PublishVolume struct {
	CSIVolume
	StagingPath string `json:"stagingPath,omitempty"` // empty: the driver does not stage
	TargetPath  string `json:"targetPath"`
	ReadOnly    bool   `json:"readOnly,omitempty"`
}

// UnpublishVolume undoes PublishVolume and removes the target (NodeUnpublishVolume). It succeeds if
// the volume is not published there. It completes with Done.
type UnpublishVolume struct {
	Driver     CSIDriver `json:"driver"`
	Handle     string    `json:"handle"`
	TargetPath string    `json:"targetPath"`
}

// ExpandVolume has a driver grow the file system or device of a volume to the size that the volume
// has now (NodeExpandVolume). It completes with VolumeExpanded.
type ExpandVolume struct {
	Driver        CSIDriver         `json:"driver"`
	Handle        string            `json:"handle"`
	Path          string            `json:"path"` // where the volume is published, or staged
	StagingPath   string            `json:"stagingPath,omitempty"`
	RequiredBytes int64             `json:"requiredBytes,omitempty"`
	Secrets       map[string]string `json:"secrets,omitempty"`
	Capability    CSICapability     `json:"capability"`
	Migrated      bool              `json:"migrated,omitempty"` // as in CSIVolume
}

// VolumeExpanded is the completion of ExpandVolume.
type VolumeExpanded struct {
	CapacityBytes int64 `json:"capacityBytes,omitempty"` // zero: the driver does not say
}

// GetVolumeStats asks a driver for the usage and health of a volume (NodeGetVolumeStats). It
// completes with CSIVolumeStats, or with KindNotFound if the volume is not at the path.
type GetVolumeStats struct {
	Driver      CSIDriver `json:"driver"`
	Handle      string    `json:"handle"`
	Path        string    `json:"path"`
	StagingPath string    `json:"stagingPath,omitempty"`
}

// CSIVolumeStats is the completion of GetVolumeStats: what the driver has answered, unchecked. A
// number that it does not give is zero.
type CSIVolumeStats struct {
	CapacityBytes  int64 `json:"capacityBytes,omitempty"`
	AvailableBytes int64 `json:"availableBytes,omitempty"`
	UsedBytes      int64 `json:"usedBytes,omitempty"`
	Inodes         int64 `json:"inodes,omitempty"`
	InodesFree     int64 `json:"inodesFree,omitempty"`
	InodesUsed     int64 `json:"inodesUsed,omitempty"`
	// Condition is set if the driver reports the condition of the volume (VOLUME_CONDITION).
	Condition *CSIVolumeCondition `json:"condition,omitempty"`
}

// CSIVolumeCondition is the health of a volume.
type CSIVolumeCondition struct {
	Abnormal bool   `json:"abnormal"`
	Message  string `json:"message,omitempty"`
}

// IsMigrated reports whether a call is for a volume of a kind whose plugin its driver has replaced.
// It is false for calls that undo something, and for statistics: a kubelet does not know it there.
func IsMigrated(call CSICall) bool {
	switch c := call.(type) {
	case *StageVolume:
		return c.Migrated
	case *PublishVolume:
		return c.Migrated
	case *ExpandVolume:
		return c.Migrated
	}
	return false
}

// CalledDriver implements CSICall.
func (c *GetCSINodeInfo) CalledDriver() CSIDriver { return c.Driver }

// CalledDriver implements CSICall.
func (c *CSIVolume) CalledDriver() CSIDriver { return c.Driver }

// CalledDriver implements CSICall.
func (c *UnstageVolume) CalledDriver() CSIDriver { return c.Driver }

// CalledDriver implements CSICall.
func (c *UnpublishVolume) CalledDriver() CSIDriver { return c.Driver }

// CalledDriver implements CSICall.
func (c *ExpandVolume) CalledDriver() CSIDriver { return c.Driver }

// CalledDriver implements CSICall.
func (c *GetVolumeStats) CalledDriver() CSIDriver { return c.Driver }
