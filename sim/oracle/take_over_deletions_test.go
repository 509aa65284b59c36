package oracle

import (
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// deleted returns an object of u1 that is deleted, with a grace period of 30 s.
func (s *script) deleted() *v1.Pod {
	object, grace := spec("u1", always, "app"), int64(30)
	at := metav1.NewTime(s.now.Add(30 * time.Second))
	object.DeletionTimestamp, object.DeletionGracePeriodSeconds = &at, &grace
	return object
}

// A pod that was deleted before an agent took over ends once.
func TestNothingChangesOfDeletions(t *testing.T) {
	for name, test := range map[string]struct {
		fires  bool
		change func(*script, run)
	}{ //ordered: each by itself
		"ended": {false, func(s *script, r run) { r.exit(0, truth.CauseStop) }},
		"ended late": {true, func(s *script, r run) {
			s.wait(60)
			r.exit(137, truth.CauseStop)
		}},
		"ended late for a fault": {false, func(s *script, r run) {
			s.faultBetween(0, 100)
			s.wait(60)
			r.exit(137, truth.CauseStop)
		}},
		"ended late, after another agent's start": {false, func(s *script, r run) {
			s.wait(20)
			s.restartAgent()
			s.wait(40)
			r.exit(137, truth.CauseStop)
		}},
		"started again": {true, func(s *script, r run) {
			r.exit(0, truth.CauseStop)
			s.create(r.fact.SandboxID, "app", 1)
		}},
		"another sandbox": {true, func(s *script, r run) { s.sandbox("u1", 1) }},
		"a call of the kubelet": {false, func(s *script, r run) {
			s.now = s.now.Add(-4 * time.Second)
			s.create(r.fact.SandboxID, "other", 0)
		}},
	} {
		s := newScript()
		s.KubeletStarted()
		p := spec("u1", always, "app")
		s.setDesired(p)
		s.store(0, nil, p)
		r := s.start(s.sandbox("u1", 0), "app", 0)
		s.store(0, p, s.deleted())
		s.wait(1)
		s.KubeletEnded(s.now)
		s.AgentStarted(s.now)
		s.wait(5)
		test.change(s, r)
		if got := strings.Contains(s.violated(), "nothing-changes"); got != test.fires {
			t.Errorf("%s: fires: %v, want %v (%q)", name, got, test.fires, s.Violations())
		}
	}
}

// Each agent that follows a kubelet is judged by what that one has left; no kubelet is judged.
func TestNothingChangesInRounds(t *testing.T) {
	for name, test := range map[string]struct {
		fires                 bool
		byKubelet, afterwards func(*script)
	}{ //ordered: each by itself
		"nothing": {false, func(*script) {}, func(*script) {}},
		"unmounted by the kubelet": {false, func(s *script) {
			s.changePath(truth.Unmounted, takenTarget, "")
		}, func(*script) {}},
		"unmounted by the second agent": {true, func(*script) {}, func(s *script) {
			s.changePath(truth.Unmounted, takenTarget, "")
		}},
		"a file that the second kubelet has left": {true, func(s *script) {
			s.changePath(truth.PathWritten, takenMap+"/new", "")
		}, func(s *script) { s.changePath(truth.PathRemoved, takenMap+"/new", "") }},
	} {
		s := newScript()
		s.takeOverVolumes(always)
		s.AgentKilled(s.now)
		s.KubeletStarted()
		s.wait(5)
		test.byKubelet(s)
		s.wait(5)
		s.KubeletEnded(s.now)
		s.AgentStarted(s.now)
		s.wait(5)
		test.afterwards(s)
		if got := strings.Contains(s.violated(), "nothing-changes"); got != test.fires {
			t.Errorf("%s: fires: %v, want %v (%q)", name, got, test.fires, s.Violations())
		}
	}
}

// The limits of a pod whose resize was under way may change, those of another one may not.
func TestNothingChangesOfResizes(t *testing.T) {
	const dir = "kubepods/burstable/podu1"
	for name, resizes := range map[string]bool{"resized": true, "at rest": false} { //ordered: each
		s := newScript()
		s.KubeletStarted()
		p := spec("u1", always, "app")
		if resizes {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodResizeInProgress,
				Status: v1.ConditionTrue}}
		}
		s.setDesired(p)
		s.store(0, nil, p)
		s.start(s.sandbox("u1", 0), "app", 0)
		s.createCgroup(dir, truth.Limits{CPUShares: 102})
		s.KubeletEnded(s.now)
		s.AgentStarted(s.now)
		s.wait(5)
		s.createCgroup(dir, truth.Limits{CPUShares: 204})
		if fires := strings.Contains(s.violated(), "nothing-changes"); fires == resizes {
			t.Errorf("%s: fires: %v (%q)", name, fires, s.Violations())
		}
	}
}

// The Node may be reported as not ready after a fault, and not long after it.
func TestNothingChangesOfTheNode(t *testing.T) {
	node := func(status v1.ConditionStatus) *v1.Node {
		return &v1.Node{Status: v1.NodeStatus{Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: status}}}}
	}
	for after, fires := range map[float64]bool{20: false, 300: true} { //ordered: each by itself
		s := newScript()
		s.KubeletStarted()
		s.addNode(&node(v1.ConditionTrue).Status)
		s.KubeletEnded(s.now)
		s.AgentStarted(s.now)
		s.faultBetween(0, 10)
		s.wait(after)
		s.CheckFact(truth.Fact{Time: s.now, Kind: truth.ObjectUpdated, Write: &truth.Write{
			Resource: api.ResourceNodes, Incarnation: 2,
			Before: api.Object{Node: node(v1.ConditionTrue)},
			After:  api.Object{Node: node(v1.ConditionFalse)}}})
		if got := strings.Contains(s.violated(), "nothing-changes"); got != fires {
			t.Errorf("%v s after a fault: fires: %v, want %v (%q)", after, got, fires, s.Violations())
		}
	}
}
