package host

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"seedlet.dev/world"
)

// KernelLog is where the kernel's log is read.
const KernelLog = "/dev/kmsg"

// recordBytesMax is more than the longest record of the kernel's log (PRINTK_MESSAGE_MAX, 8 KiB). A
// read into less fails with EINVAL.
const recordBytesMax = 64 << 10

// At most reportsMax processes are reported in reportsPeriod: a tenant whose processes are ended
// all the time must not fill the agent's queue of events. The kernels of today announce no more
// than ten in five seconds (oom_rs in mm/oom_kill.c), but need not.
const (
	reportsMax    = 20
	reportsPeriod = 10 * time.Second
)

// OOMWatch reports the processes that the kernel ends because the machine is out of memory. Close
// it when done.
type OOMWatch struct {
	log     *os.File
	work    sync.WaitGroup
	reports oomReports
}

// WatchOOM starts reading the kernel's log from its end on: an earlier agent reported what
// happened before. Report is called on another goroutine, and returns false if the agent cannot
// take the report; ended is called there if the log cannot be read any more.
func WatchOOM(path string, report func(*world.SystemOOM) bool, ended func(error)) (*OOMWatch,
	error) {
	// A read of a file that does not block ends when the file is closed.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("watching for processes ended by the kernel: %w", err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("seeking the end of %s: %w", path, err), file.Close())
	}
	w := &OOMWatch{log: file, reports: oomReports{report: report, now: time.Now}}
	w.work.Go(func() {
		if err := readOOMs(file, w.reports.add); !errors.Is(err, os.ErrClosed) {
			ended(fmt.Errorf("reading %s: %w", path, err))
		}
	})
	return w, nil
}

// Close ends the watch; w may be nil.
func (w *OOMWatch) Close() error {
	if w == nil {
		return nil
	}
	err := w.log.Close()
	w.work.Wait()
	return err
}

// Metrics returns the metrics of the watch; w may be nil.
func (w *OOMWatch) Metrics() []world.Metric {
	var omitted uint64
	if w != nil {
		omitted = w.reports.omittedTotal.Load()
	}
	return []world.Metric{{Name: "seedlet_system_ooms_dropped_total", Counter: true,
		Value: float64(omitted),
		Help: "Processes ended by the kernel because the machine was out of memory that were not " +
			"reported to the core one by one: there were too many, or its queue was full."}}
}

// oomReports bounds the rate of the reports. It is used by one goroutine.
type oomReports struct {
	report func(*world.SystemOOM) bool
	now    func() time.Time

	since        time.Time // when the first of the reports in count was made
	count        int
	omitted      uint64 // since the last report that was taken, which the next one says
	omittedTotal atomic.Uint64
}

// add reports a process, unless there were too many.
func (r *oomReports) add(oom *world.SystemOOM) {
	if now := r.now(); now.Sub(r.since) >= reportsPeriod {
		r.since, r.count = now, 0
	}
	oom.Omitted = r.omitted
	if r.count < reportsMax && r.report(oom) {
		r.count, r.omitted = r.count+1, 0
		return
	}
	r.omitted++
	r.omittedTotal.Add(1)
}

// readOOMs reports what the log says until it ends. The kernel may end several processes for one
// lack of memory (memory.oom.group); the first one is reported, as by the kubelet (cAdvisor's
// oomparser). The kernel limits the rate of the records that announce such ends.
func readOOMs(log io.Reader, report func(*world.SystemOOM)) error {
	lines := bufio.NewReaderSize(log, recordBytesMax)
	announced := false
	for {
		line, err := lines.ReadString('\n')
		if errors.Is(err, syscall.EPIPE) {
			continue // the kernel has overwritten records that were not read yet
		}
		message := kernelMessage(line)
		if match := killedRecord.FindStringSubmatch(message); match != nil && announced {
			announced = false
			if oom := systemOOM(match); oom != nil {
				report(oom)
			}
		}
		announced = announced || strings.Contains(message, " invoked oom-killer: ")
		if err != nil {
			return err
		}
	}
}

// killedRecord matches what the kernel logs when it ends a process for lack of memory, in all its
// versions: whether a cgroup or the machine is out of memory, the process ID and the name.
var killedRecord = regexp.MustCompile(`^(Memory cgroup out|Out) of memory` +
	`(?: \(oom_kill_allocating_task\))?: Kill(?:ed)? process (\d+) \((.*?)\)(?:,| total-vm| score)`)

// kernelMessage returns the message of a record "PRIORITY,SEQUENCE,TIME,FLAGS;MESSAGE". It is empty
// for records that a process has written: they have a facility, and tell nothing of the kernel.
func kernelMessage(record string) string {
	prefix, message, _ := strings.Cut(record, ";")
	number, _, _ := strings.Cut(prefix, ",")
	const levels = 8 // of a facility; the kernel's own is the first
	if priority, err := strconv.ParseUint(number, 10, 32); err != nil || priority >= levels {
		return ""
	}
	return message
}

// systemOOM returns what a match of killedRecord tells; nil if only a cgroup is out of memory.
func systemOOM(parts []string) *world.SystemOOM {
	pid, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil || parts[1] != "Out" {
		return nil
	}
	return &world.SystemOOM{Process: parts[3], PID: pid}
}
