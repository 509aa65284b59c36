package csi

import (
	"errors"
	"maps"
	"slices"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/selinux"
)

// With which SELinux labels volumes are staged and published: package selinux, and what their
// drivers support.

func (u *Use) countLabel(event selinux.Event, env *Env) {
	if env.CountLabel != nil {
		env.CountLabel(selinux.Counted{Event: event, Driver: u.Driver,
			AccessMode: selinux.ModeLabel(u.AccessModes)})
	}
}

// labelOf returns the label with which a volume has to be mounted for a use; empty: with none, as
// its files are to be relabeled or left as they are. Known is false while it is not known what the
// driver supports.
func labelOf(u *Use, env *Env) (label string, known bool, err error) {
	if !env.SELinux.Labels(u.SELinux, u.AccessModes) {
		return "", true, nil
	}
	d, known := env.driverObject(u.Driver)
	if d == nil || d.Spec.SELinuxMount == nil || !*d.Spec.SELinuxMount {
		return "", known, nil
	}
	label, err = env.SELinux.LabelOf(u.SELinux)
	return label, true, err
}

// isOfOnePod reports whether one pod at a time may use the volume.
func (u *Use) isOfOnePod() bool { return selinux.IsOfOnePod(u.AccessModes) }

// mountedLabel returns the label with which a volume is mounted, or may be, wherever it is: a file
// system has one at a time. What is known to be published says it best, what is staged comes next.
func (v *Volume) mountedLabel() (label string, isMounted bool) {
	rankOf := func(p *Publication) int {
		switch {
		case p.State == Done:
			return 3
		case p.State == Uncertain && p.Mounted:
			return 2
		case p.State == Uncertain:
			return 0
		}
		return -1
	}
	rank := -1
	if s := &v.Staging; s.isMounted() {
		label, rank = s.Label, 1
	}
	for _, target := range slices.Sorted(maps.Keys(v.Publications)) {
		if p := v.Publications[target]; rankOf(p) > rank {
			label, rank = p.Label, rankOf(p)
		}
	}
	return label, rank >= 0
}

// isMounted reports whether a volume is, or may be, staged: also while that is being undone.
func (s *Staging) isMounted() bool { return s.State != "" || !s.UndoneSince.IsZero() }

// mayNeedRelabeling reports whether the runtime may have to relabel the files of a publication.
func (p *Publication) mayNeedRelabeling(env *Env) bool {
	return env.SELinux.Enabled && !p.Block && p.Label == ""
}

// agreeOnLabel reports whether a volume can be mounted with the label that a use needs, and notes
// the label for what is not mounted yet. Otherwise it returns why not. What is published stays as
// it is, whatever its driver supports meanwhile.
func (n *Node) agreeOnLabel(v *Volume, u *Use, env *Env) (agreed bool, problem error) {
	p := v.Publications[u.target()]
	if p != nil && p.State == Done {
		return true, nil
	}
	label, known, err := labelOf(u, env)
	if !known || err != nil {
		return false, err
	}
	if p != nil && v.hasOutdatedLabel(u.target(), env) ||
		env.SELinux.Enabled && n.hides(v.Driver, v) { // it may be mounted with another label
		return false, nil
	}
	demands := v.demands(env)
	other, isMounted := v.mountedLabel()
	if !isMounted {
		other = v.labelInTurn(demands)
	}
	if err := selinux.Check(label, other, demands, u.SpecName, v.name()); err != nil {
		return false, err
	}
	if s := &v.Staging; s.State == "" && s.Label != label {
		s.Label, s.DataWritten = label, false
		if label != "" {
			u.countLabel(selinux.Admitted, env)
		}
	}
	if p != nil && p.State == "" && p.Label != label {
		p.Label, p.DataWritten = label, false
	}
	return true, nil
}

// demands returns which labels the pods need that use a volume.
func (v *Volume) demands(env *Env) (all []selinux.Demand) {
	for _, target := range slices.Sorted(maps.Keys(v.Uses)) {
		u, p := v.Uses[target], v.Publications[target]
		label, known, err := labelOf(u, env)
		all = append(all, selinux.Demand{Label: label, Known: known && err == nil,
			Has: p != nil && p.State == Done, Inline: u.Inline,
			IsWaiting: u.Attempts.NotBefore.After(env.Effects.Now()), Since: u.Since, Target: target})
	}
	return all
}

// labelInTurn returns the label with which a volume that is not mounted is to be mounted next.
func (v *Volume) labelInTurn(demands []selinux.Demand) string {
	labels := selinux.InOrder(demands)
	if len(labels) == 0 {
		return ""
	}
	return labels[v.Staging.Attempts.Failures%len(labels)]
}

// noteLabelConflict notes why a pod does not get a volume with its label. The volume is planned
// when something of it changes.
func (u *Use) noteLabelConflict(problem error, env *Env) {
	text := ""
	if problem != nil {
		text = u.setUpProblem(budget.CutMessage(problem.Error()))
	}
	if u.LabelConflict != text {
		if problem, is := errors.AsType[*selinux.Error](problem); is && u.LabelConflict == "" {
			u.countLabel(problem.Event, env)
		}
		u.LabelConflict = text
		env.EnqueuePod(u.UID)
	}
}

// hasLabelConflict reports whether a pod cannot have a volume with its label.
func (v *Volume) hasLabelConflict() bool {
	for _, u := range v.Uses { //ordered: whether there is one
		if u.LabelConflict != "" {
			return true
		}
	}
	return false
}

// mustBeRestaged reports whether a staged volume has to be let go, because the pods that need it
// need another label.
func (v *Volume) mustBeRestaged(env *Env) bool {
	if !v.Staging.isMounted() {
		return false
	}
	for _, p := range v.Publications { //ordered: whether there is one
		if p.State != "" {
			return false
		}
	}
	same, other := selinux.Demanded(v.demands(env), v.Staging.Label)
	return other && !same
}

// hasOutdatedLabel reports whether a publication that may exist has to be undone before its pod can
// have the volume: the pod needs another label, or the volume has another one elsewhere.
func (v *Volume) hasOutdatedLabel(target string, env *Env) bool {
	u, p := v.Uses[target], v.Publications[target]
	if p.State == Done || p.State == "" && p.Removal == (Removal{}) {
		return false
	}
	label, known, err := labelOf(u, env)
	mounted, isMounted := v.mountedLabel()
	return known && err == nil && (p.Label != label || isMounted && p.Label != mounted)
}
