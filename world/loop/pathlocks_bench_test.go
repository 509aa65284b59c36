package loop

import (
	"fmt"
	"testing"
	"time"

	"seedlet.dev/world"
)

// BenchmarkWaitingForPaths is a turn of a loop in which operations wait for the paths of others.
func BenchmarkWaitingForPaths(b *testing.B) {
	const paths = 500
	l, core, _ := runEffects(Limits{})
	var effects []world.Effect
	for i := range 2 * paths {
		eff := statHostPath(world.OpID(i+1), fmt.Sprint("/", i%paths), 0)
		eff.Deadline = t0.Add(time.Hour)
		effects = append(effects, eff)
	}
	core.effects = [][]world.Effect{effects}
	l.Offer(world.Event{Body: &world.FileChanged{}})
	for l.Turn(t0) {
	}
	if l.locks.waiting.len() != paths {
		b.Fatalf("%d operations wait", l.locks.waiting.len())
	}
	b.ReportAllocs()
	for b.Loop() {
		core.events = core.events[:0]
		l.Offer(world.Event{Body: &world.FileChanged{}})
		l.Turn(t0)
		l.NextWake()
	}
}
