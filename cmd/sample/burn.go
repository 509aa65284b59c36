package main

import (
	"bytes"
	"flag"
	"os"
	"time"
)

// burn uses one CPU or more for a share of the time, and holds memory that it has written to, and
// space in a file.
func burn(args []string) (int, error) {
	flags := flag.NewFlagSet("burn", flag.ContinueOnError)
	share := flags.Float64("share", 0.5, "of one processor")
	threads := flags.Int("threads", 1, "that use a processor each")
	mib := flags.Int("memory-mib", 64, "memory to hold")
	file := flags.String("file", "", "a file to fill")
	fileMiB := flags.Int("file-mib", 0, "of the file")
	after := flags.Duration("after", 0, "until memory and space are taken")
	if err := parse(flags, args); err != nil {
		return 2, err
	}
	time.Sleep(*after)
	if *file != "" {
		if err := os.WriteFile(*file, bytes.Repeat([]byte("x"), *fileMiB<<20), 0o644); err != nil {
			return 1, err
		}
	}
	held := make([]byte, *mib<<20)
	for i := 0; i < len(held); i += os.Getpagesize() {
		held[i] = 1
	}
	stop := stopRequested()
	for range *threads {
		go useProcessor(*share)
	}
	<-stop
	return int(held[0]) - 1, nil // keeps the memory reachable until here
}

// useProcessor uses a processor for a share of the time, for ever.
func useProcessor(share float64) {
	for share >= 1 { // not by the clock, which goes on while others have the processor
	}
	const period = 20 * time.Millisecond
	for began := range time.Tick(period) {
		for time.Since(began).Seconds() < share*period.Seconds() {
		}
	}
}
