package sim

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// caught is a panic, and the function that has panicked.
type caught struct {
	broken   any
	function string
}

// recoverFrom returns what a call panics with.
func recoverFrom(call func()) (c caught) {
	defer func() { c = caught{recover(), panickedFunction()} }()
	call()
	return c
}

// useNone panics as the agent does over a container that it has not asked for.
func useNone(creating *struct{ name string }) string { return creating.name }

// useNoneElsewhere panics likewise.
func useNoneElsewhere(creating *struct{ name string }) string { return creating.name }

func TestOnlyThePlannedPanicIsExcused(t *testing.T) {
	wanted := &runtimeapi.PodSandboxStatusResponse{}
	planned := plannedPanic{name: "web", uid: "u1", text: conversionText(&world.Done{}, wanted)}
	plannedNone := plannedPanic{"web", "u1", textNoContainer, "seedlet.dev/sim.useNone"}
	convert := recoverFrom(func() {
		var body any = &world.Done{}
		_ = body.(*runtimeapi.PodSandboxStatusResponse)
	})
	none := recoverFrom(func() { fmt.Println(useNone(nil)) })
	noneElsewhere := recoverFrom(func() { fmt.Println(useNoneElsewhere(nil)) })
	invariant := recoverFrom(func() { panic("pod: removal of a container that may run") })
	for _, c := range []struct {
		name    string
		planned plannedPanic
		caught  caught
		over    string
		isFound bool
	}{
		{"the planned one", planned, convert, "u1", false},
		{"a creation of nothing", plannedNone, none, "u1", false},
		{"nothing in another function", plannedNone, noneElsewhere, "u1", true},
		{"an invariant in the same step", planned, invariant, "u1", true},
		{"another error of Go's", planned, none, "u1", true},
		{"over another pod", planned, convert, "u2", true},
		{"over no pod", planned, convert, "", true},
		{"none is planned", plannedPanic{}, convert, "", true},
	} {
		got := c.planned.difference(c.caught.broken, c.over, c.caught.function)
		if (got != "") != c.isFound {
			t.Errorf("%s: found %q, want a difference: %v", c.name, got, c.isFound)
		}
	}
}
