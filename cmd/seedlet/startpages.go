package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// startTime is how long after the start of the agent its start pages are dropped: its pods run
// then, or wait for something.
const startTime = time.Minute

// dropStartPages drops the pages of the program from the agent's resident memory, once, a while
// after its start. A third of what the start has touched is not needed again: the initialization
// of packages and the registration of all API types. What is needed is mapped again from the page
// cache, without a read from the disk.
func dropStartPages(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(startTime):
	}
	if err := dropProgramPages(); err != nil {
		klog.InfoS("the pages of the start stay in memory", "severity", "warning", "err", err)
	}
}

func dropProgramPages() error {
	program, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	mappings, err := os.Open("/proc/self/smaps")
	if err != nil {
		return err
	}
	defer mappings.Close()
	areas, err := readOnlyAreas(mappings, program)
	if err != nil {
		return err
	}
	for _, a := range areas {
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, a.start, a.end-a.start, unix.MADV_DONTNEED)
		if errno != 0 {
			return fmt.Errorf("madvise: %w", errno)
		}
	}
	return nil
}

// area is a range of addresses.
type area struct{ start, end uintptr }

// readOnlyAreas returns where a program is mapped, by smaps (proc(5)), without the areas that can
// be written and those with pages that are not the file's any more, as those that were relocated.
func readOnlyAreas(smaps io.Reader, program string) (areas []area, err error) {
	var current area
	isProgram := false
	lines := bufio.NewScanner(smaps)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) > 1 && len(fields[1]) == len("r-xp"): // the first line of an area
			_, err := fmt.Sscanf(fields[0], "%x-%x", &current.start, &current.end)
			isProgram = err == nil && len(fields) > 5 && !strings.Contains(fields[1], "w") &&
				strings.Join(fields[5:], " ") == program // which may have been deleted
		case isProgram && strings.Join(fields, " ") == "Anonymous: 0 kB":
			areas = append(areas, current)
		}
	}
	return areas, lines.Err()
}
