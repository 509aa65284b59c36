package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/klog/v2"
)

// watchdogMin is the shortest accepted timeout of systemd's watchdog. A shorter one would expire
// under a short load.
const watchdogMin = time.Second

// watchdogInterval returns the interval at which systemd's watchdog is fed; zero without a
// watchdog.
func watchdogInterval() (time.Duration, error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	switch {
	case err != nil:
		return 0, fmt.Errorf("WATCHDOG_USEC: %w", err)
	case limit == 0:
		return 0, nil
	case limit <= watchdogMin:
		return 0, fmt.Errorf("WATCHDOG_USEC: %v is too short, want more than %v", limit, watchdogMin)
	}
	return limit / 2, nil
}

// watchdogRetry is how long after a failure the watchdog is notified again, once. Without it, one
// failure would leave the next notification for the moment in which the watchdog expires.
const watchdogRetry = time.Second

// feedWatchdog notifies systemd's watchdog as long as the agent is healthy. Once the agent is
// unhealthy for longer than the watchdog's timeout, systemd restarts it.
func feedWatchdog(ctx context.Context, every time.Duration, healthy func(context.Context) error,
	notify func(state string) error) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		switch err := healthy(ctx); {
		case err == nil:
			logError(notifyTwice(ctx, notify))
		case ctx.Err() == nil:
			klog.ErrorS(err, "unhealthy: systemd's watchdog is not fed")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// notifyTwice notifies the watchdog, and again if that failed.
func notifyTwice(ctx context.Context, notify func(state string) error) error {
	if notify(daemon.SdNotifyWatchdog) == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(watchdogRetry):
		return notify(daemon.SdNotifyWatchdog)
	}
}
