package oracle

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

// measure has the agent observe the node, with so much memory available.
func (s *script) measure(id world.OpID, available int64) {
	s.ask(id, &world.MeasureNode{})
	s.answer(id, &world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 1000 - available})
}

// evictForSoft evicts the pod "u1" for a soft threshold, which leaves it five minutes.
func (s *script) evictForSoft() run {
	r := s.evictFor(150)
	r.change(truth.StopRequested, "")
	return r
}

// evictFor evicts the pod "u1" for an amount of memory: below 100 for a hard threshold, below 200
// for a soft one.
func (s *script) evictFor(available int64) run {
	o := &s.model.opts
	o.Pressure = Pressure{Transition: 10 * time.Minute, GraceMax: 5 * time.Minute,
		Thresholds: []PressureThreshold{{Signal: "memory.available", Amount: 100},
			{Signal: "memory.available", Amount: 200, Grace: 5 * time.Second}}}
	s.model.pressure = newPressureModel(&o.Pressure)
	o.NodeUsage = func() world.NodeMeasured { return world.NodeMeasured{} }
	o.Filesystem = func(string) world.FilesystemMeasured { return world.FilesystemMeasured{} }
	p := spec("u1", always, "app")
	grace := int64(300)
	p.Spec.TerminationGracePeriodSeconds = &grace
	s.AgentStarted(s.now)
	s.setDesired(p)
	r := s.start(s.sandbox("u1", 0), "app", 0)
	s.wait(60)
	s.measure(1, available)
	s.wait(10)
	s.measure(2, available)
	for id := range world.OpID(usageTriesMax) {
		s.ask(10+id, &runtimeapi.ListPodSandboxStatsRequest{})
	}
	s.addFact(truth.EventRecorded, truth.Fact{Reason: reasonEvicted, Message: lowPrefix + "memory. "})
	return r
}

