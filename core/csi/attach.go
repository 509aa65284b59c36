package csi

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"seedlet.dev/core/timer"
	"seedlet.dev/core/volumeop"
	"seedlet.dev/world"
)

// Attachment is what the API server says of the attachment of a volume to the node.
type Attachment struct {
	// Known reports whether the volume is attached, with the context for its driver.
	Known   bool              `json:"known,omitempty"`
	Context map[string]string `json:"context,omitempty"`
	// Since is since when the volume waits to be attached.
	Since    time.Time         `json:"since,omitzero"`
	Attempts volumeop.Attempts `json:"attempts,omitzero"`
	// Overdue is set if a pod has waited so long that it is asked why: the node may have as many
	// volumes as it can.
	Overdue bool `json:"overdue,omitempty"`
	// FullSince is since when it is known that the node has too many volumes for it, and its pods wait
	// only for the driver to be asked again how many the node can have; zero: they do not.
	FullSince time.Time `json:"fullSince,omitzero"`
}

// fullWaitMax is how long pods wait for a driver to be asked again, and for its answer to be in the
// CSINode. A kubelet waits for both as long as they take, each two minutes at most.
const fullWaitMax = 30 * time.Second

// attachOverdue is when a pod reports that a volume is still not attached, and how often again
// (podAttachAndMountTimeout in pkg/kubelet/volumemanager).
const attachOverdue = 2*time.Minute + 3*time.Second

// attachRequired reports whether a volume has to be attached before it is staged or published, and
// whether that is known. A driver without a CSIDriver object requires it.
func (v *Volume) attachRequired(env *Env) (required, known bool) {
	if v.Ephemeral || v.Driver == "" {
		return false, true
	}
	d, known := env.driverObject(v.Driver)
	return known && requiresAttach(d), known
}

func requiresAttach(d *storagev1.CSIDriver) bool {
	return d == nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// attach reports whether a volume is attached, if that is required, and returns when to plan again.
// The Node has to name the volume as in use first: as long as it does, the volume is not detached.
func (n *Node) attach(v *Volume, env *Env) (attached bool, wake time.Time) {
	required, known := v.attachRequired(env)
	a := &v.Attachment
	if !known || !required || a.Known {
		return known, time.Time{}
	}
	if !env.AttachDetach {
		v.refuseAttach(env)
		return false, time.Time{}
	}
	now := env.Effects.Now()
	if a.Since.IsZero() {
		a.Since = now
	}
	wake = n.endFull(v, env)
	if a.Attempts.IsWaiting(now, &wake) {
		return false, wake
	}
	if env.Object == nil || !env.SaysInUse(v.name()) {
		env.ReportsInUse()
		return false, timer.Soonest(wake, n.reportOverdue(v, env))
	}
	subject := subjectAttach
	if !env.Named.IsAttached(v.name()) {
		wake = timer.Soonest(wake, n.reportOverdue(v, env))
		if !a.Overdue {
			return false, wake
		}
		subject = subjectOverdue
	}
	a.Overdue = false
	v.issueWithin(subject, apiTimeout,
		&world.GetObject{Resource: world.ResourceAttachments, Name: n.attachmentName(v)}, env)
	return false, wake
}

// refuseAttach has the pods of a volume report, in the kubelet's words, that the agent does not
// attach volumes of CSI drivers itself (Attach in pkg/volume/csi/csi_attacher.go).
func (v *Volume) refuseAttach(env *Env) {
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		u := v.Uses[target]
		if u.Attempts.Problem != "" {
			continue
		}
		u.Attempts.Failures++
		u.Attempts.Problem = fmt.Sprintf("AttachVolume.Attach failed for volume %q : attaching volumes "+
			"from the kubelet is not supported", u.SpecName)
		env.EnqueuePod(u.UID)
	}
}

// reportOverdue has the pods of a volume report that they wait for its attachment, after a while
// and then again, and returns when that is.
func (n *Node) reportOverdue(v *Volume, env *Env) time.Time {
	now := env.Effects.Now()
	overdue := func(u *Use) time.Time {
		return timer.Later(u.Since, v.Attachment.Since).
			Add(time.Duration(u.Attempts.Failures+1) * attachOverdue)
	}
	var wake time.Time
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		u := v.Uses[target]
		at := overdue(u)
		if !now.Before(at) {
			v.Attachment.Overdue = v.Attachment.Overdue || env.isLimitMutable(v.Driver) &&
				n.isTurn(v, u, env)
			u.Attempts.Failures++
			u.Attempts.Problem = fmt.Sprintf("Unable to attach or mount volumes: unmounted volumes=[%s], "+
				"unattached volumes=[%s], failed to process volumes=[]: context deadline exceeded", u.Volume,
				u.Volume)
			env.EnqueuePod(u.UID)
			at = overdue(u)
		}
		wake = timer.Soonest(wake, at)
	}
	return wake
}

