package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"seedlet.dev/realworld/nodetest"
	"seedlet.dev/realworld/porttest"
)

// connectionRecorder records the runs of containers by the connections that they hold ("sample
// hold"). A connection ends when its process does, whatever happens to the agent or the runtime.
type connectionRecorder struct {
	listener net.Listener

	mu       sync.Mutex
	recorded []containerRun
}

// containerRun is one run of a container. Its name is the line that the container sent: in
// TestChurn pod, serial number, container and attempt; in a cluster pod and attempt.
type containerRun struct {
	name           string
	started, ended time.Time
}

// newConnectionRecorder starts a recorder that listens until the test ends.
func newConnectionRecorder(t testing.TB) *connectionRecorder {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // connections end with the pods
	c := &connectionRecorder{listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // the listener was closed
			}
			go c.record(conn)
		}
	}()
	return c
}

// address returns the address at which the pods of a node reach the recorder.
func (c *connectionRecorder) address(n *nodetest.Node) string {
	return fmt.Sprintf("%s:%d", n.Gateway(), c.listener.Addr().(*net.TCPAddr).Port)
}

// record records the run behind one connection until the connection ends.
func (c *connectionRecorder) record(conn net.Conn) {
	started := time.Now()
	reader := bufio.NewReader(conn)
	name, err := reader.ReadString('\n')
	if err != nil { // the process was killed before it could say which run it is
		_ = conn.Close() // nothing was written
		return
	}
	c.mu.Lock()
	i := len(c.recorded)
	c.recorded = append(c.recorded, containerRun{name: strings.TrimSpace(name), started: started})
	c.mu.Unlock()
	_, _ = io.Copy(io.Discard, reader) // an error is an end of the connection as well
	c.mu.Lock()
	c.recorded[i].ended = time.Now()
	c.mu.Unlock()
	_ = conn.Close() // no written data can be lost
}

// allRuns returns all runs so far.
func (c *connectionRecorder) allRuns() []containerRun {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.recorded)
}

// waitEnded waits until every run has ended, for a limited time, and returns all runs. The wait is
// needed because the recorder sees the end of a connection after the process has exited.
func (c *connectionRecorder) waitEnded() []containerRun {
	stillRuns := func(r containerRun) bool { return r.ended.IsZero() }
	deadline := time.Now().Add(porttest.Patience)
	for time.Now().Before(deadline) && slices.ContainsFunc(c.allRuns(), stillRuns) {
		time.Sleep(50 * time.Millisecond)
	}
	return c.allRuns()
}

// lastRun returns the newest run whose name has a prefix; a zero run if there is none.
func (c *connectionRecorder) lastRun(prefix string) containerRun {
	var newest containerRun
	for _, r := range c.allRuns() {
		if strings.HasPrefix(r.name, prefix) && r.started.After(newest.started) {
			newest = r
		}
	}
	return newest
}
