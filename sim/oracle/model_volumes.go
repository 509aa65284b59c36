package oracle

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// volumeModel is what backs the volumes of pods: the claims and persistent volumes at the API
// server, and what is mounted on the node.
type volumeModel struct {
	claims  map[string]*v1.PersistentVolumeClaim // by namespace/name, the last state
	volumes map[string]*v1.PersistentVolume      // by name, the last state
	mounts  []mounted                            // oldest first
	held    map[string]time.Time                 // since when devices are kept open, by path
}

// mounted is an entry of the mount table.
type mounted struct {
	path, source, within string
	readOnly             bool
	label                string // the SELinux label of all its files, if they have one
}

// place is a path in a file system, by the source of that.
type place struct{ source, path string }

// nodeDisk is the source of the file system of the node itself.
const nodeDisk = "/dev/sda1"

// apply updates the model with a fact.
func (o *volumeModel) apply(f *truth.Fact) {
	switch f.Kind {
	case truth.Mounted:
		o.mounts = append(o.mounts, mounted{f.Path, f.Source, f.NewPath, f.IsReadOnly, f.Label})
	case truth.Unmounted:
		for i := len(o.mounts) - 1; i >= 0; i-- {
			if o.mounts[i].path == f.Path {
				o.mounts = append(o.mounts[:i], o.mounts[i+1:]...)
				break
			}
		}
	case truth.DeviceHeld:
		if o.held == nil {
			o.held = map[string]time.Time{}
		}
		o.held[f.Path] = f.Time
	case truth.DeviceReleased:
		delete(o.held, f.Path)
	case truth.PowerLost:
		o.mounts, o.held = nil, nil
	case truth.ObjectCreated, truth.ObjectUpdated:
		o.applyObject(f.Write)
	}
}

func (o *volumeModel) applyObject(w *truth.Write) {
	switch after := &w.After; {
	case w.Resource == api.ResourceClaims && after.Claim != nil:
		if o.claims == nil {
			o.claims = map[string]*v1.PersistentVolumeClaim{}
		}
		o.claims[w.Namespace+"/"+w.Name] = after.Claim
	case w.Resource == api.ResourceVolumes && after.Volume != nil:
		if o.volumes == nil {
			o.volumes = map[string]*v1.PersistentVolume{}
		}
		o.volumes[w.Name] = after.Volume
	}
}

// countMountsBelow returns how many mounts there are in a directory.
func (o *volumeModel) countMountsBelow(dir string) (n int) {
	for i := range o.mounts {
		if isWithin(o.mounts[i].path, dir) {
			n++
		}
	}
	return n
}

// lookup returns where a path of the node leads, through what is mounted.
func (o *volumeModel) lookup(p string) place {
	for i := len(o.mounts) - 1; i >= 0; i-- {
		if m := &o.mounts[i]; isWithin(p, m.path) {
			return place{m.source, path.Join(m.within, strings.TrimPrefix(p, m.path))}
		}
	}
	return place{nodeDisk, p}
}

// unsettledDevices returns the devices of local volumes that are mounted although nothing of them
// is mounted for a pod, and what is left of those that containers had.
func (m *model) unsettledDevices() []string {
	var lines []string
	dir := path.Dir(m.opts.PodsDir) + "/plugins/kubernetes.io/local-volume/mounts"
	for i := range m.volumes.mounts {
		device := &m.volumes.mounts[i]
		if isWithin(device.path, dir) && !slices.ContainsFunc(m.volumes.mounts, func(o mounted) bool {
			return o.source == device.source && isWithin(o.path, m.opts.PodsDir)
		}) {
			lines = append(lines, fmt.Sprintf("%s is mounted at %s, and no pod has it", device.source,
				device.path))
		}
	}
	return append(lines, m.unsettledBlocks()...)
}

// backing is what a volume of a pod is to be mounted from.
type backing struct {
	at       place
	path     string // of the volume on the node
	name     string // of its directory, and of that of its sub-paths
	readOnly bool   // the pod asks for a volume that is read-only
}

// backingOf returns what backs a volume that has a claim, or is of a server; nil for any other
// volume and while the claim has no volume.
func (o *volumeModel) backingOf(pod *v1.Pod, v *v1.Volume, podDir string) *backing {
	if v.NFS != nil {
		return nfsBacking(v.NFS, podDir, v.Name, v.NFS.ReadOnly)
	}
	if v.Cinder != nil {
		return csiBacking(csiName{cinderDriver, v.Cinder.VolumeID}, podDir, cinderDir(v.Cinder), false)
	}
	if d := o.diskOf(pod, v); d != nil {
		return d.backing(podDir)
	}
	volume := o.volumeOf(pod, v)
	if volume == nil {
		return nil
	}
	_, readOnly := claimName(pod, v)
	if source, isCSI := csiNameOf(volume); isCSI {
		return csiBacking(source, podDir, volume.Name, readOnly)
	}
	switch s := &volume.Spec; {
	case s.NFS != nil:
		return nfsBacking(s.NFS, podDir, volume.Name, readOnly)
	case s.HostPath != nil:
		return &backing{place{nodeDisk, s.HostPath.Path}, s.HostPath.Path, volume.Name, readOnly}
	case s.Local != nil:
		b := &backing{place{nodeDisk, s.Local.Path},
			podDir + "/volumes/kubernetes.io~local-volume/" + volume.Name, volume.Name, readOnly}
		if strings.HasPrefix(s.Local.Path, "/dev/") {
			b.at = place{s.Local.Path, "/"}
		}
		return b
	}
	return nil
}

