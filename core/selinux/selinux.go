// Package selinux decides with which SELinux labels volumes are mounted (KEP-1710). A volume that
// is mounted with the label of its pod is there at once; of any other one the runtime has to
// relabel each file. Packages csi and scsi mount the volumes, and have the facts of them.
//
// The label of a use follows from the options of the containers (Node.LabelOf). Pods share a
// volume, and a file system has one label at a time, so that a volume is mounted with the label of
// one of them in turn (InOrder), and the others wait until it is let go (Check, Demanded).
//
// Upstream: pkg/volume/util/selinux.go and desired_state_of_world.go in
// pkg/kubelet/volumemanager/cache.
package selinux

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Node is what of the machine and the configuration decides about labels.
type Node struct {
	Enabled bool `json:"enabled,omitempty"`
	// FileLabel is world.Machine.SELinuxFileLabel.
	FileLabel string `json:"fileLabel,omitempty"`
	// AllModes is the feature gate SELinuxMount: volumes of all access modes are mounted with a label.
	AllModes bool `json:"allModes,omitempty"`
}

// Labels reports whether a volume of some access modes may be mounted with a label for containers
// with some options.
func (n *Node) Labels(options []v1.SELinuxOptions, modes []v1.PersistentVolumeAccessMode) bool {
	return n.Enabled && n.FileLabel != "" && len(options) > 0 && (n.AllModes || IsOfOnePod(modes))
}

// LabelOf returns the label of the files of containers with some options; empty if they have none.
func (n *Node) LabelOf(options []v1.SELinuxOptions) (string, error) {
	var labels []string
	for i := range options {
		label, err := fileLabel(n.FileLabel, &options[i])
		if err != nil {
			return "", err
		}
		if label != "" && !slices.Contains(labels, label) {
			labels = append(labels, label)
		}
	}
	switch len(labels) {
	case 0:
		return "", nil
	case 1:
		return labels[0], nil
	}
	slices.Sort(labels)
	return "", &Error{OfPod, "multiple SELinux labels found: " + strings.Join(labels, ",")}
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
	if !IsLabel(label) || strings.Contains(user, ":") {
		return "", &Error{OfContainer, fmt.Sprintf("failed to construct SELinux label from "+
			"user %q and level %q: a label has letters, digits and the characters _ - . , : only", o.User,
			o.Level)}
	}
	return label, nil
}

// IsLabel reports whether a label can be in an option of a mount, and ends nothing there.
func IsLabel(label string) bool {
	for _, c := range label {
		isWord := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !isWord && !strings.ContainsRune("_-.,:", c) {
			return false
		}
	}
	return len(label) <= world.NameBytesMax
}

// MountOption returns the option of a mount with a label, in quotes for the commas in it.
func MountOption(label string) string { return fmt.Sprintf("context=%q", label) }

// IsOfOnePod reports whether one pod at a time may use a volume of some access modes.
func IsOfOnePod(modes []v1.PersistentVolumeAccessMode) bool {
	return len(modes) == 1 && modes[0] == v1.ReadWriteOncePod
}

// OptionsOf returns the options of the containers that mount a volume, without duplicates; none if
// the pod wants its files relabeled one by one. A container without options has no say.
func OptionsOf(pod *v1.PodSpec, volume string) (all []v1.SELinuxOptions) {
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

// LabelIn returns the label with which the options of a mount mount it; empty: they name none.
func LabelIn(options []string) string {
	for _, o := range options {
		if label, isLabel := strings.CutPrefix(o, "context="); isLabel {
			return strings.Trim(label, `"`)
		}
	}
	return ""
}
