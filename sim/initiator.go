package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/scsi"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// What the cluster does for volumes of the kinds iscsi and fc: their provisioners, and the
// attach/detach controller, which does nothing to attach one, and names it in the status of the
// Node.

// provisionISCSI gives a claim a disk of its own, of the targets in turns, and reports whether
// there are any. It may have a file system already, so that a pod which only reads can have it
// first. Some have an initiator of their own.
func (r *run) provisionISCSI(spec *v1.PersistentVolumeSpec, isFormatted bool) bool {
	if !r.plan.HasISCSI() {
		return false
	}
	targets := r.plan.ISCSI.Targets
	n := r.volumes.iscsi
	r.volumes.iscsi++
	t := &targets[n%len(targets)]
	source := &v1.ISCSIPersistentVolumeSource{TargetPortal: t.Portals[0], Portals: t.Portals[1:],
		IQN: t.Name, Lun: int32(1 + n/len(targets)), ISCSIInterface: "default", FSType: "ext4"}
	switch {
	case *spec.VolumeMode == v1.PersistentVolumeBlock:
		source.FSType = ""
	case isFormatted:
		r.disk.FormatSource(scsi.Node(source.IQN, source.Lun))
	}
	source.SessionCHAPAuth = t.CHAP
	if t.CHAP || n%2 == 0 { // a volume may name a Secret that no session is to be given
		source.SecretRef = &v1.SecretReference{Name: plan.ISCSISecret(t.Name), Namespace: "default"}
	}
	if wire.Stream(r.plan.Seed, fmt.Sprint("initiator name ", n)).IntN(4) == 0 {
		name := fmt.Sprintf("iqn.2026-11.test.seedlet:initiator-%d", n)
		source.InitiatorName = &name
	}
	spec.ISCSI = source
	spec.MountOptions = []string{"noatime"}
	return true
}

// diskAttachments are the disks that the cluster attaches to the node, by their names in its
// status.
type diskAttachments struct {
	attached map[v1.UniqueVolumeName]bool
	due      map[v1.UniqueVolumeName]time.Time // when it is attached
	unwanted map[v1.UniqueVolumeName]time.Time // since when no pod needs it
	made     int
}

// diskNameOf returns the name of a volume of the kind iscsi or fc in the status of the Node; empty
// for any other volume, and while its claim has none.
func (r *run) diskNameOf(pod *v1.Pod, v *v1.Volume) v1.UniqueVolumeName {
	portal, target, lun := "", "", int32(0)
	pv, _ := r.volumeOf(pod, v)
	switch {
	case v.FC != nil:
		return fcNameOf(v.FC)
	case pv != nil && pv.Spec.FC != nil:
		return fcNameOf(pv.Spec.FC)
	}
	if v.ISCSI != nil {
		portal, target, lun = v.ISCSI.TargetPortal, v.ISCSI.IQN, v.ISCSI.Lun
	} else if pv != nil && pv.Spec.ISCSI != nil {
		portal, target, lun = pv.Spec.ISCSI.TargetPortal, pv.Spec.ISCSI.IQN, pv.Spec.ISCSI.Lun
	}
	if target == "" {
		return ""
	}
	return v1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/iscsi/%s:%s:%d", portal, target, lun))
}

// attachedDisks returns the disks that the Node is to name as attached: those that pods need, some
// time after they came, and those that the Node says are in use.
func (r *run) attachedDisks(node *v1.Node) (list []v1.AttachedVolume) {
	if !r.plan.HasDisks() {
		return nil
	}
	d, now := &r.attacher.disks, r.agenda.Now()
	if d.attached == nil {
		d.attached, d.due = map[v1.UniqueVolumeName]bool{}, map[v1.UniqueVolumeName]time.Time{}
		d.unwanted = map[v1.UniqueVolumeName]time.Time{}
	}
	needed := map[v1.UniqueVolumeName]bool{}
	for _, o := range r.server.Objects(world.ResourcePods) {
		pod := o.Pod
		if pod.Spec.NodeName != plan.NodeName || pod.Status.Phase == v1.PodSucceeded ||
			pod.Status.Phase == v1.PodFailed {
			continue
		}
		for i := range pod.Spec.Volumes {
			if name := r.diskNameOf(pod, &pod.Spec.Volumes[i]); name != "" {
				needed[name] = true
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(needed)) {
		delete(d.unwanted, name)
		if _, known := d.due[name]; !known {
			d.made++
			d.due[name] = now.Add(time.Duration(wire.Stream(r.plan.Seed,
				fmt.Sprint("attached disk ", d.made)).Int64N(int64(attachTakesMost))))
		}
		d.attached[name] = d.attached[name] || !now.Before(d.due[name])
	}
	for _, name := range slices.Sorted(maps.Keys(d.due)) {
		if needed[name] {
			continue
		}
		d.unwanted[name] = cmp.Or(d.unwanted[name], now)
		if !slices.Contains(node.Status.VolumesInUse, name) ||
			now.Sub(d.unwanted[name]) > forceDetachAfter {
			delete(d.attached, name)
			delete(d.due, name)
			delete(d.unwanted, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.attached)) {
		if d.attached[name] {
			list = append(list, v1.AttachedVolume{Name: name})
		}
	}
	return list
}
