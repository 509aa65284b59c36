package stats

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// statfsTimeout bounds the wait for a file system: that of a server that is gone never answers.
	statfsTimeout = time.Second
	// statfsCallsMax bounds the calls that hang, each of which keeps a thread.
	statfsCallsMax = 8
)

// statfsCalls asks file systems for their capacity. A call cannot be cancelled, so one that hangs
// is left alone, and its path is not asked for again until it has returned.
type statfsCalls struct {
	statfs func(string, *unix.Statfs_t) error

	mu      sync.Mutex
	running map[string]*statfsCall // by path
}

type statfsCall struct {
	done chan struct{} // closed when the other fields are set
	stat unix.Statfs_t
	err  error
}

// get returns the state of the file system that holds a path.
func (c *statfsCalls) get(path string, timeout time.Duration) (unix.Statfs_t, error) {
	call, err := c.start(path)
	if err != nil {
		return unix.Statfs_t{}, fmt.Errorf("statfs %s: %w", path, err)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-call.done:
	case <-timer.C:
		return unix.Statfs_t{}, fmt.Errorf("statfs %s: no answer within %v", path, timeout)
	}
	if call.err != nil {
		return unix.Statfs_t{}, fmt.Errorf("statfs %s: %w", path, call.err)
	}
	return call.stat, nil
}

// start starts a call, unless one for the path is running.
func (c *statfsCalls) start(path string) (*statfsCall, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if call := c.running[path]; call != nil {
		return call, nil
	}
	if len(c.running) == statfsCallsMax {
		return nil, fmt.Errorf("%d calls for other paths have not returned", statfsCallsMax)
	}
	call := &statfsCall{done: make(chan struct{})}
	if c.running == nil {
		c.running = map[string]*statfsCall{}
	}
	c.running[path] = call
	go func() {
		call.err = c.statfs(path, &call.stat)
		c.mu.Lock()
		delete(c.running, path)
		c.mu.Unlock()
		close(call.done)
	}()
	return call, nil
}
