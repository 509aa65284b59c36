package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/klog/v2"
)

// watchdogMin is the shortest time that systemd's watchdog may have: what is shorter would be run
// out by a moment's load.
const watchdogMin = time.Second

// watchdogInterval is how often systemd wants to hear that the agent is well: zero for never.
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

// feed tells systemd that the agent is well, whenever it is; once it is not for long enough,
// systemd starts it anew.
func feed(ctx context.Context, every time.Duration, healthy func(context.Context) error,
	tell func(state string)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		switch err := healthy(ctx); {
		case err == nil:
			tell(daemon.SdNotifyWatchdog)
		case ctx.Err() == nil:
			klog.ErrorS(err, "systemd is not told that the agent is well, as it is not")
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
