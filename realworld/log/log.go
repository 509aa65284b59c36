// Package log carries out the log effects of the core with klog, in the format and at the verbosity
// that component-base is configured with.
//
// Lines are formatted on the goroutine of their caller, such as the loop, and written by another
// one, in order (sink.go). So a log that is stuck stops neither the loop nor a request to the HTTP
// API; lines are dropped and counted then. Start reading at Port.
package log

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/klog/v2"

	"seedlet.dev/world"
)

// flushTimeout is how long a flush of the sink may take before the health check fails.
const flushTimeout = time.Second

// Configure applies the logging section of the configuration to the process. Of the feature gates
// that are set, those of logging count. It may be called once, before anything is logged. Its
// errors name the field.
func Configure(c *logsapi.LoggingConfiguration, gates map[string]bool) error {
	logs.InitLogs()
	logsapi.SetRecommendedLoggingConfiguration(c)
	known, err := loggingGates(gates)
	if err != nil {
		return fmt.Errorf("configuring logging: %w", err)
	}
	err = logsapi.Validate(c, known, field.NewPath("logging")).ToAggregate()
	if err == nil {
		streams := &logsapi.LoggingOptions{ErrorStream: errorSink, InfoStream: infoSink}
		err = logsapi.ValidateAndApplyWithOptions(c, streams, known)
	}
	if err != nil {
		return fmt.Errorf("configuring logging: %w", err)
	}
	return nil
}

// loggingGates returns the feature gates of logging, as they are set.
func loggingGates(set map[string]bool) (featuregate.FeatureGate, error) {
	gates := featuregate.NewFeatureGate()
	if err := logsapi.AddFeatureGates(gates); err != nil {
		return nil, err
	}
	known, values := gates.GetAll(), map[string]bool{}
	for name, on := range set {
		if _, ok := known[featuregate.Feature(name)]; ok {
			values[name] = on
		}
	}
	return gates, gates.SetFromMap(values)
}

// Flush waits until all lines so far have been written, for flushTimeout at most: neither the end
// of the process nor a panic may wait for a log that is stuck.
func Flush() {
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		flushAll()
	}()
	select {
	case <-flushed:
	case <-time.After(flushTimeout):
	}
}

// flushAll waits until all lines so far have been written.
func flushAll() {
	klog.Flush()
	infoSink.flush()
	errorSink.flush()
}

// Port is a world.Port for log lines. The zero value is ready.
type Port struct {
	mu      sync.Mutex
	current *flush // nil for none
}

// flush is one flush of the sink.
type flush struct {
	started time.Time
	done    chan struct{} // closed when it has ended
}

// Do logs one line. It does not block. An event is logged too; without an API server it is recorded
// nowhere else.
func (p *Port) Do(eff world.Effect) {
	switch body := eff.Body.(type) {
	case *world.RecordEvent:
		Event(body)
	default:
		write(body.(*world.Log))
	}
}

// Event writes the kubelet's log line of an event.
func Event(e *world.RecordEvent) {
	regarding := &e.Regarding
	line := world.Log{Message: "Event occurred", Fields: []any{
		"object", klog.KRef(regarding.Namespace, regarding.Name), "fieldPath", regarding.FieldPath,
		"kind", regarding.Kind, "type", e.Type, "reason", e.Reason, "message", e.Message,
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
		// Structured logging has no warnings; the kubelet logs them as information too. The field
		// identifies them in every format.
		fields := append([]any{"severity", "warning"}, line.Fields...)
		klog.InfoS(line.Message, fields...)
	default:
		klog.V(klog.Level(line.Level)).InfoS(line.Message, line.Fields...)
	}
}

// Check reports whether the sink still accepts lines, for the health port. Of concurrent checks one
// flushes the sink and all wait for it; while a flush is stuck, further checks fail at once.
func (p *Port) Check() error {
	f := p.startFlush()
	timeout := time.NewTimer(time.Until(f.started.Add(flushTimeout)))
	defer timeout.Stop()
	select {
	case <-f.done:
		return nil
	case <-timeout.C:
		return fmt.Errorf("the log sink has not been flushed within %v", flushTimeout)
	}
}

// startFlush returns the flush in progress, or starts one.
func (p *Port) startFlush() *flush {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != nil {
		return p.current
	}
	f := &flush{started: time.Now(), done: make(chan struct{})}
	p.current = f
	go func() {
		flushAll()
		p.mu.Lock()
		p.current = nil
		p.mu.Unlock()
		close(f.done)
	}()
	return f
}
