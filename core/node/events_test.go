package node

import (
	"strings"
	"testing"
	"time"

	"seedlet.dev/core/runtime"
	"seedlet.dev/world"
)

// tells fails unless these events were told since the last time.
func (r *rig) tells(want string) {
	r.t.Helper()
	if got := strings.Join(r.told, " "); got != want {
		r.t.Errorf("told %q, want %q", got, want)
	}
	r.told = nil
}

// Of being ready a change is told, and of a pressure that there is none. A restart of the agent is
// no news, a reboot of the machine is.
func TestEvents(t *testing.T) {
	r := newRig(t, nil, Options{})
	r.env.Runtime = &runtime.Runtime{}
	r.settle(0)
	r.tells("NodeHasSufficientMemory NodeHasNoDiskPressure NodeHasSufficientPID")
	r.env.Runtime = &runtime.Runtime{AsOf: t0, ReadyAt: t0,
		Conditions: []runtime.Condition{runtimeReady, networkReady}}
	r.settle(time.Second)
	r.tells("NodeReady")
	r.env.Runtime.Conditions = []runtime.Condition{runtimeUnready, networkReady}
	r.plan(10 * time.Second)
	r.answer(world.Errorf(world.KindUnavailable, "", "no server"))
	r.tells("") // nobody has been told
	r.settle(time.Second)
	r.tells("NodeNotReady")
	r.restart()
	r.settle(10 * time.Second)
	r.tells("")
	r.restart()
	boot := *r.env.Boot
	boot.BootID = "another"
	r.env.Boot = &boot
	r.settle(10 * time.Second)
	r.tells("Rebooted")
}
