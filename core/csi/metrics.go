package csi

import "time"

// Operation is the kubelet's name of an operation on a volume (operation_generator.go in
// pkg/volume/util/operationexecutor). Each has several steps, of which one at most is a call to the
// driver; a failed step ends it, and it begins again.
type Operation string

// The operations on volumes. The stage of a volume is a part of the first mount.
const (
	OperationMount         Operation = "volume_mount"
	OperationUnmount       Operation = "volume_unmount"
	OperationUnmountDevice Operation = "unmount_device" // unstage
	OperationMap           Operation = "map_volume"     // of a block volume
	OperationUnmap         Operation = "unmap_volume"
	OperationUnmapDevice   Operation = "unmap_device"
	OperationExpand        Operation = "volume_fs_resize"
)

// Counted is an operation on a volume of a driver that has ended.
type Counted struct {
	Driver    string // as the volume has it: the node may have no such driver
	Operation Operation
	Took      time.Duration
	Failed    bool
	Migrated  bool // Use.Migrated
}

// of returns the operation on a block volume that corresponds to one on a file system.
func (o Operation) of(isBlock bool) Operation {
	if !isBlock {
		return o
	}
	return map[Operation]Operation{OperationMount: OperationMap, OperationUnmount: OperationUnmap,
		OperationUnmountDevice: OperationUnmapDevice}[o]
}

// begin notes when an operation starts, unless it has started.
func begin(since *time.Time, env *Env) {
	if since.IsZero() {
		*since = env.Effects.Now()
	}
}

// end counts that an operation has ended. One that fails before its first step takes no time.
func (v *Volume) end(operation Operation, since *time.Time, failed bool, env *Env) {
	took := time.Duration(0)
	if !since.IsZero() {
		took = env.Effects.Now().Sub(*since)
	}
	*since = time.Time{}
	if env.Count != nil && v.Driver != "" {
		env.Count(Counted{Driver: v.Driver, Operation: operation.of(v.Device != ""), Took: took,
			Failed: failed, Migrated: v.Migrated})
	}
}

// beginMount notes that a pod is being given a volume, once its first step was issued after the
// volume was attached.
func (v *Volume) beginMount(u *Use, env *Env) {
	r, isInFlight := env.Effects.Find(v.Op)
	kind, _ := splitSubject(r.Subject)
	if !isInFlight || kind != subjectStaging && kind != subjectUse {
		return
	}
	if p := v.Publications[u.target()]; p == nil || !p.isReady() {
		begin(&u.MountSince, env)
	}
}

// endMount counts that a pod has been given a volume, or that this has failed. A volume that is
// published again, as its driver wants, is not counted.
func (v *Volume) endMount(u *Use, failed bool, env *Env) {
	p := v.Publications[u.target()]
	if isReady := p != nil && p.isReady(); isReady == failed || !failed && u.MountSince.IsZero() {
		return
	}
	v.end(OperationMount, &u.MountSince, failed, env)
}
