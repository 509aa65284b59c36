package pod

import (
	"strings"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/volume"
)

// watchGroup reports that a volume takes long to be given to the group of the pod, and ends that
// early once the pod ends. Package csi does the same for volumes of CSI drivers.
func (p *Pod) watchGroup(env *Env, w *wakeTimer) {
	r, isInFlight := env.Effects.Find(p.Op)
	name, isVolume := strings.CutPrefix(r.Subject, subjectVolume)
	if !isInFlight || !isVolume || r.Call != "ShareWithGroup" || p.Spec == nil {
		return
	}
	s := &p.Storage
	if s.GroupOp != p.Op {
		s.GroupOp, s.GroupReports, s.GroupEnds = p.Op, 0, false
	}
	if p.Stage != Syncing {
		if !s.GroupEnds {
			s.GroupEnds = true
			env.Effects.EndEarly(p.Op)
		}
		return
	}
	spec := p.specVolume(name)
	if spec == nil || !volume.IsBacked(spec) || // a kubelet says so of what may have many files alone
		w.waitUntil(csi.GroupReportAt(r.IssuedAt, s.GroupReports)) {
		return
	}
	p.recordEvent(env, "", warning, csi.ReasonSlowGroup, "%s",
		csi.GroupMessage(s.Volumes.Place(p.dir(env.Node), spec).Path, p.UID, s.GroupReports))
	s.GroupReports++
	w.waitUntil(csi.GroupReportAt(r.IssuedAt, s.GroupReports))
}
