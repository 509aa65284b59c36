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

// chronicle is every state that the API server has had of each pod, as a watch tells it; but for
// what it told nobody while it was away.
type chronicle struct {
	stop chan struct{}

	mu    sync.Mutex
	pods  map[types.UID][]*v1.Pod
	gone  map[types.UID]bool // those whose removal was seen
	nodes []*v1.Node
}

// chronicles notes until the test ends.
func chronicles(t testing.TB, api kubernetes.Interface) *chronicle {
	t.Helper()
	w := &chronicle{stop: make(chan struct{}), pods: map[types.UID][]*v1.Pod{},
		gone: map[types.UID]bool{}}
	factory := informers.NewSharedInformerFactory(api, 0)
	pods, nodes := factory.Core().V1().Pods().Informer(), factory.Core().V1().Nodes().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { w.note(is.(*v1.Pod)) },
		UpdateFunc: func(_, is any) { w.note(is.(*v1.Pod)) },
		DeleteFunc: func(was any) {
			if pod, is := was.(*v1.Pod); is { // else nobody has seen its last state
				w.note(pod)
				w.noteGone(pod.UID)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(is any) { w.noteNode(is.(*v1.Node)) },
		UpdateFunc: func(_, is any) { w.noteNode(is.(*v1.Node)) },
	})
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(w.stop)
	t.Cleanup(w.done)
	return w
}

// done ends the watch.
func (w *chronicle) done() {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stop:
	default:
		close(w.stop)
	}
}

func (w *chronicle) note(pod *v1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pods[pod.UID] = append(w.pods[pod.UID], pod)
}

func (w *chronicle) noteGone(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone[uid] = true
}

func (w *chronicle) noteNode(node *v1.Node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = append(w.nodes, node)
}

// problems are what is wrong with everything that was noted.
func (w *chronicle) problems() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	problems := nodeProblems(w.nodes)
	for uid, states := range w.pods {
		problems = append(problems, podProblems(states, w.gone[uid])...)
	}
	slices.Sort(problems)
	return problems
}

// last is the newest state of a pod that was seen; nil if none was.
func (w *chronicle) last(uid types.UID) *v1.Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	if states := w.pods[uid]; len(states) > 0 {
		return states[len(states)-1]
	}
	return nil
}

// running counts the pods that run now and whose names begin so.
func (w *chronicle) running(prefix string) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for uid, states := range w.pods {
		last := states[len(states)-1]
		if !w.gone[uid] && strings.HasPrefix(last.Name, prefix) &&
			last.Status.Phase == v1.PodRunning {
			n++
		}
	}
	return n
}

// changes counts the states of all pods.
func (w *chronicle) changes() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, states := range w.pods {
		n += len(states)
	}
	return n
}

// nodeProblems says whether the node was not ready at any time after it once was.
func nodeProblems(states []*v1.Node) []string {
	var problems []string
	was := false
	for _, n := range states {
		for _, c := range n.Status.Conditions {
			if c.Type != v1.NodeReady {
				continue
			}
			if was && c.Status != v1.ConditionTrue {
				problems = append(problems, fmt.Sprintf("node is not ready: %s", c.Message))
			}
			was = c.Status == v1.ConditionTrue
		}
	}
	return problems
}

// podProblems says what is wrong with the life of one pod.
func podProblems(states []*v1.Pod, gone bool) []string {
	var problems []string
	last := states[len(states)-1]
	complain := func(format string, args ...any) {
		problems = append(problems, last.Name+": "+fmt.Sprintf(format, args...))
	}
	for i := 1; i < len(states); i++ {
		was, is := states[i-1], states[i]
		from, to := was.Status.Phase, is.Status.Phase
		if over(was) && from != to || from == v1.PodRunning && to == v1.PodPending {
			complain("went from %s to %s", from, to)
		}
		for _, c := range was.Status.Conditions {
			j := slices.IndexFunc(is.Status.Conditions, func(o v1.PodCondition) bool {
				return o.Type == c.Type
			})
			if j < 0 {
				complain("condition %s is gone", c.Type)
				continue
			}
			now := is.Status.Conditions[j]
			if now.Status == c.Status && !now.LastTransitionTime.Equal(&c.LastTransitionTime) {
				complain("condition %s stays %s, but since %v, not %v", c.Type, c.Status,
					now.LastTransitionTime, c.LastTransitionTime)
			}
		}
		if condition(was, v1.PodReady) == v1.ConditionTrue &&
			condition(is, v1.PodReady) != v1.ConditionTrue && !mayUnready(is) {
			complain("is not ready any more, for no cause: %+v", is.Status)
		}
		if restartsOf(is) < restartsOf(was) {
			complain("was restarted %d times, then %d", restartsOf(was), restartsOf(is))
		}
	}
	_, mirror := last.Annotations[v1.MirrorPodAnnotationKey]
	_, forced := last.Annotations[forcedAnnotation]
	if gone && !mirror && !forced && last.Spec.NodeName != "" && !over(last) {
		complain("was removed while %s", last.Status.Phase)
	}
	return problems
}

// forcedAnnotation is on pods whose end nobody waits for.
const forcedAnnotation = "seedlet.dev/forced"

func over(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// mayUnready says whether there is a cause for a pod not to be ready: it ends, or a container of
// it does not run.
func mayUnready(p *v1.Pod) bool {
	if p.DeletionTimestamp != nil || over(p) {
		return true
	}
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Running == nil || c.RestartCount > 0
	})
}

func restartsOf(p *v1.Pod) int {
	n := 0
	for _, c := range p.Status.ContainerStatuses {
		n += int(c.RestartCount)
	}
	return n
}

// The judges are shown one bug of each kind.
func TestPodProblems(t *testing.T) {
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
		name   string
		states []*v1.Pod
		gone   bool
		want   int
	}{
		{"a good life", []*v1.Pod{state(v1.PodPending, no, since), state(v1.PodRunning, yes,
			since.Add(1)), state(v1.PodFailed, no, since.Add(2))}, true, 0},
		{"back from the end", []*v1.Pod{state(v1.PodFailed, no, since),
			state(v1.PodRunning, no, since)}, false, 1},
		{"pending again", []*v1.Pod{state(v1.PodRunning, no, since),
			state(v1.PodPending, no, since)}, false, 1},
		{"a flip", []*v1.Pod{state(v1.PodRunning, yes, since),
			state(v1.PodRunning, no, since.Add(time.Second))}, false, 1},
		{"another time", []*v1.Pod{state(v1.PodRunning, yes, since),
			state(v1.PodRunning, yes, since.Add(time.Second))}, false, 1},
		{"removed while it runs", []*v1.Pod{state(v1.PodRunning, yes, since)}, true, 1},
	} {
		if got := podProblems(c.states, c.gone); len(got) != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