// A hard threshold that is observed leaves the victim of a soft one no time.
func TestVictimOfSoftThreshold(t *testing.T) {
	for _, c := range []struct {
		name string
		want bool
		then func(s *script, r run)
	}{
		{"no hard threshold is met", false, func(s *script, _ run) { s.measure(20, 150) }},
		{"one is met", true, func(s *script, _ run) { s.measure(20, 50) }},
		{"one is met, and the victim ends", false, func(s *script, r run) {
			s.measure(20, 50)
			s.wait(2)
			r.kill()
		}},
		{"one is met, and the agent is restarted", false, func(s *script, _ run) {
			s.measure(20, 50)
			s.AgentStarted(s.now)
		}},
	} {
		s := newScript()
		r := s.evictForSoft()
		s.wait(60)
		c.then(s, r)
		s.wait(victimEndBound.Seconds() + 1)
		s.CheckServed(s.now, nil)
		if strings.Contains(s.violated(), "node-pressure") != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
		if strings.Contains(s.violated(), "grace-period") {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

// No other pod is evicted for a soft threshold while a pod that an earlier agent has evicted has
// time to end.
func TestVictimOfEarlierAgent(t *testing.T) {
	const soft, hard = 150, 50
	for _, c := range []struct {
		name        string
		want        bool
		evicted, is int64 // the memory that is available at the eviction, and after it
		seconds     int   // after the eviction
		then        func(victim run)
	}{
		{"it has time", false, soft, soft, 405, func(run) {}},
		{"it has had its time", true, soft, soft, 420, func(run) {}},
		{"its grace period was shortened before", false, soft, soft, 405, func(victim run) {
			victim.script.GracePeriodShortened("u1", time.Second)
		}},
		{"its grace period was never longer", true, soft, soft, 140, func(victim run) {
			p := victim.script.model.pods["u1"]
			p.minGrace, p.maxGrace = 20*time.Second, 20*time.Second
		}},
		{"it was evicted for a hard threshold", true, hard, soft, 120, func(run) {}},
		{"it has just ended", false, soft, soft, 80, run.kill},
		{"it has ended", true, soft, soft, 90, run.kill},
		{"a hard threshold is met", true, soft, hard, 90, func(run) {}},
	} {
		s := newScript()
		victim := s.evictFor(c.evicted)
		s.restartAgent()
		s.addNamed("u2", "other")
		s.start(s.sandbox("u2", 0), "app", 0)
		c.then(victim)
		s.model.opts.NodeUsage = func() world.NodeMeasured {
			return world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 1000 - c.is}
		}
		for range c.seconds {
			s.wait(1)
			s.model.containersListedAt = s.now
			s.CheckServed(s.now, nil)
		}
		if strings.Contains(s.violated(), "node-pressure") != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

// askToStop has the agent ask the runtime to stop a container.
func (r run) askToStop(id world.OpID, seconds int64) {
	r.script.ask(id, &runtimeapi.StopContainerRequest{ContainerId: r.fact.ContainerID,
		Timeout: seconds})
}

// A victim has as long as the threshold leaves it, and a pod over a limit of its own has a second.
func TestGraceOfEvictedPods(t *testing.T) {
	evicted := func(available int64) func(*script) run {
		return func(s *script) run { return s.evictFor(available) }
	}
	limit := func(s *script) run {
		r, _ := startLimitedPod(s, v1.StorageMediumDefault, 0)
		s.addFact(truth.EventRecorded, truth.Fact{Reason: reasonEvicted,
			Message: "Usage of EmptyDir volume \"data\" exceeds the limit \"1Mi\". "})
		return r
	}
	for _, c := range []struct {
		name    string
		want    string
		evict   func(*script) run
		seconds int64
	}{
		{"of a soft threshold", "", evicted(150), 300},
		{"of a soft threshold, longer", "node-pressure", evicted(150), 301},
		{"of a hard threshold", "", evicted(50), 2},
		{"of a hard threshold, longer", "node-pressure", evicted(50), 3},
		{"over its own limit", "", limit, 2},
		{"over its own limit, longer", "eviction", limit, 8},
	} {
		s := newScript()
		r := c.evict(s)
		r.askToStop(50, c.seconds)
		if got := s.violated(); got != c.want {
			t.Errorf("%s: violated %q, want %q: %v", c.name, got, c.want, s.Violations())
		}
	}
}

// An observation that was asked for before another one failed, or before something was removed,
// leads to no victim.
func TestStaleObservations(t *testing.T) {
	remove := func(s *script) {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ImageRemoved, Image: "old:1", Bytes: 10})
	}
	starts := func(s *script) {
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.EventRecorded, Reason: reasonReclaims})
	}
	fail := func(s *script) {
		s.ask(30, &world.MeasureFilesystem{Path: "/images"})
		s.model.pressure.asked[30] = askedUsage{at: s.now, deadline: s.now.Add(time.Second),
			source: fromImagefs}
		s.answer(30, world.Errorf(world.KindInternal, "MeasureFilesystem", "failed"))
	}
	for _, c := range []struct {
		name string
		want bool
		then func(s *script)
	}{
		{"nothing happens", false, func(*script) {}},
		{"the next one fails", true, fail},
		{"an image is removed for it", true, func(s *script) { starts(s); remove(s) }},
		{"an image is removed for another reason", false, remove},
		{"an image is removed while the pods are observed", false, func(s *script) {
			starts(s)
			s.ask(31, &runtimeapi.ListPodSandboxStatsRequest{})
			remove(s)
		}},
		{"the next one fails, and one more does not", false, func(s *script) {
			fail(s)
			s.measureDisk(fromImagefs, 100)
		}},
		{"a pod over its own limit has ended", true, func(s *script) {
			s.addFact(truth.EventRecorded, truth.Fact{PodUID: "u2", Reason: reasonEvicted,
				Message: "over its limit"})
			for _, c := range s.model.pods["u2"].containers {
				s.addFact(truth.ContainerRemoved, truth.Fact{PodUID: "u2", ContainerID: c.id,
					Container: c.name})
			}
			s.wait(2)
		}},
	} {
		s := newScript()
		s.setDisks()
		s.beginImages(70, 5)
		s.setDesired(spec("u2", v1.RestartPolicyNever, "app"))
		s.start(s.sandbox("u2", 0), "app", 0).exit(0, truth.CauseSelf)
		s.measureDisk(fromNodefs, 300)
		s.measureDisk(fromImagefs, 100)
		c.then(s)
		n := &s.model.pressure
		f := n.findUsedSample(s.model.pods["u2"], fromImagefs, s.now)
		if (f != nil) != c.want {
			t.Errorf("%s: %v", c.name, f)
		}
	}
}

