package sim

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	translation "k8s.io/csi-translation-lib"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// The timing of an external attacher, and of the attach/detach controller with upstream's defaults.
const (
	attachPeriod    = time.Second
	attachTakesMost = 6 * time.Second // until an attachment is attached
	// forceDetachAfter is when a volume is detached that no pod needs any more, although the node says
	// that it is in use (maxWaitForUnmountDuration upstream).
	forceDetachAfter = 6 * time.Minute
	// detachTakes is the time from the moment when the Node does not say any more that a volume is
	// attached, until it is not.
	detachTakes = 2 * time.Second
	// attachRetry is how long after a failure a volume is to be attached again.
	attachRetry = 10 * time.Second
)

// attacher is the state of the attach/detach controller and of the external attachers of the
// cluster, as far as they act on the node.
type attacher struct {
	attachAt     map[string]time.Time // by name of the attachment: when it is attached
	unwanted     map[string]time.Time // by name of the attachment: since when no pod needs it
	removedAt    map[string]time.Time // by name of the attachment: when the Node lost it
	attachesMade int
	disks        diskAttachments
}

// attachment is a volume that is to be attached to the node.
type attachment struct {
	name   string // of the VolumeAttachment
	driver string
	unique v1.UniqueVolumeName
	source storagev1.VolumeAttachmentSource // how the VolumeAttachment names the volume
}

// startAttacher starts the controllers, if a plan has volumes that they may attach.
func (r *run) startAttacher() {
	if !r.plan.HasCSIDriver("") && !r.plan.HasDisks() {
		return
	}
	r.attacher = attacher{attachAt: map[string]time.Time{}, unwanted: map[string]time.Time{},
		removedAt: map[string]time.Time{}}
	var reconcile func()
	reconcile = func() {
		r.reconcileAttachments()
		r.agenda.After(attachPeriod, reconcile)
	}
	r.agenda.After(attachPeriod, reconcile)
}

// attachmentOf returns the attachment of a volume of a CSI driver.
func attachmentOf(c *v1.CSIPersistentVolumeSource,
	source storagev1.VolumeAttachmentSource) attachment {
	return attachment{name: attachmentName(c.Driver, c.VolumeHandle), driver: c.Driver,
		source: source,
		unique: v1.UniqueVolumeName("kubernetes.io/csi/" + c.Driver + "^" + c.VolumeHandle)}
}

// attachmentName returns the name that the attach/detach controller gives a VolumeAttachment.
func attachmentName(driver, handle string) string {
	return fmt.Sprintf("csi-%x", sha256.Sum256([]byte(handle+driver+plan.NodeName)))
}

// needsAttachment reports whether volumes of a driver have to be attached: unless its CSIDriver
// says that they have not.
func (r *run) needsAttachment(driver string) bool {
	if r.server == nil {
		return false
	}
	d := r.server.Object(world.ResourceCSIDrivers, "", driver).CSIDriver
	return d == nil || d.Spec.AttachRequired == nil || *d.Spec.AttachRequired
}

// isAttached reports whether a volume is attached to the node, or does not have to be.
func (r *run) isAttached(driver, handle string) bool {
	if !r.needsAttachment(driver) {
		return true
	}
	a := r.server.Object(world.ResourceAttachments, "", attachmentName(driver, handle)).Attachment
	return a != nil && a.Status.Attached
}

// neededAttachments returns the attachments that the pods of the node need, once each.
func (r *run) neededAttachments() (needed []attachment) {
	for _, o := range r.server.Objects(world.ResourcePods) {
		pod := o.Pod
		if pod.Spec.NodeName != plan.NodeName || pod.Status.Phase == v1.PodSucceeded ||
			pod.Status.Phase == v1.PodFailed {
			continue
		}
		for i := range pod.Spec.Volumes {
			pv, source := r.volumeOf(pod, &pod.Spec.Volumes[i])
			if pv == nil || pv.Spec.CSI == nil || !r.needsAttachment(pv.Spec.CSI.Driver) {
				continue
			}
			if a := attachmentOf(pv.Spec.CSI, source); !isAmong(needed, a) {
				needed = append(needed, a)
			}
		}
	}
	return needed
}

