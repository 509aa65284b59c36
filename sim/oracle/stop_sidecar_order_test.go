package oracle

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
)

// podWithSidecars starts a pod with two sidecars and an app container.
func podWithSidecars(s *script) (first, second, app run) {
	p := spec("u1", always, "init-1", "init-2", "app")
	restart := v1.ContainerRestartPolicyAlways
	for i := range p.Spec.InitContainers {
		p.Spec.InitContainers[i].RestartPolicy = &restart
	}
	s.setDesired(p)
	box := s.sandbox("u1", 0)
	return s.start(box, "init-1", 0), s.start(box, "init-2", 0), s.start(box, "app", 0)
}

func TestSidecarOrder(t *testing.T) {
	pod := podWithSidecars
	runCases(t, []testCase{
		{"in reverse order, after the app", "", func(s *script) {
			first, second, app := pod(s)
			s.PodNoLongerDesired(s.now, "u1")
			app.change(truth.StopRequested, "")
			app.exit(143, truth.CauseStop)
			second.change(truth.StopRequested, "")
			second.exit(143, truth.CauseStop)
			first.change(truth.StopRequested, "")
		}},
		{"while the app runs", "sidecar-order", func(s *script) {
			_, second, _ := pod(s)
			s.PodNoLongerDesired(s.now, "u1")
			second.change(truth.StopRequested, "")
		}},
		{"while the app runs, when the grace period is used up", "", func(s *script) {
			_, second, app := pod(s)
			s.PodNoLongerDesired(s.now, "u1")
			app.terminate(30)
			s.wait(30)
			second.terminate(2)
		}},
		{"while the app runs, with less than its grace period", "sidecar-order", func(s *script) {
			_, second, app := pod(s)
			s.PodNoLongerDesired(s.now, "u1")
			app.terminate(30)
			s.wait(20)
			second.terminate(2)
		}},
		{"in order of start", "sidecar-order", func(s *script) {
			first, _, app := pod(s)
			s.PodNoLongerDesired(s.now, "u1")
			app.exit(143, truth.CauseStop)
			first.change(truth.StopRequested, "")
		}},
	})
}

// What was stopped before the removal counts from then on. It excuses no stop that comes before the
// grace period is used up.
func TestSidecarOrderOfEarlierStops(t *testing.T) {
	pod := podWithSidecars
	runCases(t, []testCase{
		{"when the grace period was used up since", "", func(s *script) {
			_, second, app := pod(s)
			app.terminate(30)
			s.wait(20)
			s.PodNoLongerDesired(s.now, "u1")
			s.wait(10)
			second.terminate(2)
		}},
		{"at the removal, after a stop that came just before", "sidecar-order", func(s *script) {
			first, second, app := pod(s)
			app.terminate(30)
			app.exit(143, truth.CauseStop)
			second.terminate(30)
			s.wait(1)
			s.PodNoLongerDesired(s.now, "u1")
			s.wait(1)
			first.terminate(2)
		}},
		{"at the removal, when the container that was stopped before is gone", "sidecar-order",
			func(s *script) {
				first, _, app := pod(s)
				app.terminate(30)
				app.exit(143, truth.CauseStop)
				app.change(truth.ContainerRemoved, "")
				s.PodNoLongerDesired(s.now, "u1")
				s.wait(1)
				first.terminate(2)
			}},
	})
}
