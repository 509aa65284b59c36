package scsi

import (
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/selinux"
	"seedlet.dev/world"
)

// With which SELinux labels the file systems of disks are mounted (KEP-1710; MountDevice in
// pkg/volume/iscsi and fc): those of persistent volumes by their pods, as package selinux says.
//
// What an earlier agent has mounted has the label that the mount table says. A pod that has the
// disk keeps it as it is, and another one waits, if it needs another label, until none needs the
// one that is there: the file system is unmounted then, and mounted with the other label. The disk
// stays attached.

// setMode notes how a pod uses a persistent volume.
func (u *Use) setMode(pod *v1.Pod, v *v1.Volume, pv *v1.PersistentVolume) {
	u.Block = pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock
	if !u.Block {
		u.AccessModes, u.SELinux = pv.Spec.AccessModes, selinux.OptionsOf(&pod.Spec, v.Name)
	}
}

// hasLabels reports whether a disk is mounted with labels.
func (n *Node) hasLabels(d *Disk) bool { return n.SELinux.Enabled && !d.Block }

// labelOf returns the label with which a disk has to be mounted for a use, as the mount table says
// it; empty: with none. The mount options of a volume may name one themselves.
func (n *Node) labelOf(u *Use) (string, error) {
	if u.HasMount {
		return u.MountedLabel, nil
	}
	if label := selinux.LabelIn(u.Options); label != "" {
		return selinux.Canonical(label), nil
	}
	if !n.SELinux.Labels(u.SELinux, u.AccessModes) {
		return "", nil
	}
	label, err := n.SELinux.LabelOf(u.SELinux)
	return selinux.Canonical(label), err
}

// hasLabelFor reports whether a disk that is mounted has the label that a use needs.
func (n *Node) hasLabelFor(d *Disk, u *Use) bool {
	if !n.hasLabels(d) || u.HasMount {
		return true
	}
	label, err := n.labelOf(u)
	return err == nil && label == d.Label
}

// mountedLabel returns the label with which a pod has, or gets, a disk that is mounted.
func (n *Node) mountedLabel(d *Disk, u *Use) string {
	if u.HasMount {
		return u.MountedLabel
	}
	return d.Label
}

// demands returns which labels the pods need that use a disk.
func (n *Node) demands(d *Disk) (all []selinux.Demand) {
	for _, u := range d.sortedUses() {
		label, err := n.labelOf(u)
		all = append(all, selinux.Demand{Label: label, Known: err == nil, Has: u.HasMount,
			Inline: u.Inline, Since: u.Since, Target: u.target()})
	}
	return all
}

// labelInTurn returns the label with which a disk that is not mounted is to be mounted next, and
// how often all labels had their turn: another one has it after each failure. False if no pod can
// have the disk.
func (n *Node) labelInTurn(d *Disk, demands []selinux.Demand) (label string, turns int, has bool) {
	labels := selinux.InOrder(demands)
	if len(labels) == 0 {
		return "", 0, false
	}
	failures := d.Setup.Attempts.Failures
	return labels[failures%len(labels)], failures / len(labels), true
}

// usesInTurn returns the uses that a disk may be set up for next, and which of them has its turn.
func (n *Node) usesInTurn(d *Disk) (uses []*Use, turn int) {
	if !n.hasLabels(d) {
		return d.sortedUses(), d.Setup.Attempts.Failures
	}
	label, turn, _ := n.labelInTurn(d, n.demands(d))
	for _, u := range d.sortedUses() {
		if needed, err := n.labelOf(u); err == nil && needed == label {
			uses = append(uses, u)
		}
	}
	return uses, turn
}

// mountOptions returns the options with which a disk is mounted for a use, and notes its label.
func (n *Node) mountOptions(d *Disk, u *Use, env *Env) []string {
	label, err := n.labelOf(u)
	if err != nil || !n.hasLabels(d) {
		return u.Options
	}
	if label != "" && label != d.Label {
		u.countLabel(selinux.Admitted, env)
	}
	if d.Label = label; label == "" || selinux.LabelIn(u.Options) != "" {
		return u.Options
	}
	return append(slices.Clip(u.Options), selinux.MountOption(label))
}

func (u *Use) countLabel(event selinux.Event, env *Env) {
	if env.CountLabel != nil {
		env.CountLabel(selinux.Counted{Event: event, Plugin: "kubernetes.io/" + u.Source.dir(),
			AccessMode: selinux.ModeLabel(u.AccessModes)})
	}
}

// tablePath returns below which path mounts show that a disk is mounted, and for which pods.
func (n *Node) tablePath(d *Disk) string {
	if n.hasLabels(d) {
		return n.RootDir
	}
	return n.path(d)
}

// applyOwnMounts applies the mount table to a disk that pods need.
func (n *Node) applyOwnMounts(d *Disk, mounts []world.Mount) {
	d.Setup.TableSeen = true
	ofPods := map[string]string{} // labels, by path
	for i := range mounts {
		m := &mounts[i]
		if m.Path == n.path(d) { // of two mounts the later one is on top
			d.MayExist, d.Mounted, d.Taken = true, Done, d.Source.IsFC
			d.Label = selinux.Canonical(m.SELinuxContext)
		} else if strings.HasPrefix(m.Path, n.PodsDir+"/") {
			ofPods[m.Path] = selinux.Canonical(m.SELinuxContext)
		}
	}
	if !n.hasLabels(d) {
		return
	}
	for _, u := range d.sortedUses() {
		if label, has := ofPods[MountPath(n.PodsDir+"/"+u.UID, u)]; has {
			u.HasMount, u.MountedLabel = true, label
		}
	}
}

// mustBeRemounted reports whether the file system of a disk has to be unmounted, because the pods
// that need it need another label. Whether one has it still is seen in the mount table before.
func (n *Node) mustBeRemounted(d *Disk) bool {
	if !n.hasLabels(d) || d.Mounted == "" || d.Mounted != Done && !d.Undo.hasStarted() {
		return false
	}
	same, other := selinux.Demanded(n.demands(d), d.Label)
	return other && !same
}

// noteLabelConflicts notes which pods cannot have a disk with their labels, once it is known with
// which it is mounted.
func (n *Node) noteLabelConflicts(d *Disk, env *Env) {
	if !n.hasLabels(d) || d.Mounted != Done && !d.Setup.TableSeen {
		return
	}
	demands, label := n.demands(d), d.Label
	if d.Mounted != Done {
		label, _, _ = n.labelInTurn(d, demands)
	}
	for _, u := range d.sortedUses() {
		needed, err := n.labelOf(u)
		if err == nil {
			err = selinux.Check(needed, label, demands, u.SpecName, u.Unique)
		}
		u.noteLabelConflict(err, env)
	}
}

// noteLabelConflict notes why a pod does not get a disk with its label; nil: it may get it.
func (u *Use) noteLabelConflict(problem error, env *Env) {
	text := ""
	if problem != nil {
		text = u.problem("SetUp", budget.CutMessage(problem.Error()))
	}
	if u.LabelConflict != text {
		if counted, is := errors.AsType[*selinux.Error](problem); is && u.LabelConflict == "" {
			u.countLabel(counted.Event, env)
		}
		u.LabelConflict = text
		env.EnqueuePod(u.UID)
	}
}
