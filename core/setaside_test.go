package core

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// lives runs agents on a node, one after the other: a panic ends one, and the boot event of the
// next one has the pod that the panic was about.
type lives struct {
	*testing.T
	*fakeNode
	panics map[string]int       // by UID
	until  map[string]time.Time // until when pods are set aside
}

// run advances the clock, and returns the UIDs of the pods over which agents have panicked.
func (l *lives) run(d time.Duration) (died []string) {
	for end := l.now.Add(d); l.now.Before(end); {
		survived := l.survives(func() { l.advance(end.Sub(l.now)) })
		for !survived { // the next one may panic at its start
			died = append(died, l.bury())
			survived = l.survives(l.restart)
		}
	}
	return died
}

// survives reports whether the agent does not panic while something is done.
func (l *lives) survives(do func()) (survived bool) {
	defer func() {
		if !survived {
			recover()
		}
	}()
	do()
	return true
}

// bury notes a panic for the next agent, and returns the pod that it is about.
func (l *lives) bury() string {
	l.Helper()
	uid := l.agent.CurrentPod()
	if uid == "" {
		l.Fatal("the panic is about no pod")
	}
	l.panics[uid]++
	l.apiServer.undelivered = nil
	l.now = l.now.Add(time.Second)
	if l.until == nil {
		l.until = map[string]time.Time{}
	}
	l.until[uid] = l.now.Add(10 * time.Second << (l.panics[uid] - 1))
	l.setAside = nil
	for _, uid := range slices.Sorted(maps.Keys(l.until)) {
		l.setAside = append(l.setAside, world.PodSetAside{UID: uid, Panics: l.panics[uid],
			Remaining: l.until[uid].Sub(l.now)})
	}
	return uid
}

func (l *lives) stored(name string) v1.PodStatus {
	return l.apiServer.objects["default/"+name].Status
}

// wrongAnswers lets the agent panic over the pod "h": the answer to its sandbox is that to a
// container. A port that gives one is broken; what matters is that the panic is about one pod.
func wrongAnswers(effect any) any {
	if e, ok := effect.(*runtimeapi.RunPodSandboxRequest); ok && e.Config.Metadata.Uid == "h" {
		return &runtimeapi.CreateContainerResponse{ContainerId: "c"}
	}
	return nil
}

// A pod over which the agent panics at each start is set aside for a growing time, and says so. All
// others are started, and heartbeats go on. Once the cause is gone the pod runs.
func TestPanicSetsPodAside(t *testing.T) {
	l := &lives{t, bootWithPods(map[string]string{"s.yaml": `{apiVersion: v1, kind: Pod,
		metadata: {name: static}, spec: {containers: [{name: s, image: i}]}}`}), map[string]int{}, nil}
	l.answer = wrongAnswers
	for _, name := range []string{"hostile", "a", "web"} {
		p := apiPodNamed(name, map[string]string{"hostile": "h"}[name]+strings.Trim(name, "hostile"))
		l.apiServer.put(p)
	}
	died := l.run(100 * time.Second)
	if len(died) != 4 || l.panics["h"] != 4 {
		t.Errorf("panics over %v, want four over h in 100s", died)
	}
	if names := l.sandboxNames(); strings.Join(names, " ") != "a static-n1 web" {
		t.Errorf("sandboxes of %v", names)
	}
	if got := l.stored("hostile"); got.Phase != v1.PodPending || got.Reason != reasonPanicked ||
		!strings.Contains(got.Message, "panicked 4 times") {
		t.Errorf("the pod that is set aside has status %s, %s, %q", got.Phase, got.Reason, got.Message)
	}
	if found := eventsWith(l.events, reasonPanicked); len(found) != 4 {
		t.Errorf("events %q", found)
	}
	if got := l.stored("web"); got.Phase != v1.PodRunning {
		t.Errorf("an ordinary pod is %s", got.Phase)
	}
	l.answer = nil
	l.restore(t)
	if died := l.run(90 * time.Second); len(died) > 0 {
		t.Fatalf("panics over %v", died)
	}
	if got := l.stored("hostile"); got.Phase != v1.PodRunning || got.Reason != "" ||
		got.Message != "" || len(l.agent.state.SetAside) > 0 {
		t.Errorf("after the time: status %s, %q, %q", got.Phase, got.Reason, got.Message)
	}
}

