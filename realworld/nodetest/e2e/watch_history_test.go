package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// watchHistory records every state of each pod and node that a watch of the API server reports.
// States that changed while the API server was down are missing.
type watchHistory struct {
	stop chan struct{}

	mu         sync.Mutex
	podStates  map[types.UID][]*v1.Pod
	deleted    map[types.UID]bool // pods whose deletion the watch reported
	nodeStates []*v1.Node
}

// newWatchHistory starts a watch that is recorded until the test ends.
func newWatchHistory(t testing.TB, api kubernetes.Interface) *watchHistory {
	t.Helper()
	h := &watchHistory{stop: make(chan struct{}), podStates: map[types.UID][]*v1.Pod{},
		deleted: map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactory(api, 0)
	pods, nodes := factory.Core().V1().Pods().Informer(), factory.Core().V1().Nodes().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(pod any) { h.addPodState(pod.(*v1.Pod)) },
		UpdateFunc: func(_, pod any) { h.addPodState(pod.(*v1.Pod)) },
		DeleteFunc: func(last any) {
			// Otherwise it is a cache.DeletedFinalStateUnknown: the last state was missed.
			if pod, ok := last.(*v1.Pod); ok {
				h.addPodState(pod)
				h.addDeletion(pod.UID)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(node any) { h.addNodeState(node.(*v1.Node)) },
		UpdateFunc: func(_, node any) { h.addNodeState(node.(*v1.Node)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(h.stop)
	t.Cleanup(h.stopWatch)
	return h
}

// stopWatch stops the watch. Further calls have no effect.
func (h *watchHistory) stopWatch() {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case <-h.stop:
	default:
		close(h.stop)
	}
}

func (h *watchHistory) addPodState(pod *v1.Pod) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.podStates[pod.UID] = append(h.podStates[pod.UID], pod)
}

func (h *watchHistory) addDeletion(uid types.UID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deleted[uid] = true
}

func (h *watchHistory) addNodeState(node *v1.Node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.nodeStates = append(h.nodeStates, node)
}

// violations returns the violations in all recorded states.
func (h *watchHistory) violations() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	violations := nodeViolations(h.nodeStates)
	for uid, states := range h.podStates {
		violations = append(violations, podViolations(states, h.deleted[uid])...)
	}
	slices.Sort(violations)
	return violations
}

// lastState returns the last recorded state of a pod; nil if there is none.
func (h *watchHistory) lastState(uid types.UID) *v1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	if states := h.podStates[uid]; len(states) > 0 {
		return states[len(states)-1]
	}
	return nil
}

// isDeleted reports whether the watch has reported the deletion of a pod.
func (h *watchHistory) isDeleted(uid types.UID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.deleted[uid]
}

// statesOf returns the recorded states of a pod.
func (h *watchHistory) statesOf(uid types.UID) []*v1.Pod {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.podStates[uid])
}

// countRunning returns the number of pods that run now and whose names have a prefix.
func (h *watchHistory) countRunning(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, states := range h.podStates {
		last := states[len(states)-1]
		if !h.deleted[uid] && strings.HasPrefix(last.Name, prefix) &&
			last.Status.Phase == v1.PodRunning {
			n++
		}
	}
	return n
}

// countPresent returns the number of pods that the API server has now, by a prefix of their names.
func (h *watchHistory) countPresent(prefix string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for uid, states := range h.podStates {
		if !h.deleted[uid] && strings.HasPrefix(states[0].Name, prefix) {
			n++
		}
	}
	return n
}

// countStates returns the number of recorded states of all pods.
func (h *watchHistory) countStates() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, states := range h.podStates {
		n += len(states)
	}
	return n
}

// nodeViolations returns a violation for each time that the node changed from ready to not ready.
func nodeViolations(states []*v1.Node) []string {
	var violations []string
	wasReady := false
	for _, n := range states {
		for _, c := range n.Status.Conditions {
			if c.Type != v1.NodeReady {
				continue
			}
			if wasReady && c.Status != v1.ConditionTrue {
				violations = append(violations, fmt.Sprintf("node is not ready: %s", c.Message))
			}
			wasReady = c.Status == v1.ConditionTrue
		}
	}
	return violations
}