// exceedLimit has the agent evict a pod for a limit of its own.
func (s *script) exceedLimit(uid string) {
	s.addFact(truth.EventRecorded, truth.Fact{PodUID: uid, Reason: reasonEvicted,
		Message: "over its limit"})
}

// dropRun removes the container of a pod, whose writable layer the runtime keeps.
func (s *script) dropRun(uid string) {
	c := s.model.pods[uid].containers[0]
	s.addFact(truth.ContainerRemoved, truth.Fact{PodUID: uid, ContainerID: c.id, Container: c.name,
		Bytes: 10})
}

// freeLayer has the runtime free the writable layer of a container that was removed.
func (s *script) freeLayer(uid string) {
	s.addFact(truth.LayerFreed, truth.Fact{PodUID: uid, Bytes: 10})
}

// measureDisks has the agent observe that both disks are short.
func (s *script) measureDisks() {
	s.measureDisk(fromNodefs, 100)
	s.measureDisk(fromImagefs, 100)
}

// endOverLimit has the pod "u2" end some seconds after it was found to be over its limit, and after
// something else. The runtime frees its layer once the disks were observed.
func endOverLimit(seconds float64, first func(*script)) func(*script) {
	return func(s *script) {
		s.measureDisks()
		s.exceedLimit("u2")
		if first != nil {
			first(s)
		}
		s.wait(seconds)
		s.dropRun("u2")
		s.wait(1)
		s.measureDisks()
		s.freeLayer("u2")
		s.wait(2)
	}
}

// overLimitCase is a script, and whether the last observation of a source must not lead to a victim
// after it.
type overLimitCase struct {
	name   string
	want   bool
	source string
	then   func(s *script)
}

func runOverLimitCases(t *testing.T, cases []overLimitCase) {
	t.Helper()
	for _, c := range cases {
		s := newScript()
		s.setDisks()
		s.AgentStarted(s.now)
		for _, uid := range []string{"u1", "u2", "u3"} {
			p := spec(uid, never, "app")
			p.Name = uid
			s.setDesired(p)
			s.start(s.sandbox(uid, 0), "app", 0).exit(0, truth.CauseSelf)
		}
		s.wait(60)
		c.then(s)
		f := s.model.pressure.findUsedSample(s.model.pods["u3"], c.source, s.now)
		if (f != nil) != c.want {
			t.Errorf("%s: %v", c.name, f)
		}
	}
}

// What a pod over a limit of its own has given back since an observation counts for the file system
// that it was on.
func TestFreedByPodOverItsLimit(t *testing.T) {
	runOverLimitCases(t, []overLimitCase{
		{"its layer is freed", true, fromImagefs, endOverLimit(5, nil)},
		{"its layer is freed, on another file system", false, fromNodefs, endOverLimit(5, nil)},
		{"its layer is freed just now", false, fromImagefs, func(s *script) {
			endOverLimit(5, nil)(s)
			s.measureDisks()
			s.freeLayer("u2")
			s.wait(0.5)
		}},
		{"its layer was freed before", false, fromImagefs, func(s *script) {
			endOverLimit(5, nil)(s)
			s.measureDisks()
		}},
		{"its container is removed", true, fromNodefs, func(s *script) {
			s.exceedLimit("u2")
			s.measureDisks()
			s.dropRun("u2")
			s.wait(2)
		}},
	})
}