// overdueReadsMax is how many volumes a pod asks the API server about whenever it has waited long.
const overdueReadsMax = 8

// isTurn reports whether a volume is one of those about which a pod asks the API server why it
// waits: all of a pod that has few, others after each period of one that has more. Reads of each
// would take most of the rate of requests of a node that can have no more volumes. Those whose
// drivers cannot say that the node is full do not count.
func (n *Node) isTurn(v *Volume, u *Use, env *Env) bool {
	waiting, index := 0, 0
	for _, name := range n.Owners[u.UID] { // sorted
		if name == v.name() {
			index = waiting
		}
		if o := n.Volumes[name]; o.waitsToAttach() && env.isLimitMutable(o.Driver) {
			waiting++
		}
	}
	turns := max(1, (waiting+overdueReadsMax-1)/overdueReadsMax)
	return index%turns == u.Attempts.Failures%turns
}

// waitsToAttach reports whether the volume waits to be attached.
func (v *Volume) waitsToAttach() bool { return !v.Attachment.Known && !v.Attachment.Since.IsZero() }

// NamedVolumes are the volumes that a Node names, for looking them up. The zero value names none.
type NamedVolumes struct {
	object          *v1.Node
	inUse, attached map[string]bool
}

// NewNamedVolumes returns the volumes that a Node names; nil names none.
func NewNamedVolumes(object *v1.Node) *NamedVolumes {
	n := &NamedVolumes{object, map[string]bool{}, map[string]bool{}}
	if object == nil {
		return n
	}
	for _, name := range object.Status.VolumesInUse {
		n.inUse[string(name)] = true
	}
	for i := range object.Status.VolumesAttached {
		n.attached[string(object.Status.VolumesAttached[i].Name)] = true
	}
	return n
}

// IsOf reports whether these are the volumes of an object. Objects are not changed once observed.
func (n *NamedVolumes) IsOf(object *v1.Node) bool { return n != nil && n.object == object }

// IsInUse reports whether the Node names a volume as in use.
func (n *NamedVolumes) IsInUse(name string) bool { return n.inUse[name] }

// IsAttached reports whether the Node names a volume as attached.
func (n *NamedVolumes) IsAttached(name string) bool { return n.attached[name] }

// handleAttachment applies the VolumeAttachment of a volume (verifyAttachmentStatus upstream).
func (n *Node) handleAttachment(v *Volume, ev world.Event, env *Env) {
	read, ok := ev.Body.(*world.ObjectRead)
	problem := ""
	switch name := n.attachmentName(v); {
	case ev.Err != nil:
		problem = fmt.Sprintf("volume %s has GET error for volume attachment %s: %s", v.Handle, name,
			ev.Err.Message)
	case !ok || read.Object.Attachment == nil:
		problem = "the answer is no volume attachment"
	case read.Object.Attachment.DeletionTimestamp != nil:
		problem = "volume attachment is being deleted"
	case v.Attachment.Since.IsZero(): // asked before the volume was last let go
		return
	case read.Object.Attachment.Status.Attached:
		v.Attachment = Attachment{Known: true,
			Context: read.Object.Attachment.Status.AttachmentMetadata}
		return
	case read.Object.Attachment.Status.AttachError != nil:
		n.noteAttachError(v, read.Object.Attachment.Status.AttachError, env)
		problem = read.Object.Attachment.Status.AttachError.Message
	default:
		problem = fmt.Sprintf("volume %s is not attached for volume attachment %s", v.Handle, name)
	}
	a, step := &v.Attachment.Attempts, "MountVolume"
	if v.Device != "" {
		step = "MapVolume"
	}
	a.Fail(ev.Time, fmt.Sprintf("%s.WaitForAttach failed for volume %q : %s", step, v.specName(),
		problem))
}

// resourceExhausted is the code of gRPC that says that a node can have no more volumes attached.
const resourceExhausted = 8

// noteAttachError has the driver asked again how many volumes the node can have, if it has failed
// to attach one because there are too many, and reports whether it has
// (MutableCSINodeAllocatableCount).
func (n *Node) noteAttachError(v *Volume, err *storagev1.VolumeError, env *Env) (isFull bool) {
	isFull = err.ErrorCode != nil && *err.ErrorCode == resourceExhausted &&
		env.isLimitMutable(v.Driver)
	if isFull {
		n.askAgain(v.Driver, env)
	}
	return isFull
}