// A pod that runs keeps running while it is set aside: nothing of it is stopped, removed or
// written, no pod takes its name, and its deletion waits.
func TestSetAsidePodKeepsRunning(t *testing.T) {
	l := &lives{t, bootWithPods(nil, apiPodNamed("web", "u1"), apiPodNamed("x", "u2")),
		map[string]int{}, nil}
	l.run(10 * time.Second)
	l.podDirs = []string{"u1", "u2"}
	l.takeCalls()
	l.setAside = []world.PodSetAside{{UID: "u1", Panics: 3, Remaining: 3 * time.Minute}}
	l.restart()
	l.advance(time.Minute)
	if got := l.stored("web"); got.Phase != v1.PodRunning || got.Reason != reasonPanicked ||
		len(got.ContainerStatuses) != 1 || got.ContainerStatuses[0].State.Running == nil {
		t.Errorf("the status has become %+v", got)
	}
	l.event(world.Event{Body: &world.PodsRequest{}})
	if len(l.pods) != 2 || l.pods[0].Status.Reason != reasonPanicked {
		t.Errorf("%d pods are served, the first with %+v", len(l.pods), l.pods[0].Status)
	}
	l.markDeleted("default/web", 1)
	l.advance(time.Minute)
	l.apiServer.remove("default/web")
	l.apiServer.put(apiPodNamed("web", "u3"))
	l.restore(t)
	l.advance(30 * time.Second)
	if calls := l.takeCalls(); calls != "" || len(l.sandboxes) != 2 {
		t.Errorf("while it is set aside: %s", calls)
	}
	l.advance(2 * time.Minute)
	if calls := l.takeCalls(); !strings.HasPrefix(calls, "stop c") || len(l.sandboxes) != 2 ||
		l.stored("web").Phase != v1.PodRunning {
		t.Errorf("afterwards: %s", calls)
	}
}

// A restart with a pod that was set aside of which nothing is wrong any more changes nothing.
func TestReleaseChangesNothing(t *testing.T) {
	l := &lives{t, bootWithPods(nil, apiPodNamed("web", "u1")), map[string]int{}, nil}
	l.run(10 * time.Second)
	before := l.stored("web")
	l.podDirs = []string{"u1"}
	l.takeCalls()
	for _, silent := range []bool{false, true} {
		l.setAside = []world.PodSetAside{{UID: "u1", Panics: 1, Remaining: 10 * time.Second,
			Silent: silent}}
		l.restart()
		written := len(l.apiServer.writes)
		l.advance(9 * time.Second)
		if writes := l.apiServer.writes[written:]; silent && len(writes) > 0 {
			t.Errorf("a silent one is written: %v", writes)
		}
		l.advance(time.Minute)
		after := l.stored("web")
		if calls := l.takeCalls(); calls != "" || after.Reason != "" ||
			after.StartTime.Time != before.StartTime.Time ||
			after.ContainerStatuses[0].ContainerID != before.ContainerStatuses[0].ContainerID {
			t.Errorf("silent %v: %s; status %+v", silent, calls, after)
		}
	}
}

