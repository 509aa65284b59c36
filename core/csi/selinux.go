package csi

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/world"
)

// SELinux is what of the machine and the configuration decides with which labels volumes are
// mounted (KEP-1710). A volume that is mounted with the label of its pod is there at once; of any
// other one the runtime has to relabel each file.
type SELinux struct {
	Enabled bool
	// FileLabel is world.Machine.SELinuxFileLabel.
	FileLabel string
	// AllModes is the feature gate SELinuxMount: volumes of all access modes are mounted with a label.
	AllModes bool
}

// LabelEvent is what is counted of the labels of volumes: the part of the name of the kubelet's
// metric after volume_manager_selinux_ (desired_state_of_world.go in pkg/kubelet/volumemanager).
type LabelEvent string

// The events. A problem is counted when a pod begins to have it; a kubelet counts each retry.
const (
	// A volume is to be mounted with a label.
	LabelAdmitted LabelEvent = "volumes_admitted_total"
	// The options of a container are no label; its containers differ; another pod has another one.
	LabelOfContainer LabelEvent = "container_errors_total"
	LabelOfPod       LabelEvent = "pod_context_mismatch_errors_total"
	LabelOfVolume    LabelEvent = "volume_context_mismatch_errors_total"
)

// CountedLabel is an event about the label of a volume.
type CountedLabel struct {
	Event      LabelEvent
	Driver     string
	AccessMode string
}

// labelError is a problem with the label of a volume that is counted.
type labelError struct {
	event   LabelEvent
	problem string
}

func (e *labelError) Error() string { return e.problem }

func (u *Use) countLabel(event LabelEvent, env *Env) {
	if env.CountLabel != nil {
		env.CountLabel(CountedLabel{Event: event, Driver: u.Driver, AccessMode: u.modeLabel()})
	}
}

// modeLabel returns the access mode of the volume in metrics: the one for most nodes and pods.
func (u *Use) modeLabel() string {
	for _, m := range []struct {
		mode  v1.PersistentVolumeAccessMode
		label string
	}{{v1.ReadWriteMany, "RWX"}, {v1.ReadOnlyMany, "ROX"}, {v1.ReadWriteOnce, "RWO"},
		{v1.ReadWriteOncePod, "RWOP"}} {
		if slices.Contains(u.AccessModes, m.mode) {
			return m.label
		}
	}
	return "inline"
}

// labelOf returns the label with which a volume has to be mounted for a use; empty: with none, as
// its files are to be relabeled or left as they are. Known is false while it is not known what the
// driver supports.
func labelOf(u *Use, env *Env) (label string, known bool, err error) {
	if !env.SELinux.Enabled || env.SELinux.FileLabel == "" || len(u.SELinux) == 0 ||
		!env.SELinux.AllModes && !u.isOfOnePod() {
		return "", true, nil
	}
	d, known := env.driverObject(u.Driver)
	if d == nil || d.Spec.SELinuxMount == nil || !*d.Spec.SELinuxMount {
		return "", known, nil
	}
	var labels []string
	for i := range u.SELinux {
		label, err := fileLabel(env.SELinux.FileLabel, &u.SELinux[i])
		if err != nil {
			return "", true, err
		}
		if label != "" && !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	if len(labels) == 0 {
		return "", true, nil
	}
	if len(labels) > 1 {
		slices.Sort(labels)
		return "", true, &labelError{LabelOfPod,
			"multiple SELinux labels found: " + strings.Join(labels, ",")}
	}
	return labels[0], true, nil
}

// isOfOnePod reports whether one pod at a time may use the volume.
func (u *Use) isOfOnePod() bool {
	return len(u.AccessModes) == 1 && u.AccessModes[0] == v1.ReadWriteOncePod
}

// fileLabel returns the label of the files of a container with the given options. Its role and type
// are those of all files of containers (InitLabels in opencontainers/selinux). Without a level
// there is none: the runtime gives each pod another one.
func fileLabel(base string, o *v1.SELinuxOptions) (string, error) {
	parts := strings.SplitN(base, ":", 4) // user, role, type, level
	if o.Level == "" || len(parts) < 3 {
		return "", nil
	}
	user := o.User
	if user == "" {
		user = parts[0]
	}
	label := strings.Join([]string{user, parts[1], parts[2], o.Level}, ":")
	if !isLabel(label) || strings.Contains(user, ":") {
		return "", &labelError{LabelOfContainer, fmt.Sprintf("failed to construct SELinux label from "+
			"user %q and level %q: a label has letters, digits and the characters _ - . , : only", o.User,
			o.Level)}
	}
	return label, nil
}

// isLabel reports whether a label can be in an option of a mount, and ends nothing there.
func isLabel(label string) bool {
	for _, c := range label {
		isWord := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !isWord && !strings.ContainsRune("_-.,:", c) {
			return false
		}
	}
	return len(label) <= world.NameBytesMax
}

// labelOption returns the option of a mount with a label, in quotes for the commas in it.
func labelOption(label string) string { return fmt.Sprintf("context=%q", label) }

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
	other, isMounted := v.mountedLabel()
	if !isMounted {
		other = v.labelInTurn(env)
	}
	if label != other {
		if same, _ := v.labelNeeds(other, env); same {
			return false, &labelError{LabelOfVolume, fmt.Sprintf("conflicting SELinux labels of volume "+
				"%s: %q and %q", u.SpecName, other, label)}
		}
		return false, fmt.Errorf("waiting for unmount of volume %q, because it is already mounted to a "+
			"different pod with a different SELinux label", v.name())
	}
	if s := &v.Staging; s.State == "" && s.Label != label {
		s.Label, s.DataWritten = label, false
		if label != "" {
			u.countLabel(LabelAdmitted, env)
		}
	}
	if p != nil && p.State == "" && p.Label != label {
		p.Label, p.DataWritten = label, false
	}
	return true, nil
}

