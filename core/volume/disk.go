package volume

import (
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/scsi"
	"seedlet.dev/world"
)

// Volumes of the kinds iscsi and fc: package scsi attaches a disk, mounts its file system for all
// pods of the node, and undoes both. A pod binds what it gets for itself.

// waitsForDisk declares that the pod uses a disk, and reports whether it has to wait until that is
// set up.
func (v *Volume) waitsForDisk(spec *v1.Volume, pod *Pod) bool {
	if !IsBacked(spec) || v.SourceVersion == notUsed {
		return false
	}
	if v.Backing == nil {
		b, known, err := pod.backingOf(spec)
		if !known || err != nil || b.Disk == nil {
			return false
		}
		v.Backing = &b
	}
	if v.Backing.Disk == nil {
		return false
	}
	u := *v.Backing.Disk
	if v.FailedStep != stepShared {
		u.BindFailures = v.Failures
	}
	state := pod.Disk(u)
	v.OverBudget = state.OverBudget
	switch {
	case state.Ready:
		if v.FailedStep == stepShared {
			v.Problem, v.Failures, v.FailedStep = "", 0, ""
		}
		v.Device, v.Backing.HasLabel = state.Device, state.HasLabel
	case !v.UpToDate:
		v.Problem, v.Failures, v.FailedStep = state.Problem, state.Failures, stepShared
		v.StepsDone = 0
	}
	return !state.Ready
}

// diskSteps returns the operations that give a disk that is set up to a pod (diskSetUp in
// pkg/volume/iscsi, MapBlockVolume in pkg/volume/util).
func (v *Volume) diskSteps(b *Backing, pod *Pod) []any {
	if b.Block {
		bound := b.boundPath(pod)
		return []any{
			&world.BindMount{Source: v.Device.Path, Sequence: v.Device.Sequence, Path: bound},
			&world.HoldDevice{Path: bound}, &world.MakeLink{Path: b.path(pod.Dir), Target: bound}}
	}
	bind := &world.BindMount{Source: scsi.GlobalPath(pod.RootDir, b.Disk), SourceMounted: true,
		Path: b.path(pod.Dir), ReadOnly: b.ReadOnly, Options: b.Options}
	steps := []any{bind}
	if gid := fsGroup(pod.Spec); gid != nil && !b.ReadOnly {
		// An existing mount may be one whose tree was not finished: its root is changed last.
		steps = append(steps, &world.ShareWithGroup{Path: bind.Path, GID: *gid,
			OnRootMismatch: v.Mounted.Existed || sharesOnRootMismatch(pod.Spec)})
	}
	return steps
}
