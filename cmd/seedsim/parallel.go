package main

import (
	"fmt"
	"runtime"
	"sync"

	"github.com/spf13/cobra"
)

// addJobs adds the flag for the number of runs in parallel. Its value is checked by checkJobs.
func addJobs(c *cobra.Command, jobs *int) {
	c.Flags().IntVar(jobs, "jobs", runtime.NumCPU(), "the number of runs in parallel")
}

func checkJobs(jobs int) error {
	if jobs < 1 {
		return fmt.Errorf("--jobs %d: must be at least 1", jobs)
	}
	return nil
}

// inParallel calls a function with every number below n in their order, some of them at once, until
// no more are to begin.
func inParallel(n, jobs int, isStopped func() bool, do func(int)) {
	next := make(chan int)
	var group sync.WaitGroup
	for range jobs {
		group.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := 0; i < n && !isStopped(); i++ {
		next <- i
	}
	close(next)
	group.Wait()
}

func neverStops() bool { return false }