// isAmong reports whether a list has the attachment of the same volume.
func isAmong(list []attachment, a attachment) bool {
	return slices.ContainsFunc(list, func(other attachment) bool { return other.name == a.name })
}

// volumeOf returns the PersistentVolume of a volume of a pod, and how an attachment names it; nil
// if it has none. One of an in-tree kind that is written in the pod has one that no server has.
func (r *run) volumeOf(pod *v1.Pod, v *v1.Volume) (*v1.PersistentVolume,
	storagev1.VolumeAttachmentSource) {
	name := ""
	switch {
	case v.PersistentVolumeClaim != nil:
		name = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		name = pod.Name + "-" + v.Name
	case v.Cinder != nil:
		pv, err := translator.TranslateInTreeInlineVolumeToCSI(logr.Discard(), v.DeepCopy(),
			pod.Namespace)
		if err != nil {
			panic("sim: cannot translate a volume: " + err.Error())
		}
		return pv, storagev1.VolumeAttachmentSource{InlineVolumeSpec: &pv.Spec}
	default:
		return nil, storagev1.VolumeAttachmentSource{}
	}
	claim := r.server.Object(world.ResourceClaims, pod.Namespace, name).Claim
	if claim == nil || claim.Status.Phase != v1.ClaimBound {
		return nil, storagev1.VolumeAttachmentSource{}
	}
	pv := migrated(r.server.Object(world.ResourceVolumes, "", claim.Spec.VolumeName).Volume)
	return pv, storagev1.VolumeAttachmentSource{PersistentVolumeName: &claim.Spec.VolumeName}
}

// translator is that of all controllers of a cluster.
var translator = translation.New()

// migrated returns a persistent volume of an in-tree kind as the volume of the CSI driver that has
// replaced its plugin, and any other one, or none, as it is.
func migrated(pv *v1.PersistentVolume) *v1.PersistentVolume {
	if pv == nil || !translator.IsPVMigratable(pv) {
		return pv
	}
	of, err := translator.TranslateInTreePVToCSI(logr.Discard(), pv)
	if err != nil {
		panic("sim: cannot translate a volume: " + err.Error())
	}
	return of
}

// sourceOf returns the volume that is attached; nil if it does not exist any more.
func (r *run) sourceOf(a *storagev1.VolumeAttachment) *v1.CSIPersistentVolumeSource {
	if a.Spec.Source.InlineVolumeSpec != nil {
		return a.Spec.Source.InlineVolumeSpec.CSI
	}
	pv := migrated(r.server.Object(world.ResourceVolumes, "",
		*a.Spec.Source.PersistentVolumeName).Volume)
	if pv == nil {
		return nil
	}
	return pv.Spec.CSI
}

// reconcileAttachments attaches what pods need, and detaches what none needs and the node does not
// use.
func (r *run) reconcileAttachments() {
	node := r.server.Object(world.ResourceNodes, "", plan.NodeName).Node
	if node == nil {
		return
	}
	needed := r.neededAttachments()
	for _, a := range needed {
		delete(r.attacher.unwanted, a.name)
		r.attach(a)
	}
	var attached []v1.AttachedVolume
	for _, o := range r.server.Objects(world.ResourceAttachments) {
		a := o.Attachment
		source := r.sourceOf(a)
		if source == nil {
			continue
		}
		at := attachmentOf(source, a.Spec.Source)
		isNeeded := isAmong(needed, at)
		if !isNeeded && r.mayDetach(node, at) {
			r.detach(at)
			continue
		}
		if a.Status.Attached {
			delete(r.attacher.removedAt, at.name)
			attached = append(attached, v1.AttachedVolume{Name: at.unique,
				DevicePath: ""})
		}
	}
	attached = append(attached, r.attachedDisks(node)...)
	if !slices.Equal(node.Status.VolumesAttached, attached) {
		r.writeAttached(attached)
	}
}

