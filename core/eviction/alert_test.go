package eviction

import (
	"testing"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/world"
)

// observeForAlert answers the observation of the node that is due, and returns for which working
// sets of the machine and of the pods an alert was asked.
func (h *harness) observeForAlert(usedMiB, podsMiB int64) (machineMiB, ofPodsMiB int64) {
	h.t.Helper()
	issued := h.plan()
	if len(issued) != 1 {
		h.t.Fatalf("%d requests are issued", len(issued))
	}
	request := issued[0].Body.(*world.MeasureNode)
	h.complete(issued[0].Op, &world.NodeMeasured{MemoryBytes: 1000 * mib, PodsMeasured: true,
		WorkingSetBytes: usedMiB * mib, PodsWorkingSetBytes: podsMiB * mib})
	return request.AlertAbove / mib, request.AlertPodsAbove / mib
}

// The kernel is asked to report the working set at which the next threshold is met, which is the
// soft one first, then the hard one. A report has the node observed at once, and again no sooner
// than a second later.
func TestMemoryAlert(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{KernelMemcgNotification: true,
		EvictionHard:            map[string]string{"memory.available": "100Mi"},
		EvictionSoft:            map[string]string{"memory.available": "300Mi"},
		EvictionSoftGracePeriod: map[string]string{"memory.available": "1h"},
		EnforceNodeAllocatable:  []string{"pods"}})
	h.podsMemoryMax = 800 * mib
	h.addPod("a", 0, 0)
	if machine, pods := h.observeForAlert(500, 300); machine != 0 || pods != 0 {
		t.Errorf("alerts at %d and %d MiB before the capacity is known", machine, pods)
	}
	h.now = h.now.Add(2 * time.Second)
	if issued := h.plan(); len(issued) > 0 {
		t.Fatalf("%+v is issued without an alert", issued)
	}
	h.m.HandleMemoryAlert(h.now)
	if machine, pods := h.observeForAlert(750, 300); machine != 700 || pods != 700 {
		t.Errorf("alerts at %d and %d MiB, want those of the soft threshold and of the pods", machine,
			pods)
	}
	h.m.HandleMemoryAlert(h.now)
	if issued := h.plan(); len(issued) > 0 {
		t.Error("the node is observed twice in a moment")
	}
	h.now = h.now.Add(alertPeriod)
	if machine, _ := h.observeForAlert(950, 300); machine != 900 {
		t.Errorf("an alert at %d MiB, want that of the hard threshold", machine)
	}
	if h.m.Attempt == nil {
		t.Error("no pod is to be evicted")
	}
}

// Without kernelMemcgNotification the kernel is asked for nothing.
func TestNoMemoryAlert(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{
		EvictionHard: map[string]string{"memory.available": "10%"}})
	h.observeForAlert(500, 0)
	h.now = h.now.Add(period)
	if machine, pods := h.observeForAlert(500, 0); machine != 0 || pods != 0 {
		t.Errorf("alerts at %d and %d MiB", machine, pods)
	}
}

// Why the kernel reports nothing is logged once.
func TestAlertProblem(t *testing.T) {
	h := newHarness(t, &kubeletconfig.KubeletConfiguration{KernelMemcgNotification: true,
		EvictionHard: map[string]string{"memory.available": "10%"}})
	logs := 0
	for _, problem := range []string{"no v1", "no v1", "", "no v1"} {
		op := h.plan()[0].Op
		h.effects.Reset(&h.table, h.now)
		h.table.Complete(op)
		h.m.HandleCompletion(op, world.Event{Time: h.now, Op: op,
			Body: &world.NodeMeasured{MemoryBytes: 1, AlertProblem: problem}}, h.env())
		for _, eff := range h.effects.List() {
			if _, isLog := eff.Body.(*world.Log); isLog {
				logs++
			}
		}
		h.now = h.now.Add(period)
	}
	if logs != 2 {
		t.Errorf("%d log lines, want one for each time that it turns out", logs)
	}
}
