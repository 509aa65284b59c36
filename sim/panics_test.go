package sim

import (
	"fmt"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// recoverFrom returns what a call panics with.
func recoverFrom(call func()) (broken any) {
	defer func() { broken = recover() }()
	call()
	return nil
}

func TestOnlyThePlannedPanicIsExcused(t *testing.T) {
	wanted := &runtimeapi.PodSandboxStatusResponse{}
	planned := plannedPanic{name: "web", uid: "u1", text: conversionText(&world.Done{}, wanted)}
	convert := recoverFrom(func() {
		var body any = &world.Done{}
		_ = body.(*runtimeapi.PodSandboxStatusResponse)
	})
	createNone := recoverFrom(func() {
		var creating *struct{ name string }
		fmt.Println(creating.name)
	})
	for _, c := range []struct {
		name    string
		planned plannedPanic
		broken  any
		over    string
		isFound bool
	}{
		{"the planned one", planned, convert, "u1", false},
		{"a creation of nothing", plannedPanic{"web", "u1", textNoContainer}, createNone, "u1", false},
		{"an invariant in the same step", planned, "pod: removal of a container that may run", "u1",
			true},
		{"another error of Go's", planned, createNone, "u1", true},
		{"over another pod", planned, convert, "u2", true},
		{"over no pod", planned, convert, "", true},
		{"none is planned", plannedPanic{}, convert, "", true},
	} {
		if got := c.planned.difference(c.broken, c.over); (got != "") != c.isFound {
			t.Errorf("%s: found %q, want a difference: %v", c.name, got, c.isFound)
		}
	}
}
