// Package log carries out the log effects of the core with klog, in the format and at the
// verbosity that component-base has been configured with.
//
// Lines are written on the loop's goroutine, in the order of the effects. Start reading at Port.
package log

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"

	"seedlet.dev/world"
)

// flushTimeout is how long the sink may take to take a line before it counts as stuck.
const flushTimeout = time.Second

// Configure applies the logging section of the configuration to the process. It may be called
// once, before anything is logged. Errors name the field.
func Configure(c *logsapi.LoggingConfiguration) error {
	logs.InitLogs()
	logsapi.SetRecommendedLoggingConfiguration(c)
	if err := logsapi.ValidateAndApplyAsField(c, nil, field.NewPath("logging")); err != nil {
		return fmt.Errorf("configuring logging: %w", err)
	}
	return nil
}

// Port is a world.Port for log lines. The zero value is ready.
type Port struct {
	mu       sync.Mutex
	flushing *flush // nil for none
}

// flush is one of the sink.
type flush struct {
	began time.Time
	done  chan struct{} // closed when it has ended
}

// Do writes one line. Of events there is one as well; without an API server there is no more.
func (p *Port) Do(eff world.Effect) {
	switch body := eff.Body.(type) {
	case *world.RecordEvent:
		Event(body)
	default:
		write(body.(*world.Log))
	}
}

// Event writes a line about an event, as the kubelet has it.
func Event(e *world.RecordEvent) {
	about := &e.Regarding
	line := world.Log{Message: "Event occurred", Fields: []any{
		"object", klog.KRef(about.Namespace, about.Name), "fieldPath", about.FieldPath,
		"kind", about.Kind, "type", e.Type, "reason", e.Reason, "message", e.Message,
	}}
	if e.Type == v1.EventTypeWarning {
		line.Level = world.LevelWarning
	}
	write(&line)
}

func write(line *world.Log) {
	switch {
	case line.Level <= world.LevelError:
		klog.ErrorS(nil, line.Message, line.Fields...)
	case line.Level == world.LevelWarning:
		// Structured logging has no warnings; the kubelet logs them as information too. The
		// field lets a reader pick them out, whatever the format.
		fields := append([]any{"severity", "warning"}, line.Fields...)
		klog.InfoS(line.Message, fields...)
	default:
		klog.V(klog.Level(line.Level)).InfoS(line.Message, line.Fields...)
	}
}

// Check reports whether the sink still takes lines, for the health port. Of many checks at once,
// one flushes and all wait for that; while it is stuck, the others fail at once.
func (p *Port) Check() error {
	f := p.flush()
	late := time.NewTimer(time.Until(f.began.Add(flushTimeout)))
	defer late.Stop()
	select {
	case <-f.done:
		return nil
	case <-late.C:
		return fmt.Errorf("the log sink has not been flushed within %v", flushTimeout)
	}
}

// flush is the flush under way, or else a new one.
func (p *Port) flush() *flush {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flushing != nil {
		return p.flushing
	}
	f := &flush{began: time.Now(), done: make(chan struct{})}
	p.flushing = f
	go func() {
		klog.Flush()
		p.mu.Lock()
		p.flushing = nil
		p.mu.Unlock()
		close(f.done)
	}()
	return f
}
