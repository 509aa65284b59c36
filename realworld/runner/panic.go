package runner

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"strings"

	"seedlet.dev/world"
)

// Panic is a panic of a core: a broken invariant.
type Panic struct {
	Event world.Event // that the core was handling
	Value any         // of the panic; it may hold secrets of a pod
	Place string      // the function and line that panicked
	Stack []byte      // of the goroutine
}

// PanicReporter is a core that reports the panics of its inner core. The stack of a panic shows
// where it was found but not which event led to it, nor which pod. The panic itself goes on.
type PanicReporter struct {
	world.Core
	Panicked func(Panic) // called before the panic goes on
}

// Step calls Step of the inner core.
func (p PanicReporter) Step(ev world.Event) []world.Effect {
	defer func() {
		if value := recover(); value != nil {
			p.Panicked(Panic{Event: ev, Value: value, Place: panicPlace(), Stack: debug.Stack()})
			panic(value)
		}
	}()
	return p.Core.Step(ev)
}

// panicPlace returns the function and the line that the current panic is from.
func panicPlace() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(1, callers)])
	panicking := false
	for {
		frame, more := frames.Next()
		inRuntime := strings.HasPrefix(frame.Function, "runtime.")
		if panicking && !inRuntime {
			return fmt.Sprintf("%s %s:%d", strings.TrimPrefix(frame.Function, "seedlet.dev/"),
				path.Base(frame.File), frame.Line)
		}
		panicking = panicking || frame.Function == "runtime.gopanic"
		if !more {
			return ""
		}
	}
}
