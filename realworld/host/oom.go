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
	"syscall"

	"seedlet.dev/world"
)

// KernelLog is where the kernel's log is read.
const KernelLog = "/dev/kmsg"

// recordBytesMax is more than the longest record of the kernel's log (PRINTK_MESSAGE_MAX, 8 KiB). A
// read into less fails with EINVAL.
const recordBytesMax = 64 << 10

// OOMWatch reports the processes that the kernel ends because the machine is out of memory. Close
// it when done.
type OOMWatch struct {
	log  *os.File
	work sync.WaitGroup
}

// WatchOOM starts reading the kernel's log from its end on: an earlier agent reported what
// happened before. Report is called on another goroutine; ended is called there if the log cannot
// be read any more.
func WatchOOM(path string, report func(*world.SystemOOM), ended func(error)) (*OOMWatch, error) {
	// A read of a file that does not block ends when the file is closed.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("watching for processes ended by the kernel: %w", err)
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(fmt.Errorf("seeking the end of %s: %w", path, err), file.Close())
	}
	w := &OOMWatch{log: file}
	w.work.Go(func() {
		if err := readOOMs(file, report); !errors.Is(err, os.ErrClosed) {
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
