package oracle

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "seedlet.dev/world"
)

// reporter writes conditions of the pod "u1" to the API server, which exists since the start.
type reporter struct {
	*script
	object *v1.Pod
}

func newReporter(s *script) *reporter {
	object := spec("u1", always, "app")
	object.CreationTimestamp = metav1.NewTime(s.now)
	r := &reporter{s, object}
	r.setDesired(object)
	r.store(0, nil, object)
	r.AgentStarted(s.now)
	return r
}

// write writes a status of the condition Ready, with a date that is that far ahead: by an
// incarnation of the agent or, with 0, by another client.
func (r *reporter) write(life int, status v1.ConditionStatus, ahead time.Duration) {
	r.writeCondition(life, v1.PodCondition{Type: v1.PodReady, Status: status,
		LastTransitionTime: metav1.NewTime(r.now.Add(ahead).Truncate(time.Second))})
}

func (r *reporter) writeCondition(life int, c v1.PodCondition) {
	before := r.object
	r.object = before.DeepCopy()
	r.object.Status.Conditions = []v1.PodCondition{c}
	if life > 0 {
		r.Called(r.now, &api.PatchObject{Resource: api.ResourcePods, Namespace: "ns", Name: "web",
			Status: true})
	}
	r.store(life, before, r.object)
}

const yes, no = v1.ConditionTrue, v1.ConditionFalse

// reporterCase returns a case about the conditions of the pod "u1".
func reporterCase(name, want string, tale func(r *reporter)) testCase {
	return testCase{name, want, func(s *script) { tale(newReporter(s)) }}
}

func TestTransitions(t *testing.T) {
	runCases(t, []testCase{
		reporterCase("each change with its date", "", func(r *reporter) {
			r.wait(5.5)
			r.write(1, no, 0)
			r.wait(20)
			r.write(1, yes, -2*time.Second)
		}),
		reporterCase("kept while the status stays", "", func(r *reporter) {
			r.write(1, no, 0)
			r.wait(20)
			r.write(1, no, -20*time.Second)
		}),
		reporterCase("renewed although the status stays", "transitions", func(r *reporter) {
			r.write(1, no, 0)
			r.wait(20)
			r.write(1, no, 0)
		}),
		reporterCase("renewed by the next agent", "transitions", func(r *reporter) {
			r.write(1, yes, 0)
			r.wait(20)
			r.AgentKilled(r.now)
			r.AgentStarted(r.now)
			r.write(2, yes, 0)
		}),
		reporterCase("kept although the status changed", "transitions", func(r *reporter) {
			r.write(1, no, 0)
			r.wait(20)
			r.write(1, yes, -20*time.Second)
			r.wait(20)
			r.write(1, no, -40*time.Second)
		}),
		reporterCase("from before the report of the old status", "transitions", func(r *reporter) {
			r.write(1, no, 0)
			r.wait(20)
			r.write(1, no, -20*time.Second)
			r.wait(20)
			r.write(1, yes, -25*time.Second)
		}),
		reporterCase("from before the pod was created", "transitions", func(r *reporter) {
			r.write(1, no, -3*time.Second)
		}),
		reporterCase("ahead of the date", "transitions", func(r *reporter) {
			r.write(1, no, 3*time.Second)
		}),
	})
}

func TestTransitionsByOthers(t *testing.T) {
	runCases(t, []testCase{
		reporterCase("set back after another client's change", "", func(r *reporter) {
			r.write(1, yes, 0)
			r.wait(60)
			r.write(0, no, 0)
			r.wait(20)
			r.write(1, yes, -80*time.Second)
		}),
		reporterCase("renewed by another client", "", func(r *reporter) {
			r.write(1, yes, 0)
			r.wait(60)
			r.write(0, yes, 0)
		}),
		reporterCase("a condition of another owner", "", func(r *reporter) {
			for range 2 {
				r.writeCondition(1, v1.PodCondition{Type: "example.com/gate", Status: yes,
					LastTransitionTime: metav1.NewTime(r.now)})
				r.wait(20)
			}
		}),
		reporterCase("a status that was lost on the way", "", func(r *reporter) {
			r.model.opts.FaultPossible = func(call string, _, _ time.Time) bool {
				return call == "PatchObject"
			}
			r.write(1, no, 0)
			r.wait(20)
			r.write(1, no, 0)
		}),
	})
}

func TestTransitionsAfterChangesOfTheDate(t *testing.T) {
	change := func(back, ahead time.Duration) func(*script) {
		return func(s *script) {
			r := newReporter(s)
			changed := r.now.Add(30 * time.Second)
			r.model.opts.DateOffset = func(at time.Time) time.Duration {
				if at.Before(changed) {
					return 0
				}
				return -time.Hour
			}
			r.wait(10)
			r.write(1, no, 0)
			r.wait(30)
			r.write(1, yes, ahead-back)
		}
	}
	runCases(t, []testCase{
		{"with the new date", "", change(0, -time.Hour)},
		{"a change from before, with the old date", "", change(12*time.Second, 0)},
		{"a change from before, with the new date", "transitions",
			change(32*time.Second, -time.Hour)},
		{"with the old date", "transitions", change(0, 0)},
	})
}