// The agent does not wait for one pod over its limit after the other.
func TestLongWaitForPodsOverTheirLimits(t *testing.T) {
	runOverLimitCases(t, []overLimitCase{
		{"half a minute after it was found", true, fromImagefs, endOverLimit(30, nil)},
		{"half a minute after it was found, on a disk that was short before", true, fromImagefs,
			func(s *script) {
				s.measureDisks()
				s.wait(5)
				endOverLimit(30, nil)(s)
			}},
		{"longer after it was found", false, fromImagefs, endOverLimit(32, nil)},
		{"longer after another pod was found", false, fromImagefs, func(s *script) {
			s.measureDisks()
			s.exceedLimit("u1")
			s.wait(5)
			endOverLimit(27, nil)(s)
		}},
		{"longer, and another pod was evicted for the disk", true, fromImagefs,
			endOverLimit(27, func(s *script) {
				s.wait(5)
				s.addFact(truth.EventRecorded, truth.Fact{PodUID: "u3", Reason: reasonEvicted,
					Message: lowPrefix + "ephemeral-storage. "})
				s.model.pressure.victimDeadline = s.now // nothing is waited for on its behalf
			})},
		{"longer, and the disk was not short before", true, fromImagefs,
			endOverLimit(27, func(s *script) {
				s.model.opts.Pressure.Thresholds[1].Amount = 50 // the other one never is
				s.wait(5)
				s.measureDisk(fromNodefs, 300)
				s.measureDisk(fromImagefs, 300)
				s.measureDisks()
			})},
		{"longer, and memory alone was short before", true, fromImagefs, func(s *script) {
			o := &s.model.opts.Pressure
			o.Thresholds = append(o.Thresholds,
				PressureThreshold{Signal: "memory.available", Amount: 100})
			s.model.pressure = newPressureModel(o)
			s.measure(1, 50)
			s.exceedLimit("u1")
			s.wait(5)
			endOverLimit(27, nil)(s)
		}},
		{"longer, and another agent runs since", true, fromImagefs, func(s *script) {
			s.measureDisks()
			s.exceedLimit("u1")
			s.wait(5)
			s.AgentStarted(s.now)
			s.wait(1)
			endOverLimit(26, nil)(s)
		}},
	})
}

// A pod that tolerates the taint is admitted while memory is short.
func TestTolerationOfMemoryPressure(t *testing.T) {
	for _, c := range []struct {
		toleration v1.Toleration
		want       bool
	}{
		{v1.Toleration{Operator: v1.TolerationOpExists}, false},
		{v1.Toleration{Key: v1.TaintNodeMemoryPressure}, false},
		{v1.Toleration{Key: v1.TaintNodeMemoryPressure, Operator: v1.TolerationOpExists,
			Effect: v1.TaintEffectNoSchedule}, false},
		{v1.Toleration{Key: v1.TaintNodeMemoryPressure, Value: "x"}, true},
		{v1.Toleration{Key: v1.TaintNodeMemoryPressure, Effect: v1.TaintEffectNoExecute}, true},
		{v1.Toleration{Key: v1.TaintNodeDiskPressure, Operator: v1.TolerationOpExists}, true},
	} {
		s := newScript()
		p := spec("u1", always, "app")
		p.Spec.Tolerations = []v1.Toleration{c.toleration}
		s.setDesired(p)
		if got := s.model.pods["u1"].isRejectedForMemory(); got != c.want {
			t.Errorf("%+v: %v", c.toleration, got)
		}
	}
}

// reject has a pod with CPUs be desired, and rejected for a condition of the node.
func (s *script) reject(cpus string, changes ...func(*v1.Pod)) {
	p := podWithCPUs("u1", cpus, changes...)
	s.setDesired(p)
	s.reportFailed(p, reasonEvicted, rejectedUnderPressure)
}

