package core

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/scsi"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Volumes of the kinds iscsi and fc, and what connects their disks with pods and the Node.

// scsiEnv returns the input of the plans of disks.
func (a *Agent) scsiEnv() *scsi.Env {
	s := &a.state
	env := &scsi.Env{
		Effects: &a.effects, Objects: a.objectStore(), Enqueue: a.queue.enqueue,
		CleansUp:    a.hasListedEverything() && a.hasListedExistingPods(),
		IsKnownPod:  a.housekeepingEnv().IsKnownPod,
		CountLabel:  a.recordLabel,
		EnqueuePod:  a.enqueueKnownPod,
		EnqueuePods: a.enqueuePods,
		ReportsInUse: func() {
			s.NodeObject.CheckStatusNow()
			a.enqueueNode()
		},
	}
	if s.HasAPIServer && s.NodeObject.Settings.AttachDetach {
		csiEnv := a.csiEnv()
		env.SaysInUse, env.IsAttached = csiEnv.SaysInUse, csiEnv.Named.IsAttached
	}
	return env
}

// startSCSI starts to look for the disks of earlier agents.
func (a *Agent) startSCSI(hasVolumes bool) {
	a.state.SCSI.SELinux = a.labeling()
	a.state.SCSI.Start(hasVolumes)
	if hasVolumes {
		a.queue.enqueue(scsi.SearchOwner)
	}
}

// planSCSI plans a disk, or the search for disks.
func (a *Agent) planSCSI(key timer.Key) time.Time {
	if key == scsi.SearchOwner {
		return a.state.SCSI.PlanSearch(a.scsiEnv())
	}
	return a.state.SCSI.PlanDisk(key.Name, a.scsiEnv())
}

// handleSCSICompletion handles the completion of an operation of planSCSI.
func (a *Agent) handleSCSICompletion(id world.OpID, r op.Record, ev world.Event) {
	if r.Owner == scsi.SearchOwner {
		a.state.SCSI.HandleSearchCompletion(ev, a.scsiEnv())
		return
	}
	a.state.SCSI.HandleDiskCompletion(id, r, ev, a.scsiEnv())
}

// podDisks returns where pods find these disks.
func (a *Agent) podDisks() pod.Disks {
	return pod.Disks{Node: &a.state.SCSI, Enqueue: a.enqueueDisk}
}

func (a *Agent) enqueueDisk(name string) { a.queue.enqueue(scsi.DiskKey(name)) }

// enqueueDisks plans all disks.
func (a *Agent) enqueueDisks() {
	for _, name := range a.state.SCSI.Names() {
		a.enqueueDisk(name)
	}
}

// noteUnmounted has disks undone that have waited for a mount to go.
func (a *Agent) noteUnmounted() {
	for _, name := range a.state.SCSI.NoteUnmount() {
		a.enqueueDisk(name)
	}
}

// volumesInUse returns the names of the volumes of CSI drivers and of disks that are not to be
// detached from a Node, sorted, and whether they are known.
func (a *Agent) volumesInUse(node *v1.Node) (names []v1.UniqueVolumeName, known bool) {
	csiEnv := a.csiEnv()
	csiEnv.Named = a.volumesNamedBy(node)
	names, known = a.state.CSI.VolumesInUse(node, csiEnv)
	names = append(names, a.state.SCSI.VolumesInUse(node)...)
	slices.Sort(names)
	return slices.Compact(names), known
}
