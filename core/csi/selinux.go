package csi

import (
	"fmt"
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
		if !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	if len(labels) > 1 {
		slices.Sort(labels)
		return "", true, fmt.Errorf("multiple SELinux labels found: %s", strings.Join(labels, ","))
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
		return "", fmt.Errorf("failed to construct SELinux label from user %q and level %q: a label "+
			"has letters, digits and the characters _ - . , : only", o.User, o.Level)
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

// labelOption returns the option of a mount with a label, which has commas.
func labelOption(label string) string { return fmt.Sprintf("context=%q", label) }

// isMounted reports whether a volume is, or may be, staged or published.
func (v *Volume) isMounted() bool {
	if v.Staging.State != "" {
		return true
	}
	for _, p := range v.Publications { //ordered: whether there is one
		if p.State != "" {
			return true
		}
	}
	return false
}

// agreeOnLabel reports whether a volume has the label that a use needs, or gives it that label
// while it is not mounted. A mounted volume keeps its label until it is unstaged: what is
// published stays as it is, whatever the driver supports meanwhile.
func (v *Volume) agreeOnLabel(u *Use, env *Env) (agreed bool, err error) {
	if p := v.Publications[u.target()]; p != nil && p.State != "" {
		return true, nil
	}
	label, known, err := labelOf(u, env)
	switch {
	case !known || err != nil:
		return false, err
	case label == v.Label:
		return true, nil
	case !v.isMounted():
		v.Label, v.Staging.DataWritten = label, false
		for _, p := range v.Publications { //ordered: each by itself
			p.DataWritten = false
		}
		return true, nil
	}
	if same, _ := v.labelNeeds(env); same {
		return false, fmt.Errorf("conflicting SELinux labels of volume %s: %q and %q", u.SpecName,
			v.Label, label)
	}
	return false, fmt.Errorf("waiting for unmount of volume %q, because it is already mounted to a "+
		"different pod with a different SELinux label", v.name())
}

// noteDisagreement notes why a pod does not get a volume with its label. The volume is planned when
// something of it changes.
func (v *Volume) noteDisagreement(u *Use, err error, env *Env) {
	if err == nil { // its driver is not known
		return
	}
	if problem := u.setUpProblem(budget.CutMessage(err.Error())); u.Attempts.Problem != problem {
		u.Attempts.Failures++
		u.Attempts.Problem = problem
		env.EnqueuePod(u.UID)
	}
}

// labelNeeds returns whether a pod needs a volume as it is mounted, and whether one needs it with
// another label.
func (v *Volume) labelNeeds(env *Env) (same, other bool) {
	for target, u := range v.Uses { //ordered: whether there are such
		p := v.Publications[target]
		label, known, err := labelOf(u, env)
		switch {
		case p != nil && p.State != "" || known && err == nil && label == v.Label:
			same = true
		case known && err == nil:
			other = true
		}
	}
	return same, other
}

// mustBeRelabeled reports whether a staged volume has to be let go because the pods that need it
// need another label.
func (v *Volume) mustBeRelabeled(env *Env) bool {
	if v.Staging.State == "" || len(v.Publications) > 0 {
		return false
	}
	same, other := v.labelNeeds(env)
	return other && !same
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
