package oracle

import (
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// What nothingChanges says about volumes: as long as a pod runs or waits for its containers, none
// of its volumes is unpublished, unstaged, unmounted or written, wherever pods share it. A driver
// may be called again, as a kubelet calls it after each start, if that changes nothing.

// sharedDirs returns the directories in which a pod has its volumes together with others: what is
// staged, and the maps of devices.
func (m *model) sharedDirs(pod *v1.Pod) []string {
	var dirs []string
	plugins := path.Dir(m.opts.PodsDir) + "/plugins/kubernetes.io"
	for _, use := range m.csiUses(pod) {
		for at, place := range m.csi.staged { //ordered: into a list of which each is asked
			if place.csiName == use.csiName {
				dirs = append(dirs, m.csiDataDir(at), at)
			}
		}
		dirs = append(dirs, m.csiBlocks()+"/"+use.pv, m.csiBlocks()+"/publish/"+use.pv)
	}
	for i := range pod.Spec.Volumes {
		pv := m.volumes.volumeOf(pod, &pod.Spec.Volumes[i])
		if pv != nil && pv.Spec.Local != nil {
			dirs = append(dirs, plugins+"/local-volume/mounts/"+pv.Name, m.localBlocks()+"/"+pv.Name)
		}
	}
	return dirs
}

// isOfOther reports whether a path is that of one pod among those that share a volume, and this is
// another one.
func (m *model) isOfOther(at string, p *pod) bool {
	of := m.podOfTarget(at)
	return of != nil && of != p
}

// isLocalLink reports whether a path is the link to the device of a local volume. The agent has it
// lead to what is bound; see the differences.
func isLocalLink(at string) bool {
	return strings.Contains(at, "/volumeDevices/kubernetes.io~local-volume/")
}

// describeVolume returns what the agent does to the volumes of a pod; empty if nothing.
func (o *nothingChanges) describeVolume(m *model, t *takenPod, f *truth.Fact) string {
	switch {
	case t.hasEnded || f.Cause != "":
		return ""
	case f.Kind == truth.VolumeUnpublished, f.Kind == truth.VolumeUnstaged:
		return f.Volume.Driver + "^" + f.Volume.Handle + " was taken from " + f.Path
	case f.Kind == truth.DeviceReleased:
		return "the device at " + f.Path + " was released"
	case f.Kind == truth.Unmounted:
		return f.Path + " was unmounted"
	case f.Kind == truth.PathRemoved && o.files[f.Path]:
		return f.Path + " was removed"
	case f.Kind == truth.PathWritten && o.files[f.Path] && path.Base(f.Path) == "vol_data.json" &&
		!m.isWrittenUnread(f):
		return f.Path + " was written"
	}
	return ""
}

// isWrittenUnread reports whether a file was written as it was, and a fault may have kept the agent
// from reading that.
func (m *model) isWrittenUnread(f *truth.Fact) bool {
	return m.isUnchanged(f) && m.anyFaultPossible(m.agentStartedAt, f.Time, "ReadFiles")
}

// isWritten reports whether a write changes what a volume of the pod has without need. An agent
// requests other tokens after each start, as a kubelet does, which has them in memory alone: a
// volume with a token is written once more.
func (o *nothingChanges) isWritten(m *model, t *takenPod, p *pod, at string) bool {
	if p.spec == nil {
		return !t.isRestless
	}
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if !hasContent(v) || volumePath(m.opts.PodsDir+"/"+p.uid, v) != at {
			continue
		}
		if hasToken(v) && t.tokens[at] < m.agentStarts {
			t.tokens[at] = m.agentStarts
			return false
		}
		return !t.hasEnded
	}
	return !t.isRestless && !isLocalLink(at)
}

func hasToken(v *v1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources,
		func(s v1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
}

// checkShared checks a fact about what pods share of a volume. It is known if it is about that of a
// pod that was taken over, so that others need not judge it.
func (o *nothingChanges) checkShared(m *model, f *truth.Fact) (problem *finding, known bool) {
	if f.Path == "" || !isWithin(f.Path, path.Dir(m.opts.PodsDir)+"/plugins") {
		return nil, false
	}
	for _, p := range m.podsInOrder {
		t := o.pods[p.uid]
		if t == nil || t.isChanged || p.spec == nil || m.isOfOther(f.Path, p) {
			continue
		}
		for _, dir := range t.shared {
			if !isWithin(f.Path, dir) {
				continue
			}
			if what := o.describeVolume(m, t, f); what != "" && !m.mayBeFromKubelet(o, f) {
				return findingf("pod %s was taken over as it is, and nothing has changed it, but %s", p,
					what), true
			}
		}
	}
	isOfVolumes := isWithin(f.Path, m.csiBlocks()) || isWithin(f.Path, m.localBlocks()) ||
		path.Base(f.Path) == "vol_data.json"
	return nil, isOfVolumes // of pods that have ended or gone
}

// checkCSINode checks that the agent leaves the entries of drivers that have not changed, with the
// node's IDs on the Node.
func (o *nothingChanges) checkCSINode(f *truth.Fact) *finding {
	w := f.Write
	switch {
	case w.Incarnation == 0 || o.driversChanged:
	case w.Resource == api.ResourceCSINodes:
		return findingf("the drivers have not changed, but the CSINode was written or removed")
	case w.Resource == api.ResourceNodes && w.Before.Node != nil && w.After.Node != nil &&
		w.Before.Node.Annotations[nodeIDs] != w.After.Node.Annotations[nodeIDs]:
		return findingf("the drivers have not changed, but %s of the Node was %q and is %q", nodeIDs,
			w.Before.Node.Annotations[nodeIDs], w.After.Node.Annotations[nodeIDs])
	}
	return nil
}

// nodeIDs is the annotation of the Node that has its ID of each driver.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"
