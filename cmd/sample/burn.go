package main

import (
	"flag"
	"os"
	"time"
)

// burn uses one CPU for a share of the time, and holds memory that it has written to.
func burn(args []string) (int, error) {
	flags := flag.NewFlagSet("burn", flag.ContinueOnError)
	share := flags.Float64("share", 0.5, "of one processor")
	mib := flags.Int("memory-mib", 64, "memory to hold")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	held := make([]byte, *mib<<20)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	stop := stopRequested()
	const period = 20 * time.Millisecond
	ticks := time.NewTicker(period)
	defer ticks.Stop()
	for {
		select {
		case <-stop:
			return int(held[0]) - 1, nil // keeps the memory reachable until here
		case began := <-ticks.C:
			for time.Since(began).Seconds() < *share*period.Seconds() {
				held[0] = 1
			}
		}
	}
}