// handleOverdue applies the VolumeAttachment of a volume that pods have waited long for. Any other
// answer than that the node has too many volumes for it says nothing: it is asked again when a pod
// has waited that long once more.
func (n *Node) handleOverdue(v *Volume, ev world.Event, env *Env) {
	read, ok := ev.Body.(*world.ObjectRead)
	if ev.Err != nil || !ok || read.Object.Attachment == nil {
		return
	}
	status := &read.Object.Attachment.Status
	isFull := !status.Attached && status.AttachError != nil &&
		n.noteAttachError(v, status.AttachError, env)
	if isFull && v.Attachment.FullSince.IsZero() {
		v.Attachment.FullSince = ev.Time
	}
}

// endFull ends the pods that wait for a volume which the node has no room for, so that their
// controllers make others (WaitForAttachAndMount in pkg/kubelet/volumemanager). The scheduler binds
// these by the number in the CSINode, so the driver is asked for it before (VerifyExhaustedResource
// in pkg/volume/csi). It returns when the pods end in any case.
func (n *Node) endFull(v *Volume, env *Env) time.Time {
	since := v.Attachment.FullSince
	if since.IsZero() {
		return time.Time{}
	}
	if end := since.Add(fullWaitMax); env.Effects.Now().Before(end) &&
		!n.hasAskedSince(v.Driver, since) {
		return end
	}
	v.Attachment.FullSince = time.Time{}
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		if u := v.Uses[target]; u.Attempts.Failures > 0 { // else it is of a pod that came meanwhile
			u.NodeFull = true
			env.EnqueuePod(u.UID)
		}
	}
	return time.Time{}
}

// enqueueFull plans the volumes whose pods wait for the answer of a driver, in one pass for all
// drivers: the CSINode, which all of them wait for, has one version.
func (n *Node) enqueueFull(env *Env) {
	var names []string
	for name, v := range n.Volumes { //ordered: sorted below
		if !v.Attachment.FullSince.IsZero() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		env.Enqueue(VolumeKey(name))
	}
}

// specName returns the name of the PersistentVolume of a volume, as its uses have it.
func (v *Volume) specName() string {
	if u := v.firstUse(); u != nil {
		return u.SpecName
	}
	return v.Handle
}

// firstUse returns the first use by target: what is staged is the same for all of them.
func (v *Volume) firstUse() *Use {
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		return v.Uses[target]
	}
	return nil
}

// stagingUse returns the use whose parameters a volume is staged with: those of the first claim,
// as all of them name the same persistent volume. The author of a pod may have written others for
// the same volume: they come after it, in turns after each failure, so that none of these pods
// keeps another from the volume.
func (v *Volume) stagingUse() *Use {
	var uses []*Use
	hasClaim := false
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		switch u := v.Uses[target]; {
		case u.Inline:
			uses = append(uses, u)
		case !hasClaim:
			uses, hasClaim = slices.Insert(uses, 0, u), true
		}
	}
	return uses[v.Staging.Attempts.Failures%len(uses)]
}

// mustStay reports whether the volume is not to be detached.
func (v *Volume) mustStay() bool {
	return len(v.Uses) > 0 || len(v.Publications) > 0 || v.Staging.State != ""
}

// VolumesInUse returns the names of the volumes that are not to be detached, sorted, and whether
// they are known. Node is the object that names those from before, as env.Named does: while it is
// not known whether the volumes of a driver are attached at all, or while they may be in what the
// search could not read, they stay as they are.
func (n *Node) VolumesInUse(node *v1.Node, env *Env) (names []v1.UniqueVolumeName, known bool) {
	for _, name := range n.VolumeNames() {
		v := n.Volumes[name]
		required, known := v.attachRequired(env)
		if !known {
			required = env.Named.IsInUse(name)
		}
		if required && v.mustStay() && n.canBeAttached(v, env) {
			names = append(names, v1.UniqueVolumeName(name))
		}
	}
	for _, name := range node.Status.VolumesInUse {
		driver, _, _ := strings.Cut(strings.TrimPrefix(string(name), uniquePrefix), "^")
		if n.hides(driver, n.Volumes[string(name)]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), n.Enabled && n.Search.Passed
}

// canBeAttached reports whether a volume is attached, may still be mounted, or has a driver,
// without which no controller attaches it. The author of a pod may name drivers that do not exist.
func (n *Node) canBeAttached(v *Volume, env *Env) bool {
	return env.Named.IsAttached(v.name()) || len(v.Publications) > 0 || v.Staging.State != "" ||
		n.session(v.Driver) != nil
}

// WaitingToAttach returns the names of the volumes that waited to be attached and can go on, as
// the Node now says that they are in use and attached, sorted. Unnamed reports whether the Node
// does not say of a volume that it is in use.
func (n *Node) WaitingToAttach(env *Env) (names []string, unnamed bool) {
	for name, v := range n.Volumes { //ordered: sorted below
		switch {
		case !v.waitsToAttach():
		case !env.SaysInUse(name):
			unnamed = unnamed || n.session(v.Driver) != nil
		case v.Attachment.Overdue, env.Named.IsAttached(name):
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, unnamed
}
