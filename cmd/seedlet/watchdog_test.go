package main

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Systemd is told that the agent is well as long as it is, and again when it is.
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
		told := 0
		go feed(ctx, 10*time.Second, healthy, func(state string) {
			if state != "WATCHDOG=1" {
				t.Errorf("told %q", state)
			}
			told++
		})
		for _, step := range []struct {
			stuck bool
			told  int
		}{{false, 4}, {true, 4}, {false, 8}} {
			stuck.Store(step.stuck)
			time.Sleep(34 * time.Second)
			synctest.Wait()
			if told != step.told {
				t.Errorf("told %d times, want %d", told, step.told)
			}
		}
		cancel()
		synctest.Wait()
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
