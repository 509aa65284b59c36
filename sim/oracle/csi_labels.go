package oracle

import (
	"encoding/json"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// csiLabels fires when a container is started with a CSI volume whose files have another SELinux
// label than its pod needs, or than each file its own where no driver or pod wants that (KEP-1710).
type csiLabels struct{}

func (*csiLabels) describe() Entry {
	return Entry{"csi-labels", "A container gets a volume whose files have the SELinux label of its " +
		"pod, if driver, access mode and pod allow to mount it so, and otherwise one without. What " +
		"is on the disk says which label a volume has."}
}

func (o *csiLabels) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ContainerStarted:
		return o.checkStart(m, f)
	case truth.VolumeStaged, truth.VolumePublished:
		return o.checkData(m, f)
	}
	return nil
}

// checkStart checks the labels of the volumes of a container that is started.
func (*csiLabels) checkStart(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if p == nil || p.spec == nil || p.specChanged || p.wasRemoved() {
		return nil
	}
	for _, use := range m.csiUses(p.spec) {
		is, isPublished := m.csi.published[use.path]
		if !isPublished || is.csiName != use.csiName || !usesVolume(p.spec, use.volume) {
			continue
		}
		if want := m.labelsOf(is.since, p.spec, &use); !slices.Contains(want, is.label) {
			return findingf("container %s was started with %s whose label is %q, want %q", f.Container,
				use.csiName, is.label, want)
		}
	}
	return nil
}

// checkData checks that the file beside a volume says with which label it is mounted: the next
// agent goes by it.
func (*csiLabels) checkData(m *model, f *truth.Fact) *finding {
	if m.opts.ReadFile == nil {
		return nil
	}
	data, exists := m.opts.ReadFile(m.csiDataDir(f.Path) + "/vol_data.json")
	var content struct{ SELinuxMountContext string }
	if exists && json.Unmarshal(data, &content) == nil &&
		content.SELinuxMountContext != f.Volume.Label {
		return findingf("%s is mounted with the label %q, and vol_data.json has %q", f.Path,
			f.Volume.Label, content.SELinuxMountContext)
	}
	return nil
}

// labelsOf returns the labels with which a volume may be mounted for a pod at a time, by what the
// agent may know of its CSIDriver.
func (m *model) labelsOf(at time.Time, pod *v1.Pod, use *csiUse) (labels []string) {
	label := m.labelInMode(pod, use.volume)
	for _, d := range m.csiDriverStates(at, use.driver) {
		if d == nil || d.Spec.SELinuxMount == nil || !*d.Spec.SELinuxMount {
			labels = append(labels, "")
		} else {
			labels = append(labels, label)
		}
	}
	return labels
}

// labelInMode returns the label with which a volume of a name has to be mounted for a pod if its
// driver, or its kind, allows that; empty: with none.
func (m *model) labelInMode(pod *v1.Pod, volume string) string {
	i := slices.IndexFunc(pod.Spec.Volumes, func(v v1.Volume) bool { return v.Name == volume })
	pv := m.volumes.volumeOf(pod, &pod.Spec.Volumes[i])
	s := pod.Spec.SecurityContext
	switch {
	case !m.opts.SELinux, pv == nil,
		pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == v1.PersistentVolumeBlock,
		s != nil && s.SELinuxChangePolicy != nil && *s.SELinuxChangePolicy == "Recursive":
		return ""
	case !m.opts.LabelsAllModes &&
		!slices.Equal(pv.Spec.AccessModes, []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}):
		return ""
	}
	label := ""
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		has := slices.ContainsFunc(c.VolumeMounts, func(at v1.VolumeMount) bool {
			return at.Name == volume
		})
		var o *v1.SELinuxOptions
		if s != nil {
			o = s.SELinuxOptions
		}
		if c.SecurityContext != nil && c.SecurityContext.SELinuxOptions != nil {
			o = c.SecurityContext.SELinuxOptions
		}
		if has && o != nil && o.Level != "" {
			user := o.User
			if user == "" {
				user = "system_u"
			}
			label = user + ":object_r:container_file_t:" + o.Level
		}
	}
	return label
}
