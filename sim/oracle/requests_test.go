package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// asks has somebody ask for a container of ns/web, and the agent answer.
func (s *story) asks(uid, container string, a api.ContainerAnswer, shown ...*v1.Pod) {
	if a.Phase == "" && a.Err == nil {
		a.Phase = "Running"
	}
	s.Asked(s.now, &api.ContainerRequest{Namespace: "ns", Pod: "web", UID: uid,
		Container: container}, &a, shown)
}

func notFound() api.ContainerAnswer {
	return api.ContainerAnswer{Err: api.Errorf(api.KindNotFound, "ContainerRequest", "no")}
}

// mirror has the API server have, or have had, a mirror with UID m1 of the pod u1.
func (s *story) mirror(kind truth.Kind) {
	object := api.Object{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web",
		UID: "m1", Annotations: map[string]string{v1.MirrorPodAnnotationKey: "u1"}}}}
	write := &truth.Write{Resource: api.ResourcePods, Namespace: "ns", Name: "web", After: object}
	if kind == truth.ObjectRemoved {
		write.Before, write.After = object, api.Object{}
	}
	s.Fact(truth.Fact{Time: s.now, Kind: kind, Write: write})
}

// replaced is a pod that runs although another one is wanted under its name.
func (s *story) replaced() []*v1.Pod {
	s.runs(always)
	s.Unwanted(s.now, "u1")
	s.want(spec("u2", always, "app"))
	old, now := s.shown("u1", v1.PodRunning, "app#0 ready"), s.shown("u2", v1.PodPending)
	old.DeletionTimestamp = &metav1.Time{Time: s.now}
	return []*v1.Pod{old, now}
}

func TestRequests(t *testing.T) {
	first := api.ContainerAnswer{UID: "u1", SandboxID: "u1-s0", ContainerID: "u1-app#0"}
	pending := api.ContainerAnswer{UID: "u2", Phase: "Pending"}
	judge(t, []tale{
		{"as it is", "", func(s *story) {
			s.runs(always)
			s.asks("", "app", first)
			s.asks("u1", "app", first)
		}},
		{"a container of another pod", "requests", func(s *story) {
			s.replaced()
			a := first
			a.UID = "u2"
			s.asks("", "app", a)
		}},
		{"another container", "requests", func(s *story) {
			s.want(spec("u1", always, "app", "log"))
			s.start(s.sandbox("u1", 0), "log", 0)
			a := first
			a.ContainerID = "u1-log#0"
			s.asks("", "app", a)
		}},
		{"the pod before", "requests", func(s *story) { s.asks("", "app", first, s.replaced()...) }},
		{"the pod before, by its UID", "", func(s *story) {
			shown := s.replaced()
			a := first
			a.Status = &shown[0].Status.ContainerStatuses[0]
			a.Status.ContainerID = "sim://u1-app#0"
			s.asks("u1", "app", a, shown...)
			s.asks("u2", "app", pending, shown...)
			s.asks("", "app", pending, shown...)
		}},
		{"the pod before, long after", "requests", func(s *story) {
			s.replaced()
			s.wait(40)
			s.asks("", "app", first)
		}},
		{"the wrong UID", "requests", func(s *story) {
			s.replaced()
			s.asks("u1", "app", pending)
		}},
		{"another status than is shown", "requests", func(s *story) {
			s.runs(always)
			s.asks("", "app", first, s.shown("u1", v1.PodRunning, "app#0 ready"))
		}},
		{"an earlier run", "requests", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			s.wait(20)
			s.start("u1-s0", "app", 1)
			s.wait(10)
			s.asks("", "app", first)
		}},
		{"an earlier run, just now", "", func(s *story) {
			s.runs(always).exit(1, truth.CauseOwn)
			s.wait(20)
			s.start("u1-s0", "app", 1)
			s.wait(1)
			s.asks("", "app", first)
		}},
	})
}

func TestRequestsThatFindNothing(t *testing.T) {
	judge(t, []tale{
		{"not found, but shown", "requests", func(s *story) {
			s.runs(always)
			s.asks("", "app", notFound(), s.shown("u1", v1.PodRunning))
		}},
		{"not found, nor known yet", "", func(s *story) {
			s.runs(always)
			s.asks("", "app", notFound())
			s.asks("u9", "app", notFound(), s.shown("u1", v1.PodRunning))
		}},
		{"not found, but wanted for long", "requests", func(s *story) {
			s.runs(always)
			s.wait(40)
			s.asks("", "app", notFound())
		}},
		{"another error", "requests", func(s *story) {
			s.asks("", "app", api.ContainerAnswer{Err: api.Errorf(api.KindInternal, "", "oh")})
		}},
		{"nobody answers", "requests", func(s *story) { s.Unanswered(s.now, "PodsRequest") }},
	})
}

func TestRequestsByTheMirror(t *testing.T) {
	first := api.ContainerAnswer{UID: "u1", SandboxID: "u1-s0", ContainerID: "u1-app#0"}
	judge(t, []tale{
		{"its static pod", "", func(s *story) {
			s.runs(always)
			s.mirror(truth.ObjectMade)
			s.asks("m1", "app", first)
		}},
		{"another pod", "requests", func(s *story) {
			s.replaced()
			s.mirror(truth.ObjectMade)
			s.asks("m1", "app", api.ContainerAnswer{UID: "u2", Phase: "Pending"})
		}},
		{"not found", "requests", func(s *story) {
			s.runs(always)
			s.mirror(truth.ObjectMade)
			s.wait(40)
			s.asks("m1", "app", notFound(), s.shown("u1", v1.PodRunning))
		}},
		{"not found any more", "", func(s *story) {
			s.runs(always)
			s.mirror(truth.ObjectMade)
			s.mirror(truth.ObjectRemoved)
			s.wait(40)
			s.asks("m1", "app", notFound(), s.shown("u1", v1.PodRunning))
		}},
	})
}

func TestRunningPods(t *testing.T) {
	running := func(uid string, containers ...string) *v1.Pod {
		return spec(uid, always, containers...)
	}
	judge(t, []tale{
		{"as it is", "", func(s *story) {
			s.runs(always)
			s.wait(10)
			s.Runs(s.now, []*v1.Pod{running("u1", "app")})
		}},
		{"not yet", "", func(s *story) {
			s.runs(always)
			s.Runs(s.now, nil)
		}},
		{"missing", "requests", func(s *story) {
			s.runs(always)
			s.wait(10)
			s.Runs(s.now, nil)
		}},
		{"what has exited", "requests", func(s *story) {
			s.runs(always).exit(0, truth.CauseOwn)
			s.wait(10)
			s.Runs(s.now, []*v1.Pod{running("u1", "app")})
		}},
		{"what never was", "requests", func(s *story) {
			s.runs(always)
			s.Runs(s.now, []*v1.Pod{running("u9", "app")})
		}},
	})
}
