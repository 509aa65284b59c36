package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// requestContainer adds a request for a container of ns/web with the agent's answer.
func (s *script) requestContainer(uid, container string, a api.ContainerAnswer, served ...*v1.Pod) {
	if a.Phase == "" && a.Err == nil {
		a.Phase = "Running"
	}
	s.CheckContainerAnswer(s.now, &api.ContainerRequest{Namespace: "ns", Pod: "web", UID: uid,
		Container: container}, &a, served)
}

func notFound() api.ContainerAnswer {
	return api.ContainerAnswer{Err: api.Errorf(api.KindNotFound, "ContainerRequest", "no")}
}

// changeMirror creates or removes the mirror pod m1 of the pod u1.
func (s *script) changeMirror(kind truth.Kind) {
	object := api.Object{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web",
		UID: "m1", Annotations: map[string]string{v1.MirrorPodAnnotationKey: "u1"}}}}
	write := &truth.Write{Resource: api.ResourcePods, Namespace: "ns", Name: "web", After: object}
	if kind == truth.ObjectDeleted {
		write.Before, write.After = object, api.Object{}
	}
	s.CheckFact(truth.Fact{Time: s.now, Kind: kind, Write: write})
}

// replacePod returns the served pods while one runs on and another is desired under its name.
func (s *script) replacePod() []*v1.Pod {
	s.startPod(always)
	s.PodNoLongerDesired(s.now, "u1")
	s.setDesired(spec("u2", always, "app"))
	old, now := s.served("u1", v1.PodRunning, "app#0 ready"), s.served("u2", v1.PodPending)
	old.DeletionTimestamp = &metav1.Time{Time: s.now}
	return []*v1.Pod{old, now}
}

func TestContainerRequests(t *testing.T) {
	first := api.ContainerAnswer{UID: "u1", SandboxID: "u1-s0", ContainerID: "u1-app#0"}
	pending := api.ContainerAnswer{UID: "u2", Phase: "Pending"}
	runCases(t, []testCase{
		{"the true state", "", func(s *script) {
			s.startPod(always)
			s.requestContainer("", "app", first)
			s.requestContainer("u1", "app", first)
		}},
		{"a container of another pod", "http-api", func(s *script) {
			s.replacePod()
			a := first
			a.UID = "u2"
			s.requestContainer("", "app", a)
		}},
		{"another container", "http-api", func(s *script) {
			s.setDesired(spec("u1", always, "app", "log"))
			s.start(s.sandbox("u1", 0), "log", 0)
			a := first
			a.ContainerID = "u1-log#0"
			s.requestContainer("", "app", a)
		}},
		{"the terminating pod of the name", "http-api", func(s *script) {
			s.requestContainer("", "app", first, s.replacePod()...)
		}},
		{"the terminating pod, by its UID", "", func(s *script) {
			served := s.replacePod()
			a := first
			a.Status = &served[0].Status.ContainerStatuses[0]
			a.Status.ContainerID = "sim://u1-app#0"
			s.requestContainer("u1", "app", a, served...)
			s.requestContainer("u2", "app", pending, served...)
			s.requestContainer("", "app", pending, served...)
		}},
		{"a pod that is long no longer desired", "http-api", func(s *script) {
			s.replacePod()
			s.wait(40)
			s.requestContainer("", "app", first)
		}},
		{"the wrong UID", "http-api", func(s *script) {
			s.replacePod()
			s.requestContainer("u1", "app", pending)
		}},
		{"another status than is served", "http-api", func(s *script) {
			s.startPod(always)
			s.requestContainer("", "app", first, s.served("u1", v1.PodRunning, "app#0 ready"))
		}},
		{"an earlier run", "http-api", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			s.wait(20)
			s.start("u1-s0", "app", 1)
			s.wait(10)
			s.requestContainer("", "app", first)
		}},
		{"an earlier run, just now", "", func(s *script) {
			s.startPod(always).exit(1, truth.CauseSelf)
			s.wait(20)
			s.start("u1-s0", "app", 1)
			s.wait(1)
			s.requestContainer("", "app", first)
		}},
	})
}

func TestContainerRequestsNotFound(t *testing.T) {
	runCases(t, []testCase{
		{"not found, but served", "http-api", func(s *script) {
			s.startPod(always)
			s.requestContainer("", "app", notFound(), s.served("u1", v1.PodRunning))
		}},
		{"not found, and not known yet", "", func(s *script) {
			s.startPod(always)
			s.requestContainer("", "app", notFound())
			s.requestContainer("u9", "app", notFound(), s.served("u1", v1.PodRunning))
		}},
		{"not found, but desired for long", "http-api", func(s *script) {
			s.startPod(always)
			s.wait(40)
			s.requestContainer("", "app", notFound())
		}},
		{"another error", "http-api", func(s *script) {
			s.requestContainer("", "app", api.ContainerAnswer{Err: api.Errorf(api.KindInternal, "", "oh")})
		}},
		{"unanswered", "http-api", func(s *script) { s.RequestUnanswered(s.now, "PodsRequest") }},
	})
}

func TestContainerRequestsByMirrorUID(t *testing.T) {
	first := api.ContainerAnswer{UID: "u1", SandboxID: "u1-s0", ContainerID: "u1-app#0"}
	runCases(t, []testCase{
		{"the static pod of the mirror", "", func(s *script) {
			s.startPod(always)
			s.changeMirror(truth.ObjectCreated)
			s.requestContainer("m1", "app", first)
		}},
		{"another pod", "http-api", func(s *script) {
			s.replacePod()
			s.changeMirror(truth.ObjectCreated)
			s.requestContainer("m1", "app", api.ContainerAnswer{UID: "u2", Phase: "Pending"})
		}},
		{"not found", "http-api", func(s *script) {
			s.startPod(always)
			s.changeMirror(truth.ObjectCreated)
			s.wait(40)
			s.requestContainer("m1", "app", notFound(), s.served("u1", v1.PodRunning))
		}},
		{"not found, of a removed mirror", "", func(s *script) {
			s.startPod(always)
			s.changeMirror(truth.ObjectCreated)
			s.changeMirror(truth.ObjectDeleted)
			s.wait(40)
			s.requestContainer("m1", "app", notFound(), s.served("u1", v1.PodRunning))
		}},
	})
}

func TestRunningPods(t *testing.T) {
	running := func(uid string, containers ...string) *v1.Pod {
		return spec(uid, always, containers...)
	}
	runCases(t, []testCase{
		{"the true state", "", func(s *script) {
			s.startPod(always)
			s.wait(10)
			s.CheckRunningPods(s.now, []*v1.Pod{running("u1", "app")})
		}},
		{"not known yet", "", func(s *script) {
			s.startPod(always)
			s.CheckRunningPods(s.now, nil)
		}},
		{"missing", "http-api", func(s *script) {
			s.startPod(always)
			s.wait(10)
			s.CheckRunningPods(s.now, nil)
		}},
		{"a container that has exited", "http-api", func(s *script) {
			s.startPod(always).exit(0, truth.CauseSelf)
			s.wait(10)
			s.CheckRunningPods(s.now, []*v1.Pod{running("u1", "app")})
		}},
		{"a pod that never existed", "http-api", func(s *script) {
			s.startPod(always)
			s.CheckRunningPods(s.now, []*v1.Pod{running("u9", "app")})
		}},
	})
}