// A condition stays for its period after its threshold was met, and then until anything is
// observed.
func TestRejectionAfterPressure(t *testing.T) {
	met := func(s *script) { s.measureDisk(fromImagefs, 100) }
	over := func(s *script) {
		met(s)
		s.measureDisk(fromImagefs, 300)
	}
	for _, c := range []struct {
		name, want    string
		first         func(*script)
		after         float64       // seconds until then
		then          func(*script) // nil: nothing
		rejectedAfter float64       // seconds since then
	}{
		{"never met", "admission", func(*script) {}, 0, nil, 0},
		{"within the period", "", over, 0, nil, 119},
		{"after the period", "admission", over, 61,
			func(s *script) { s.measureDisk(fromImagefs, 300) }, 60},
		{"after the period, and nothing is observed", "", over, 0, nil, 200},
		{"after the period, and nothing was observed since", "", over, 59,
			func(s *script) { s.measureDisk(fromImagefs, 300) }, 100},
		{"after the period, and another disk is observed", "admission", over, 61,
			func(s *script) { s.measureDisk(fromNodefs, 300) }, 60},
		{"after the period, and the node is observed", "admission", over, 61,
			func(s *script) { s.measure(1, 900) }, 60},
		{"after the period, and the place of the images is asked for", "", over, 61, func(s *script) {
			s.CallIssued(s.now, &world.Effect{Op: 1, Body: &runtimeapi.ImageFsInfoRequest{},
				Deadline: s.now.Add(observationTimeout)})
			s.answer(1, &runtimeapi.ImageFsInfoResponse{})
		}, 60},
		{"still met, and another disk is observed", "", met, 61,
			func(s *script) { s.measureDisk(fromNodefs, 300) }, 100},
		{"it ends after the period", "", met, 200,
			func(s *script) { s.measureDisk(fromImagefs, 300) }, 59},
		{"it has ended after the period", "admission", met, 200,
			func(s *script) { s.measureDisk(fromImagefs, 300) }, 61},
		{"after the period, and another agent has observed nothing", "", over, 61,
			func(s *script) {
				s.measureDisk(fromNodefs, 300)
				s.restartAgent()
			}, 60},
	} {
		runCases(t, []testCase{{c.name, c.want, func(s *script) {
			s.setCPUs("2")
			s.setDisks()
			s.AgentStarted(s.now)
			c.first(s)
			s.wait(c.after)
			if c.then != nil {
				c.then(s)
			}
			pollAfter(s, c.rejectedAfter)
			s.reject("0")
		}}})
	}
}

// Memory that is short rejects pods without requests alone, other resources all but critical ones.
func TestRejectionForResources(t *testing.T) {
	short := func(memory, processes int64, cpus string, changes ...func(*v1.Pod)) func(*script) {
		return func(s *script) {
			s.setCPUs("2")
			o := &s.model.opts
			o.Pressure = Pressure{Transition: time.Minute, Thresholds: []PressureThreshold{
				{Signal: "memory.available", Amount: 100}, {Signal: "pid.available", Amount: 100}}}
			s.model.pressure = newPressureModel(&o.Pressure)
			s.AgentStarted(s.now)
			s.ask(1, &world.MeasureNode{})
			s.answer(1, &world.NodeMeasured{MemoryBytes: 1000, WorkingSetBytes: 1000 - memory,
				ProcessesMax: 1000, Processes: 1000 - processes})
			s.reject(cpus, changes...)
		}
	}
	tolerates := func(p *v1.Pod) {
		p.Spec.Tolerations = []v1.Toleration{{Key: v1.TaintNodeMemoryPressure,
			Operator: v1.TolerationOpExists}}
	}
	runCases(t, []testCase{
		{"a pod without requests, for memory", "", short(50, 200, "0")},
		{"a pod with a request, for memory", "admission", short(50, 200, "1")},
		{"a pod with a request, for processes", "", short(200, 50, "1")},
		{"a pod with a request, for both", "", short(50, 50, "1")},
		{"a pod with a toleration, for memory", "admission", short(50, 200, "0", tolerates)},
		{"a pod with a toleration, for both", "", short(50, 50, "0", tolerates)},
		{"a critical pod", "admission", short(50, 50, "0", withPriority(systemCriticalPriority))},
		{"a pod that requests storage, for memory", "", short(50, 200, "0", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests["ephemeral-storage"] = resource.MustParse("1Mi")
		})},
		{"a pod whose containers have a request together, for memory", "admission",
			short(50, 200, "0", func(p *v1.Pod) {
				p.Spec.Resources = &v1.ResourceRequirements{
					Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}
			})},
	})
}

