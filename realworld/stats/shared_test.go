package stats

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Clients that ask at the same time, or soon after, share one measurement.
func TestOneMeasurementForAll(t *testing.T) {
	b := newBench(t)
	b.pods = []*v1.Pod{podOf("u-1", "web", "main", "c1")}
	asked, answer := make(chan struct{}, 10), make(chan struct{})
	b.runtime.sandboxes = func(context.Context) ([]*runtimeapi.PodSandboxStats, error) {
		asked <- struct{}{}
		<-answer
		return nil, nil
	}
	var clients sync.WaitGroup
	for range 20 {
		clients.Go(func() {
			if _, err := b.usage.get(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	<-asked
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := b.usage.get(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone gets %v", err)
	}
	close(answer)
	clients.Wait()
	for _, later := range []struct {
		after time.Duration
		want  int
	}{{sampleAgeMax - 1, 1}, {1, 2}, {0, 2}, {-time.Hour, 3}} { // the clock may be set back
		b.pass(later.after)
		if _, err := b.usage.get(context.Background()); err != nil {
			t.Fatal(err)
		}
		if b.asked != later.want {
			t.Errorf("%s later: measured %d times, want %d", later.after, b.asked, later.want)
		}
	}
}

// The failure to get the pods is not served for long.
func TestFailureIsTriedAgain(t *testing.T) {
	b := newBench(t)
	b.podsErr = errors.New("busy")
	for range 2 {
		if _, err := b.Summary(t.Context(), true); err == nil || b.asked != 1 {
			t.Errorf("asked %d times: %v", b.asked, err)
		}
	}
	b.podsErr = nil
	b.pass(failureAge)
	if _, err := b.Summary(t.Context(), true); err != nil {
		t.Error(err)
	}
}

// Nothing is measured before the first request, nor after Close.
func TestNothingIsMeasuredWithoutRequest(t *testing.T) {
	b := newBench(t)
	if b.asked != 0 {
		t.Error("measured though nobody asked")
	}
	b.Close()
	if _, err := b.usage.get(context.Background()); err == nil {
		t.Error("no error from a source that is closed")
	}
}

func TestRates(t *testing.T) {
	var r rates
	step := func(at time.Duration, total uint64, want ...uint64) {
		t.Helper()
		got := r.rate("x", noon.Add(at), total)
		r.rotate()
		if (got == nil) != (len(want) == 0) || got != nil && *got != want[0] {
			t.Errorf("at %s: %v, want %v", at, got, want)
		}
	}
	step(0, 100)
	step(10*time.Second, 200, 10)
	step(10*time.Second, 200, 10) // the same sample again
	step(5*time.Second, 150)      // an older sample
	step(20*time.Second, 300, 10)
	step(22*time.Second, 300, 0)
	step(30*time.Second, 10) // the counter was reset
	step(31*time.Second, 60, 50)
	r.rotate() // the sample lacks the counter
	step(40*time.Second, 70)
}
