package core

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/pod"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Plans that enqueue each other without end are a broken invariant, and are detected.
func TestEndlessPlansAreDetected(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var q planQueue
	x, y := timer.Key{Component: "x"}, timer.Key{Component: "y"}
	q.enqueue(x)
	for range 1_000_000 {
		if key, _ := q.dequeue(); key == x {
			q.enqueue(y)
		} else {
			q.enqueue(x)
		}
	}
}

// A fact that all pods depend on is not planned for all of them in one step: what one step leaves
// is due at once, also for an agent that is restored in between, and in the end no pod is left out.
func TestPlansAreDeferred(t *testing.T) {
	const pods = 3*perStepMax + 7
	n := newNode(nil)
	n.apiServer, n.stepsMax, n.podsMax = newServer(), 100_000, pods
	n.machine.Addresses = []string{"192.0.2.1"}
	for i := range pods {
		name := fmt.Sprintf("p%03d", i)
		n.apiServer.put(apiPodNamed(name, name))
	}
	n.restart()
	n.advance(20 * time.Second)
	n.apiServer.undelivered = nil
	mostPatches, deferred := 0, 0
	n.measure = func(ev world.Event, step func(world.Event) []world.Effect) ([]world.Effect, bool) {
		effects, patches := slices.Clone(step(ev)), 0
		for _, e := range effects {
			if _, isPatch := e.Body.(*world.PatchObject); isPatch {
				patches++
			}
		}
		mostPatches = max(mostPatches, patches)
		if wake := n.agent.NextWake(); !wake.IsZero() && !wake.After(n.now) {
			deferred++
			n.restore(t)
		}
		return effects, false
	}
	n.machine.Addresses = []string{"192.0.2.9"}
	n.advance(20 * time.Second)
	if mostPatches == 0 || mostPatches > 2*perStepMax || deferred < 2 {
		t.Errorf("one step writes %d statuses; %d steps leave something", mostPatches, deferred)
	}
	for name, p := range n.apiServer.objects {
		if p.Status.HostIP != "192.0.2.9" {
			t.Errorf("%s has the address %q", name, p.Status.HostIP)
		}
	}
}

// A step that has built much plans no further pod, and those that are left are planned at once, in
// the order in which they were due. A restored agent does the same, though it keeps no checks.
func TestWorkOfStepIsBounded(t *testing.T) {
	const pods, containers, keys = 6, 2, 15_000
	drive := func(restores bool) (works []int, n *fakeNode) {
		n = newNode(nil)
		n.apiServer, n.stepsMax = newServer(), 100_000
		putVariablesOfContainers(n, containers, keys, v1.EnvVar{Name: "A", Value: "$(A)"})
		repeatPod(n, pods)
		changeObjectAfter(n, 5*time.Second)
		n.apiServer.undelivered = nil
		n.measure = func(ev world.Event, step func(world.Event) []world.Effect) ([]world.Effect, bool) {
			effects := slices.Clone(step(ev))
			works = append(works, n.agent.effects.Work())
			if restores && n.agent.state.PodsLeft {
				n.restore(t)
			}
			return effects, false
		}
		n.restart()
		n.advance(10 * time.Second)
		return works, n
	}
	works, n := drive(false)
	each := containers * keys * budget.ExpandedVariable
	if most := slices.Max(works); most < each || most > workPerStepMax+2*each {
		t.Errorf("one step builds %d bytes, one pod %d", most, each)
	}
	large := 0
	for _, work := range works {
		if work >= each {
			large++
		}
	}
	if large < 2*pods {
		t.Errorf("%d steps check a pod; each of %d is checked at first and after a change", large, pods)
	}
	again, _ := drive(true)
	if !slices.Equal(again, works) {
		t.Errorf("a restored agent builds %v, another one %v", again, works)
	}
	for i := range pods - 1 {
		if p := n.agent.state.Pods[fmt.Sprint("h", i)]; p == nil || len(p.Problems) > 0 {
			t.Errorf("the pod h%d has problems: %+v", i, p)
		}
	}
}

// A pod with many events does not keep those waiting that a step has left: it waits behind them.
func TestPodsThatAreLeftComeFirst(t *testing.T) {
	n := newNode(nil)
	n.restart()
	n.advance(time.Minute)
	a := n.agent
	key := func(name string) timer.Key { return timer.Key{Component: pod.Component, Name: name} }
	a.state.PodsLeft = true
	a.state.Timers.Set(key("b"), n.now.Add(-time.Second))
	a.state.Timers.Set(key("c"), n.now)
	busy, node := key("a"), timer.Key{Component: "x"}
	a.queue.enqueue(busy)
	a.queue.enqueue(node)
	a.deferPlans(n.now.Add(time.Millisecond))
	a.enqueueDueTimers(n.now.Add(time.Millisecond))
	if want := []timer.Key{node, key("b"), key("c"), busy}; !slices.Equal(a.queue.keys, want) {
		t.Errorf("the order is %v, want %v", a.queue.keys, want)
	}
	if a.state.PodsLeft {
		t.Error("pods still count as left")
	}
	a.effects.CountWork(workPerStepMax + 1)
	if a.leavesPod(key("first"), n.now) {
		t.Error("a step plans no pod at all")
	}
	for _, left := range []timer.Key{key("c"), key("b")} {
		if !a.leavesPod(left, n.now.Add(time.Second)) || !a.state.PodsLeft {
			t.Errorf("%v is planned beyond the bound", left)
		}
	}
	if a.leavesPod(node, n.now) {
		t.Error("what is for no pod waits")
	}
	if first, since, _ := a.state.Timers.PopTime(n.now); first != key("b") ||
		!since.Equal(n.now.Add(-time.Second)) {
		t.Errorf("%v is due since %v, before the one that waits longer", first, since)
	}
}

