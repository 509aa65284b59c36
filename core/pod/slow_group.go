package pod

import (
	"strings"

	"seedlet.dev/core/csi"
	"seedlet.dev/core/volume"
)

// watchGroup reports that a volume takes long to be given to the group of the pod, and ends that
// early once the pod ends. Package csi does so for volumes of CSI drivers.
func (p *Pod) watchGroup(env *Env, w *wakeTimer) {
	r, isInFlight := env.Effects.Find(p.Op)
	name, isVolume := strings.CutPrefix(r.Subject, subjectVolume)
	if !isInFlight || !isVolume || r.Call != "ShareWithGroup" || p.Spec == nil {
		return
	}
	spec, isNeeded := p.specVolume(name), p.Stage == Syncing
	if isNeeded && (spec == nil || !volume.IsBacked(spec)) {
		return // a kubelet says so of what may have many files alone
	}
	w.waitUntil(p.Storage.Group.Plan(p.Op, r, isNeeded, func(reports int) {
		p.recordEvent(env, "", warning, csi.ReasonSlowGroup, "%s",
			csi.GroupMessage(p.Storage.Volumes.Place(p.dir(env.Node), spec).Path, p.UID, reports))
	}, env.Effects))
}