// attach creates the attachment, and has it attached some time later.
func (r *run) attach(a attachment) {
	if r.server.Object(world.ResourceAttachments, "", a.name).Attachment == nil {
		r.adminWrite("attach-detach controller", &world.CreateObject{Object: world.Object{
			Attachment: &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: a.name},
				Spec: storagev1.VolumeAttachmentSpec{Attacher: a.driver, NodeName: plan.NodeName,
					Source: a.source}}}})
		r.attacher.attachesMade++
		takes := wire.Stream(r.plan.Seed, fmt.Sprint("attachment ", r.attacher.attachesMade)).
			Int64N(int64(attachTakesMost))
		r.attacher.attachAt[a.name] = r.agenda.Now().Add(time.Duration(takes))
		return
	}
	if at := r.attacher.attachAt[a.name]; !at.IsZero() && !r.agenda.Now().Before(at) {
		patch := `{"status":{"attached":true,"attachError":null,"attachmentMetadata":{"device":"` +
			a.name[:12] + `"}}}`
		if delete(r.attacher.attachAt, a.name); r.isNodeFull() {
			r.attacher.attachAt[a.name] = r.agenda.Now().Add(attachRetry)
			patch = fmt.Sprintf(`{"status":{"attachError":{"time":%q,"message":"the node is full",`+
				`"errorCode":%d}}}`, r.agenda.Now().UTC().Format(time.RFC3339), codes.ResourceExhausted)
		}
		r.adminWrite("external attacher", &world.PatchObject{Resource: world.ResourceAttachments,
			Name: a.name, Status: true, Patch: json.RawMessage(patch)})
	}
}

// isNodeFull reports whether no other volume can be attached to the node. What is being detached
// counts until it is.
func (r *run) isNodeFull() bool {
	attached := 0
	for _, o := range r.server.Objects(world.ResourceAttachments) {
		if o.Attachment.Status.Attached {
			attached++
		}
	}
	return r.plan.AttachedMost > 0 && attached >= r.plan.AttachedMost
}

// mayDetach reports whether a volume that no pod needs may be detached.
func (r *run) mayDetach(node *v1.Node, a attachment) bool {
	now := r.agenda.Now()
	since, isKnown := r.attacher.unwanted[a.name]
	if !isKnown {
		r.attacher.unwanted[a.name], since = now, now
	}
	return !slices.Contains(node.Status.VolumesInUse, a.unique) || now.Sub(since) > forceDetachAfter
}

// detach has the Node lose a volume first, and removes the attachment some time later.
func (r *run) detach(a attachment) {
	now := r.agenda.Now()
	if r.attacher.removedAt[a.name].IsZero() {
		r.attacher.removedAt[a.name] = now
	}
	if now.Sub(r.attacher.removedAt[a.name]) < detachTakes {
		return
	}
	delete(r.attacher.removedAt, a.name)
	delete(r.attacher.unwanted, a.name)
	delete(r.attacher.attachAt, a.name)
	r.adminWrite("external attacher", &world.DeleteObject{Resource: world.ResourceAttachments,
		Name: a.name})
}

// writeAttached writes which volumes are attached to the node.
func (r *run) writeAttached(attached []v1.AttachedVolume) {
	data, err := json.Marshal(attached)
	if err != nil {
		panic("sim: cannot encode volumes: " + err.Error())
	}
	if attached == nil {
		data = []byte("null")
	}
	r.adminWrite("attach-detach controller", &world.PatchObject{Resource: world.ResourceNodes,
		Name: plan.NodeName, Status: true,
		Patch: json.RawMessage(`{"status":{"volumesAttached":` + string(data) + `}}`)})
}