// What is beyond the bound is due at once, and operations that expire together do so in several
// steps.
func TestStepIsBounded(t *testing.T) {
	n := newNode(nil)
	n.restart()
	n.advance(time.Minute)
	a := n.agent
	for i := range perStepMax + 1 {
		a.queue.enqueue(timer.Key{Component: "x", Name: fmt.Sprintf("%03d", i)})
	}
	due := a.state.Timers.Len()
	a.deferPlans(n.now)
	if left := len(a.queue.keys); left != perStepMax || a.state.Timers.Len() != due+1 ||
		!a.NextWake().Equal(n.now) {
		t.Errorf("%d are planned, %d more are due at %v", left, a.state.Timers.Len()-due, a.NextWake())
	}
	n = newNode(nil)
	n.restart()
	n.advance(time.Minute)
	a = n.agent
	var effects op.Effects
	effects.Reset(&a.state.Ops, n.now)
	before := len(a.state.Ops.Records)
	for i := range 3 * perStepMax {
		owner := timer.Key{Component: pod.Component, Name: fmt.Sprint(i)}
		effects.Issue(owner, "", time.Millisecond, &world.MakeDir{Path: "/x"})
	}
	a.Step(world.Event{Time: n.now.Add(time.Millisecond)})
	if left := len(a.state.Ops.Records) - before; left < 2*perStepMax ||
		a.NextWake().After(n.now.Add(time.Millisecond)) {
		t.Errorf("%d operations are left, the next step is at %v", left, a.NextWake())
	}
}

// A pod that came to hold a name, and frees it before it is planned, was found to hold it by the
// one that waits, which is planned then.
func TestNamesakeThatHeldBetweenPlans(t *testing.T) {
	a := &Agent{podUIDsByName: map[string][]string{"ns/web": {"u1", "u2"}}}
	a.state.Pods = map[string]*pod.Pod{}
	for _, uid := range []string{"u1", "u2"} {
		a.state.Pods[uid] = &pod.Pod{UID: uid, Namespace: "ns", Name: "web", Stage: pod.Terminated}
	}
	holder := a.state.Pods["u1"]
	holder.Op = 1
	if !a.isNameTaken(a.state.Pods["u2"]) {
		t.Fatal("the name is free")
	}
	holder.Op = 0
	want := []timer.Key{{Component: pod.Component, Name: "u2"}}
	if a.enqueueNamesakes(holder); !slices.Equal(a.queue.keys, want) {
		t.Errorf("planned %v, want %v", a.queue.keys, want)
	}
}

// The name of a pod that is set aside is free once a relist has nothing of that pod any more.
func TestNameOfSetAsidePodIsFreed(t *testing.T) {
	for _, isGone := range []bool{true, false} {
		a := &Agent{podUIDsByName: map[string][]string{"ns/web": {"u2"}}}
		a.state.Pods = map[string]*pod.Pod{"u2": {UID: "u2", Namespace: "ns", Name: "web"}}
		a.state.SetAside = map[string]*SetAside{"u1": {FullName: "ns/web"}, "u3": {}}
		if !a.isNameTaken(a.state.Pods["u2"]) {
			t.Fatal("the name is free")
		}
		names := a.forgetSetAsideObjects()
		if !isGone {
			a.state.SetAside["u1"].FullName = "ns/web"
		}
		if a.enqueueFreedNames(names); a.isNameTaken(a.state.Pods["u2"]) == isGone ||
			(len(a.queue.keys) == 1) != isGone {
			t.Errorf("gone %v: planned %v", isGone, a.queue.keys)
		}
	}
}

// Pods that wait for the name of another are planned when that one holds the name no more, also if
// an event, and no plan of the other, has freed it. They do not have each other planned.
func TestNamesakeIsPlanned(t *testing.T) {
	a := &Agent{podUIDsByName: map[string][]string{"ns/web": {"u1", "u2", "u3"}}}
	a.state.Pods = map[string]*pod.Pod{}
	for _, uid := range a.podUIDsByName["ns/web"] {
		a.state.Pods[uid] = &pod.Pod{UID: uid, Namespace: "ns", Name: "web", Stage: pod.Terminated,
			WaitingForName: uid != "u1"}
	}
	a.state.Pods["u1"].HeldName = true
	key := func(uid string) timer.Key { return timer.Key{Component: pod.Component, Name: uid} }
	for uid, want := range map[string][]timer.Key{"u1": {key("u2"), key("u3")}, "u2": nil, "u3": nil} {
		a.queue = planQueue{}
		if a.enqueueNamesakes(a.state.Pods[uid]); !slices.Equal(a.queue.keys, want) {
			t.Errorf("%s: planned %v, want %v", uid, a.queue.keys, want)
		}
	}
	a.queue = planQueue{}
	if a.enqueueNamesakes(a.state.Pods["u1"]); len(a.queue.keys) != 0 {
		t.Errorf("planned again: %v", a.queue.keys)
	}
}
