package oracle

import (
	"encoding/json"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// resizeRecords fires when a resize takes effect that the disk does not know, so that an agent that
// is killed would take it back, and when a status tells of limits that the runtime never had.
type resizeRecords struct{}

func (*resizeRecords) describe() Entry {
	return Entry{"resize-records", "What a resize allocates is in the kubelet's checkpoint before " +
		"it takes effect. The limits in the status of a container that runs are among those that it " +
		"has had."}
}

// allocatedFile is the kubelet's checkpoint of what is allocated, in its root directory.
const allocatedFile = "allocated_pods_state"

func (*resizeRecords) checkFact(m *model, f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	switch {
	case isAgentStatus(f):
		return m.checkLimitsHad(f.Write.After.Pod)
	case f.Kind != truth.EventRecorded || f.Reason != reasonResizeStarted || p == nil:
		return nil
	}
	summary := summaryOf(f)
	asked, known := p.asked[summary.Generation]
	if !known || p.static || p.wasRemoved() || p.hadPowerLoss || m.opts.ReadFile == nil {
		return nil
	}
	recorded := m.recordedOf(p)
	for generation, a := range p.asked { //ordered: whether there is one
		if generation >= asked.spec.Generation && isRecorded(a.spec, recorded) {
			return nil
		}
	}
	return findingf("a resize of pod %s begins, but the checkpoint does not have what it asks for: %v",
		p, recorded)
}

// recordedOf returns what the checkpoint has of a pod, by container.
func (m *model) recordedOf(p *pod) map[string]v1.ResourceRequirements {
	data, _ := m.opts.ReadFile(path.Join(path.Dir(m.opts.PodsDir), allocatedFile))
	var file struct {
		Data string `json:"data"`
	}
	var content struct {
		Entries map[string]struct {
			ContainerResources map[string]v1.ResourceRequirements
		} `json:"entries"`
	}
	if json.Unmarshal(data, &file) != nil || json.Unmarshal([]byte(file.Data), &content) != nil {
		return nil
	}
	return content.Entries[p.uid].ContainerResources
}

// isRecorded reports whether resources are those of the containers of a spec.
func isRecorded(spec *v1.Pod, recorded map[string]v1.ResourceRequirements) bool {
	for i := range spec.Spec.Containers {
		c := &spec.Spec.Containers[i]
		has, known := recorded[c.Name]
		if !known || !isAllocated(has.Requests, c.Resources.Requests) ||
			!isAllocated(has.Limits, c.Resources.Limits) {
			return false
		}
	}
	return true
}

// checkLimitsHad checks that the limits in a status were those of its containers at some time.
func (m *model) checkLimitsHad(object *v1.Pod) *finding {
	for _, list := range [][]v1.ContainerStatus{object.Status.InitContainerStatuses,
		object.Status.ContainerStatuses} {
		for i := range list {
			s := &list[i]
			_, id, _ := strings.Cut(s.ContainerID, "://")
			c := m.containers[id]
			if c == nil || s.State.Running == nil || s.Resources == nil || c.pod.wasRemoved() {
				continue
			}
			memory := s.Resources.Limits.Memory().Value()
			cpu := s.Resources.Limits.Cpu().MilliValue()
			if t := m.opts.Tiers; t != nil && t.NoQuota {
				cpu = 0 // the runtime knows of none
			}
			if memory > 0 && !c.had(func(l truth.Limits) bool { return l.MemoryBytes == memory }) ||
				cpu >= 10 && !c.had(func(l truth.Limits) bool { return l.CPUQuota == cpu*100 }) {
				return findingf("%s is said to have limits of %d bytes and %d milli-CPUs, and had %+v",
					c, memory, cpu, c.limitsHad)
			}
		}
	}
	return nil
}

// had reports whether the container has had limits as described.
func (c *container) had(is func(truth.Limits) bool) bool {
	return slices.ContainsFunc(c.limitsHad, is)
}