// A panic over what a pod shares with others, or what is done for it beside its own plan, is about
// that pod: of those that wait for the same thing about one after the other.
func TestPanicOutsidePodPlan(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*lives, *v1.Pod) // of pods a and b
		answer func(*lives, any) any
		want   string
	}{
		{"image", func(_ *lives, p *v1.Pod) { p.Spec.Containers[0].Image = "bad" },
			func(_ *lives, effect any) any {
				e, ok := effect.(*runtimeapi.ImageStatusRequest)
				if ok && e.Image.Image == "bad" {
					return &runtimeapi.ImageStatusResponse{}
				}
				if e, ok := effect.(*runtimeapi.PullImageRequest); ok && e.Image.Image == "bad" {
					return (*runtimeapi.PullImageResponse)(nil)
				}
				return nil
			}, "a b"},
		{"log rotation", func(*lives, *v1.Pod) {}, func(_ *lives, effect any) any {
			if m, ok := effect.(*world.MeasureFiles); ok { // all logs are full
				return &world.FilesMeasured{Sizes: slices.Repeat([]int64{1 << 30}, len(m.Paths))}
			}
			e, ok := effect.(*world.ListDir)
			if ok && strings.HasPrefix(e.Path, "/var/log/pods/default_b_") {
				return &world.Done{}
			}
			return nil
		}, "b"},
		{"object", func(l *lives, p *v1.Pod) {
			l.detectByReads = true
			p.Spec.Containers[0].EnvFrom = []v1.EnvFromSource{{ConfigMapRef: &v1.ConfigMapEnvSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "m"}}}}
		}, func(_ *lives, effect any) any {
			e, ok := effect.(*world.GetObject)
			if ok && e.Resource == world.ResourceConfigMaps {
				return (*world.ObjectRead)(nil)
			}
			return nil
		}, "a b"},
		{"housekeeping", func(l *lives, p *v1.Pod) { l.podDirs = []string{"a", "b", "gone"} },
			func(l *lives, effect any) any {
				if e, ok := effect.(*world.Unmount); ok && strings.HasSuffix(e.Path, "/gone") {
					l.agent.state.Housekeeping.Candidates = nil // no answer makes it panic
					return world.Errorf(world.KindInternal, "Unmount", "no such thing")
				}
				return nil
			}, "gone"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := &lives{t, bootWithPods(nil, apiPodNamed("web", "u1")), map[string]int{}, nil}
			a, b := apiPodNamed("a", "a"), apiPodNamed("b", "b")
			test.change(l, a)
			test.change(l, b)
			l.restart()
			l.answer = func(effect any) any { return test.answer(l, effect) }
			l.apiServer.put(a)
			l.apiServer.put(b)
			died := l.run(5 * time.Minute)
			slices.Sort(died)
			if got := strings.Join(slices.Compact(died), " "); got != test.want {
				t.Errorf("panics over %q, want %q", got, test.want)
			}
			if got := l.stored("web"); got.Phase != v1.PodRunning {
				t.Errorf("an ordinary pod is %s", got.Phase)
			}
		})
	}
}

// Between steps, and in steps for no pod, a panic is about no pod.
func TestNoCurrentPodBetweenSteps(t *testing.T) {
	n := bootWithPods(nil, apiPodNamed("web", "u1"))
	if uid := n.agent.CurrentPod(); uid != "" {
		t.Errorf("the current pod is %q", uid)
	}
}

// A pod that is set aside holds its resources, unless it has ended.
func TestPodSetAsideHoldsResources(t *testing.T) {
	n := bootWithPods(nil, withRequests(apiPodNamed("a", "u1"), "1", 0))
	n.setAside = []world.PodSetAside{{UID: "u1", Panics: 1, Remaining: time.Hour}}
	n.restart()
	n.advance(5 * time.Second)
	n.apiServer.put(withRequests(apiPodNamed("b", "u2"), "1500m", 0))
	if n.advance(5 * time.Second); n.apiServer.objects["default/b"].Status.Reason != "OutOfcpu" {
		t.Errorf("beside it: %+v", n.apiServer.objects["default/b"].Status)
	}
	ended := n.apiServer.objects["default/a"].DeepCopy()
	ended.Status.Phase = v1.PodFailed
	n.apiServer.put(ended)
	n.apiServer.put(withRequests(apiPodNamed("c", "u3"), "1500m", 0))
	if n.advance(5 * time.Second); n.apiServer.objects["default/c"].Status.Reason != "" {
		t.Errorf("after its end: %+v", n.apiServer.objects["default/c"].Status)
	}
}