// labelInTurn returns the label with which a volume that is not mounted is to be mounted next: that
// of the pod that has needed it longest and is not in its back-off. Those that have it by a claim
// come first. After each failure to stage it the next label has its turn.
func (v *Volume) labelInTurn(env *Env) string {
	uses := slices.SortedFunc(maps.Values(v.Uses), func(x, y *Use) int {
		if x.Inline != y.Inline {
			if x.Inline {
				return 1
			}
			return -1
		}
		return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.target(), y.target()))
	})
	var labels, waiting []string
	for _, u := range uses {
		label, known, err := labelOf(u, env)
		switch {
		case !known || err != nil || slices.Contains(labels, label):
		case u.Attempts.NotBefore.After(env.Effects.Now()):
			waiting = append(waiting, label)
		default:
			labels = append(labels, label)
		}
	}
	if labels = append(labels, waiting...); len(labels) == 0 {
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
		if problem, is := errors.AsType[*labelError](problem); is && u.LabelConflict == "" {
			u.countLabel(problem.event, env)
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

// labelNeeds returns whether a pod needs a volume with a label, or has it, and whether one needs it
// with another. A pod that only its author gives the volume keeps it from no other.
func (v *Volume) labelNeeds(mounted string, env *Env) (same, other bool) {
	hasClaim := false
	for _, u := range v.Uses { //ordered: whether there is one
		hasClaim = hasClaim || !u.Inline
	}
	for target, u := range v.Uses { //ordered: whether there are such
		p := v.Publications[target]
		label, known, err := labelOf(u, env)
		switch {
		case p != nil && p.State == Done:
			same = true
		case !known || err != nil || u.Inline && hasClaim:
		case label == mounted:
			same = true
		default:
			other = true
		}
	}
	return same, other
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
	same, other := v.labelNeeds(v.Staging.Label, env)
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

// seLinuxOptionsOf returns the options of the containers that mount a volume, without duplicates;
// none if the pod wants its files relabeled one by one. A container without options has no say.
func seLinuxOptionsOf(pod *v1.PodSpec, volume string) (all []v1.SELinuxOptions) {
	ofPod := (*v1.SELinuxOptions)(nil)
	if s := pod.SecurityContext; s != nil {
		if s.SELinuxChangePolicy != nil && *s.SELinuxChangePolicy == v1.SELinuxChangePolicyRecursive {
			return nil
		}
		ofPod = s.SELinuxOptions
	}
	note := func(c *v1.SecurityContext, mounts []v1.VolumeMount) {
		o := ofPod
		if c != nil && c.SELinuxOptions != nil {
			o = c.SELinuxOptions
		}
		mounted := slices.ContainsFunc(mounts, func(m v1.VolumeMount) bool { return m.Name == volume })
		if o != nil && mounted && !slices.Contains(all, *o) {
			all = append(all, *o)
		}
	}
	for _, containers := range [][]v1.Container{pod.InitContainers, pod.Containers} {
		for i := range containers {
			note(containers[i].SecurityContext, containers[i].VolumeMounts)
		}
	}
	for i := range pod.EphemeralContainers {
		c := &pod.EphemeralContainers[i]
		note(c.SecurityContext, c.VolumeMounts)
	}
	return all
}