// nodeUnder returns the Node with the condition MemoryPressure.
func nodeUnder(status v1.ConditionStatus) world.Object {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeMemoryPressure, Status: status}}
	return world.Object{Node: n}
}

// startShort starts an agent that finds memory short after something else, which the Node says.
func (s *script) startShort(first func(*script)) {
	s.model.opts.NodeName = "node"
	o := &s.model.opts.Pressure
	*o = Pressure{Transition: time.Minute,
		Thresholds: []PressureThreshold{{Signal: "memory.available", Amount: 100}}}
	s.model.pressure = newPressureModel(o)
	s.AgentStarted(s.now)
	s.wait(60)
	if first != nil {
		first(s)
	}
	s.measure(1, 50)
	writeObject(s, world.Object{}, nodeUnder(v1.ConditionTrue), 1)
}

// deleteNode has a user delete the Node.
func (s *script) deleteNode() {
	s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectDeleted, Write: &truth.Write{
		Resource: world.ResourceNodes, Name: "node", Before: nodeUnder(v1.ConditionTrue)}})
}

// desire has the pod "u1" be desired, which requests nothing.
func (s *script) desire(changes ...func(*v1.Pod)) {
	s.setDesired(podWithCPUs("u1", "0", changes...))
}

// A pod that came while a condition was true is not started.
func TestAdmittedUnderPressure(t *testing.T) {
	come := func(seconds float64, changes ...func(*v1.Pod)) func(*script) {
		return func(s *script) {
			s.wait(seconds)
			s.desire(changes...)
		}
	}
	for _, c := range []struct {
		name   string
		want   bool
		before func(*script) // memory is short; nil: nothing
		then   func(*script)
	}{
		{"it came since", true, nil, come(2)},
		{"it came at the same time", false, nil, come(0.5)},
		{"it came before", false, come(0), come(0)},
		{"it came long after, and nothing is observed", true, nil, come(70)},
		{"it came after the condition", false, nil, func(s *script) {
			s.measure(2, 200)
			come(61)(s)
		}},
		{"it came within the period", true, nil, func(s *script) {
			s.measure(2, 200)
			come(59)(s)
		}},
		{"under a fault", true, func(s *script) {
			s.model.opts.FaultPossible = func(string, time.Time, time.Time) bool { return true }
		}, come(2)},
		{"a static one", false, nil, come(2, asStatic)},
		{"a critical one", false, nil, come(2, withPriority(systemCriticalPriority))},
		{"one that requests something", false, nil, come(2, func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
		})},
		{"one with another spec since", false, nil, func(s *script) {
			come(2)(s)
			s.desire(withHostPort)
		}},
		{"one that was gone before", false, func(s *script) {
			s.desire()
			s.PodNoLongerDesired(s.now, "u1")
		}, come(2)},
		{"another agent starts it", false, nil, func(s *script) {
			come(2)(s)
			s.restartAgent()
		}},
		{"the Node loses the condition", true, nil, func(s *script) {
			writeObject(s, nodeUnder(v1.ConditionTrue), nodeUnder(v1.ConditionUnknown), 0)
			come(2)(s)
		}},
	} {
		s := newScript()
		s.startShort(c.before)
		c.then(s)
		s.start(s.sandbox("u1", 0), "app", 0)
		if strings.Contains(s.violated(), "node-pressure") != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

// A pod that came while no agent ran is not started by the next one, which has the condition from
// the Node.
func TestAdmittedAfterRestart(t *testing.T) {
	isUnwatched := func(call string, _, _ time.Time) bool { return call == "WatchObjects" }
	for _, c := range []struct {
		name string
		want bool
		down func(*script) // while no agent runs; nil: nothing
		then func(*script) // once one runs; nil: nothing
	}{
		{"it starts", true, nil, nil},
		{"one more agent starts it", false, nil, (*script).restartAgent},
		{"under a fault", false, nil,
			func(s *script) { s.model.opts.FaultPossible = isUnwatched }},
		{"it has started under a fault", false, nil, func(s *script) {
			s.model.opts.FaultPossible = isUnwatched
			s.start(s.sandbox("u1", 0), "app", 0).exit(0, truth.CauseSelf)
			s.model.opts.FaultPossible = nil
		}},
		{"the Node is deleted before", false, (*script).deleteNode, nil},
		{"the Node is deleted", false, nil, (*script).deleteNode},
		{"the Node loses the condition before", false, func(s *script) {
			writeObject(s, nodeUnder(v1.ConditionTrue), nodeUnder(v1.ConditionUnknown), 0)
		}, nil},
		{"the Node loses the condition", false, nil, func(s *script) {
			writeObject(s, nodeUnder(v1.ConditionTrue), nodeUnder(v1.ConditionFalse), 1)
		}},
		{"the Node loses the condition once memory is observed", true, nil, func(s *script) {
			s.measure(2, 50)
			writeObject(s, nodeUnder(v1.ConditionTrue), nodeUnder(v1.ConditionUnknown), 0)
		}},
	} {
		s := newScript()
		s.startShort(nil)
		s.AgentKilled(s.now)
		s.wait(2)
		s.desire()
		if c.down != nil {
			c.down(s)
		}
		s.wait(2)
		s.AgentStarted(s.now)
		if c.then != nil {
			c.then(s)
		}
		s.start(s.sandbox("u1", 0), "app", 1)
		if strings.Contains(s.violated(), "node-pressure") != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}

// A pod that came while a condition was true does not stay pending.
func TestPendingUnderPressure(t *testing.T) {
	wait := func(seconds float64, changes ...func(*v1.Pod)) func(*script) {
		return func(s *script) {
			s.wait(2)
			s.desire(changes...)
			s.wait(seconds)
		}
	}
	for _, c := range []struct {
		name  string
		want  bool
		phase v1.PodPhase
		first func(*script) // memory is short then
		then  func(*script)
	}{
		{"it is pending", true, v1.PodPending, nil, wait(6)},
		{"it has just come", false, v1.PodPending, nil, wait(4)},
		{"it has failed", false, v1.PodFailed, nil, wait(6)},
		{"it came before", false, v1.PodPending, wait(0), wait(6)},
		{"it may stay for its priority", false, v1.PodPending, nil,
			wait(6, withPriority(systemCriticalPriority))},
		{"it may stay for its request", false, v1.PodPending, nil, wait(6, func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1")
		})},
		{"the condition has ended", false, v1.PodPending, nil, func(s *script) {
			wait(6)(s)
			s.measure(2, 200)
			s.wait(61)
		}},
		{"the condition has not ended", true, v1.PodPending, nil, func(s *script) {
			wait(6)(s)
			s.measure(2, 200)
			s.wait(50)
		}},
	} {
		s := newScript()
		s.model.opts.NodeUsage = func() world.NodeMeasured { return world.NodeMeasured{} }
		s.startShort(c.first)
		c.then(s)
		s.serve("u1", c.phase)
		if strings.Contains(s.violated(), "node-pressure") != c.want {
			t.Errorf("%s: %v", c.name, s.Violations())
		}
	}
}
