package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"seedlet.dev/world"
)

// memoryAlerts has the kernel report when the usage of memory of two cgroups exceeds thresholds
// (Documentation/admin-guide/cgroup-v1/memory.rst, "Thresholds").
type memoryAlerts struct {
	deliver func(body any)

	access sync.Mutex
	events [alertCount]*os.File // eventfds; nil: nothing is asked for
	work   sync.WaitGroup
}

// The cgroups.
const (
	alertMachine = iota
	alertPods
	alertCount
)

const (
	memoryUsageFile  = "memory.usage_in_bytes"
	eventControlFile = "cgroup.event_control"
	eventBytes       = 8 // of a read or write of an eventfd
)

// set replaces the threshold of a cgroup, of which dir is the directory in the hierarchy of the
// controller memory. A threshold of zero is none.
func (a *memoryAlerts) set(which int, dir string, usage int64) error {
	a.access.Lock()
	defer a.access.Unlock()
	a.clear(which)
	if usage <= 0 {
		return nil
	}
	event, err := watchUsage(dir, usage)
	if err != nil {
		return fmt.Errorf("watching the memory of %s: %w", dir, err)
	}
	a.events[which] = event
	a.work.Go(func() {
		if _, err := event.Read(make([]byte, eventBytes)); err == nil { // else it was closed
			a.deliver(&world.MemoryAlert{})
		}
	})
	return nil
}

func (a *memoryAlerts) clear(which int) {
	if event := a.events[which]; event != nil {
		_ = event.Close() // nothing is lost
		a.events[which] = nil
	}
}

func (a *memoryAlerts) close() {
	a.access.Lock()
	for which := range a.events {
		a.clear(which)
	}
	a.access.Unlock()
	a.work.Wait()
}

// watchUsage returns an eventfd that can be read once the usage of a cgroup has crossed an amount.
func watchUsage(dir string, usage int64) (*os.File, error) {
	watched, err := os.Open(filepath.Join(dir, memoryUsageFile))
	if errors.Is(err, os.ErrNotExist) && hasFile(dir, "cgroup.procs") {
		return nil, errors.New("cgroup v2 does not report usage")
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = watched.Close() }() // it was opened for reading
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	event := os.NewFile(uintptr(fd), "an alert of memory")
	request := fmt.Sprintf("%d %d %d", fd, watched.Fd(), usage)
	if err := writeFile(dir, eventControlFile, request); err != nil {
		return nil, errors.Join(err, event.Close())
	}
	// The kernel reports no crossing that came before the request.
	if hasReached(watched, usage) {
		_, err = event.Write(binary.NativeEndian.AppendUint64(nil, 1))
	}
	if err != nil {
		return nil, errors.Join(err, event.Close())
	}
	return event, nil
}

func hasReached(file *os.File, usage int64) bool {
	var text [32]byte
	n, err := file.ReadAt(text[:], 0)
	if n == 0 {
		return err == nil
	}
	now, err := strconv.ParseInt(strings.TrimSpace(string(text[:n])), 10, 64)
	return err == nil && now >= usage
}