// podViolations returns the violations in the recorded states of one pod.
func podViolations(states []*v1.Pod, deleted bool) []string {
	var violations []string
	last := states[len(states)-1]
	report := func(format string, args ...any) {
		violations = append(violations, last.Name+": "+fmt.Sprintf(format, args...))
	}
	for i := 1; i < len(states); i++ {
		before, after := states[i-1], states[i]
		from, to := before.Status.Phase, after.Status.Phase
		if hasTerminalPhase(before) && from != to || from == v1.PodRunning && to == v1.PodPending {
			report("the phase changed from %s to %s", from, to)
		}
		for _, c := range before.Status.Conditions {
			j := slices.IndexFunc(after.Status.Conditions, func(o v1.PodCondition) bool {
				return o.Type == c.Type
			})
			if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
				continue // they go, and their times change with their reasons
			}
			if j < 0 {
				report("condition %s disappeared", c.Type)
				continue
			}
			if before.Spec.NodeName == "" {
				continue // the scheduler's, which may write it from an older copy
			}
			now := after.Status.Conditions[j]
			if now.Status == c.Status && !now.LastTransitionTime.Equal(&c.LastTransitionTime) {
				report("condition %s stays %s, but its transition time is %v, it was %v", c.Type,
					c.Status, now.LastTransitionTime, c.LastTransitionTime)
			}
		}
		if conditionStatus(before, v1.PodReady) == v1.ConditionTrue &&
			conditionStatus(after, v1.PodReady) != v1.ConditionTrue && !hasCauseToBeUnready(after) {
			report("became unready without a cause: %+v", after.Status)
		}
		if totalRestarts(after) < totalRestarts(before) {
			report("the restart count fell from %d to %d", totalRestarts(before),
				totalRestarts(after))
		}
	}
	_, mirror := last.Annotations[v1.MirrorPodAnnotationKey]
	_, forced := last.Annotations[forcedAnnotation]
	if deleted && !mirror && !forced && last.Spec.NodeName != "" && !hasTerminalPhase(last) {
		report("was removed while %s", last.Status.Phase)
	}
	return violations
}

// forcedAnnotation marks pods that are force-deleted, so that their objects are removed before
// they end.
const forcedAnnotation = "seedlet.dev/forced"

func hasTerminalPhase(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// hasCauseToBeUnready reports whether a pod may change to not ready: it is being deleted, has a
// terminal phase, or one of its containers does not run or was restarted.
func hasCauseToBeUnready(p *v1.Pod) bool {
	if p.DeletionTimestamp != nil || hasTerminalPhase(p) {
		return true
	}
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Running == nil || c.RestartCount > 0
	})
}

func totalRestarts(p *v1.Pod) int {
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

// TestPodViolations gives podViolations one bug of each kind.
func TestPodViolations(t *testing.T) {
	since := time.Unix(1000, 0)
	state := func(phase v1.PodPhase, ready v1.ConditionStatus, at time.Time) *v1.Pod {
		p := &v1.Pod{Status: v1.PodStatus{Phase: phase,
			Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}},
			ContainerStatuses: []v1.ContainerStatus{
				{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}}}
		p.Spec.NodeName = "n"
		p.Status.Conditions[0].LastTransitionTime.Time = at
		return p
	}
	yes, no := v1.ConditionTrue, v1.ConditionFalse
	for _, c := range []struct {
		name    string
		states  []*v1.Pod
		deleted bool
		want    int
	}{
		{"no violation", []*v1.Pod{state(v1.PodPending, no, since), state(v1.PodRunning, yes,
			since.Add(1)), state(v1.PodFailed, no, since.Add(2))}, true, 0},
		{"a terminal phase changes", []*v1.Pod{state(v1.PodFailed, no, since),
			state(v1.PodRunning, no, since)}, false, 1},
		{"from Running to Pending", []*v1.Pod{state(v1.PodRunning, no, since),
			state(v1.PodPending, no, since)}, false, 1},
		{"unready without a cause", []*v1.Pod{state(v1.PodRunning, yes, since),
			state(v1.PodRunning, no, since.Add(time.Second))}, false, 1},
		{"the transition time changes", []*v1.Pod{state(v1.PodRunning, yes, since),
			state(v1.PodRunning, yes, since.Add(time.Second))}, false, 1},
		{"removed while it runs", []*v1.Pod{state(v1.PodRunning, yes, since)}, true, 1},
	} {
		if got := podViolations(c.states, c.deleted); len(got) != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