// volumeOf returns the persistent volume of a volume that has a claim; nil for any other one and
// while the claim has none.
func (o *volumeModel) volumeOf(pod *v1.Pod, v *v1.Volume) *v1.PersistentVolume {
	claim := o.claimOf(pod, v)
	if claim == nil || isOfAnother(pod, v, claim) {
		return nil
	}
	return o.volumes[claim.Spec.VolumeName]
}

// isOfAnother reports whether the claim of a generic ephemeral volume of a pod belongs to another
// owner: the pod does not get it.
func isOfAnother(pod *v1.Pod, v *v1.Volume, claim *v1.PersistentVolumeClaim) bool {
	return v.Ephemeral != nil && !metav1.IsControlledBy(claim, pod)
}

// hasNewerClaim reports whether a pod has a claim that was made later than a time.
func (o *volumeModel) hasNewerClaim(pod *v1.Pod, than time.Time) bool {
	than = than.Truncate(time.Second) // as the dates of objects are
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		claim := o.claimOf(pod, &v)
		return claim != nil && !claim.CreationTimestamp.Time.Before(than)
	})
}

// lacksVolume reports whether a volume of a pod cannot be set up: nothing provisions one for its
// claim, the claim belongs to another owner, its Secret does not exist, the node has too many to
// have it attached, its driver cannot be registered, or does not run and has not published it for
// this agent.
func (p *pod) lacksVolume(now time.Time) bool {
	m := p.model
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if !usesVolume(p.spec, v.Name) {
			continue
		}
		name, _ := claimName(p.spec, v)
		claim := m.volumes.claims[p.spec.Namespace+"/"+name]
		if name != "" && (claim == nil || claim.Status.Phase != v1.ClaimBound ||
			isOfAnother(p.spec, v, claim)) {
			return true
		}
		if d := m.volumes.diskOf(p.spec, v); d != nil && d.secret != nil &&
			m.objectHistory.current(d.secret) == nil {
			return true
		}
		for _, ref := range m.csiSecretsOf(p.spec, v) {
			if ref != nil && m.objectHistory.current(ref) == nil {
				return true
			}
		}
	}
	return slices.ContainsFunc(m.csiUses(p.spec), func(use csiUse) bool {
		if !usesVolume(p.spec, use.volume) {
			return false
		}
		_, isPublished := m.csi.published[use.path]
		if !isPublished && (!m.fullOf(use.csiName).since.IsZero() ||
			m.lacksNode() && !m.plugins.isRegistered(use.driver)) {
			return true
		}
		return m.isCSIDriverAway(now, use.driver, 0) &&
			(!isPublished || m.agentStartedAt.After(m.csi.driverDownAt[use.driver]))
	})
}

// usesVolume reports whether a container of a pod uses a volume. No pod needs another one.
func usesVolume(pod *v1.Pod, name string) bool {
	uses := func(mounts []v1.VolumeMount, devices []v1.VolumeDevice) bool {
		return slices.ContainsFunc(mounts, func(m v1.VolumeMount) bool { return m.Name == name }) ||
			slices.ContainsFunc(devices, func(d v1.VolumeDevice) bool { return d.Name == name })
	}
	ofContainer := func(c v1.Container) bool { return uses(c.VolumeMounts, c.VolumeDevices) }
	return slices.ContainsFunc(pod.Spec.InitContainers, ofContainer) ||
		slices.ContainsFunc(pod.Spec.Containers, ofContainer) ||
		slices.ContainsFunc(pod.Spec.EphemeralContainers, func(c v1.EphemeralContainer) bool {
			return uses(c.VolumeMounts, c.VolumeDevices)
		})
}

func csiBacking(source csiName, podDir, dir string, readOnly bool) *backing {
	return &backing{place{"/dev/" + source.driver + "/" + source.handle, "/"},
		podDir + "/volumes/kubernetes.io~csi/" + dir + "/mount", dir, readOnly}
}

func nfsBacking(s *v1.NFSVolumeSource, podDir, name string, readOnly bool) *backing {
	return &backing{place{s.Server + ":" + s.Path, "/"}, podDir + "/volumes/kubernetes.io~nfs/" + name,
		name, readOnly}
}

// claimName returns the name of the claim of a volume, and whether it is to be read-only; empty for
// a volume without one.
func claimName(pod *v1.Pod, v *v1.Volume) (name string, readOnly bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.ReadOnly
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name, false
	}
	return "", false
}

// claimOf returns the claim of a volume of a pod; nil if it has none, or that does not exist.
func (o *volumeModel) claimOf(pod *v1.Pod, v *v1.Volume) *v1.PersistentVolumeClaim {
	name, _ := claimName(pod, v)
	if name == "" {
		return nil
	}
	return o.claims[pod.Namespace+"/"+name]
}

// isBacked reports whether a volume has a claim, or is of a server or a cloud.
func isBacked(v *v1.Volume) bool {
	return v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.NFS != nil || v.Cinder != nil ||
		v.ISCSI != nil || v.FC != nil
}
