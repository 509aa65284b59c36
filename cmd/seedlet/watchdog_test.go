package main

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// The watchdog is fed while the agent is healthy, not while it is unhealthy, and again afterwards.
func TestFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var stuck atomic.Bool
		healthy := func(context.Context) error {
			if stuck.Load() {
				return errors.New("stuck")
			}
			return nil
		}
		notified := 0
		go feedWatchdog(ctx, 10*time.Second, healthy, func(state string) error {
			if state != "WATCHDOG=1" {
				t.Errorf("notified %q", state)
			}
			notified++
			return nil
		})
		for _, step := range []struct {
			stuck    bool
			notified int
		}{{false, 4}, {true, 4}, {false, 8}} {
			stuck.Store(step.stuck)
			time.Sleep(34 * time.Second)
			synctest.Wait()
			if notified != step.notified {
				t.Errorf("notified %d times, want %d", notified, step.notified)
			}
		}
		cancel()
		synctest.Wait()
	})
}

// A notification that fails is repeated once, after a second.
func TestFeedAfterFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		healthy := func(context.Context) error { return nil }
		began := time.Now()
		var at []time.Duration
		go feedWatchdog(ctx, 10*time.Second, healthy, func(string) error {
			at = append(at, time.Since(began))
			return errors.New("refused")
		})
		time.Sleep(15 * time.Second)
		cancel()
		synctest.Wait()
		want := []time.Duration{0, time.Second, 10 * time.Second, 11 * time.Second}
		if !slices.Equal(at, want) {
			t.Errorf("notified at %v, want %v", at, want)
		}
	})
}

func TestWatchdogInterval(t *testing.T) {
	for text, want := range map[string]time.Duration{"": 0, "30000000": 15 * time.Second} {
		t.Setenv("WATCHDOG_USEC", text)
		if got, err := watchdogInterval(); err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"often", "-1", "1000000"} {
		t.Setenv("WATCHDOG_USEC", text)
		if got, err := watchdogInterval(); err == nil {
			t.Errorf("%q: %v, want an error", text, got)
		}
	}
}
