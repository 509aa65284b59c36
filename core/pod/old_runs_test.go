package pod

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// At most one exited run of a container stays: of one that runs the run before, of one that has
// exited the newest, once its exit is known.
func TestOneExitedRunIsRetained(t *testing.T) {
	exited := func(attempt uint32, inspected State) Container {
		c := run("web", attempt, Exited)
		c.Inspected, c.SandboxID = inspected, "s"
		return c
	}
	newest := func(state State) Container {
		c := run("web", 3, state)
		c.SandboxID = "s"
		return c
	}
	for _, test := range []struct {
		name    string
		newest  Container
		removed []string
	}{
		{"the newest runs", newest(Running), []string{"web0", "web1"}},
		{"the newest is not started yet", newest(Created), []string{"web0", "web1"}},
		{"the newest has exited", exited(3, Exited), []string{"web0", "web1", "web2"}},
		{"its exit is not known yet", exited(3, Running), []string{"web0", "web1"}},
	} {
		p := podWith(spec(v1.RestartPolicyNever, "", "web"), exited(0, Exited), exited(1, Running),
			exited(2, Exited), test.newest)
		for i := range p.Containers {
			p.Containers[i].Cleanup.LinkRemoved, p.Containers[i].Cleanup.LogsRemoved = true, true
		}
		h := newHarness(t, p)
		h.env.Effects.Reset(&h.table, h.now)
		p.removeOldRuns(h.env, &wakeTimer{now: h.now})
		var removed []string
		for _, eff := range h.env.Effects.List() {
			if body, ok := eff.Body.(*runtimeapi.RemoveContainerRequest); ok {
				removed = append(removed, body.ContainerId)
			}
		}
		if slices.Sort(removed); !slices.Equal(removed, test.removed) {
			t.Errorf("%s: %s removed, want %s", test.name, fmt.Sprint(removed), test.removed)
		}
	}
}
