package oracle

import (
	"seedlet.dev/sim/truth"
)

// podDirectories fires when the agent removes a pod's directory while a container of the pod runs
// (upstream #113979, #120150). A delayed removal of the time before a manifest was removed and
// came back is excused.
type podDirectories struct{}

func (*podDirectories) describe() Entry {
	return Entry{"pod-directories", "A pod's directories exist as long as a process of it " +
		"runs."}
}

func (*podDirectories) checkFact(m *model, f *truth.Fact) *finding {
	if f.Kind != truth.PathRemoved || f.Cause != "" {
		return nil
	}
	p, dir := m.ownerOfPath(f.Path)
	if p == nil || dir != f.Path || p.liveContainers == 0 || p.wasRemoved() && p.timesDesired > 1 {
		return nil
	}
	return findingf("%s was removed while %s runs", dir, p.anyLiveContainer())
}
