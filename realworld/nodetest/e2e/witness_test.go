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
)

// witness sees containers run by the connections that they hold ("sample hold"): whatever happens
// to the agent or the runtime, a connection ends when its process does.
type witness struct {
	listener net.Listener

	mu  sync.Mutex
	all []run
}

// run is one life of a container. Its name is what it said: pod, serial number, container, attempt.
type run struct {
	name         string
	began, ended time.Time
}

// witnesses listens until the test ends.
func witnesses(t testing.TB) *witness {
	t.Helper()
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() }) // the connections have ended with the pods
	w := &witness{listener: listener}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return // it was closed
			}
			go w.watch(conn)
		}
	}()
	return w
}

// address is where the pods of a node find the witness.
func (w *witness) address(n *nodetest.Node) string {
	return fmt.Sprintf("%s:%d", n.Gateway(), w.listener.Addr().(*net.TCPAddr).Port)
}

// watch keeps the record of one connection.
func (w *witness) watch(conn net.Conn) {
	began := time.Now()
	reader := bufio.NewReader(conn)
	name, err := reader.ReadString('\n')
	if err != nil {
		name = "(nobody) " + err.Error()
	}
	w.mu.Lock()
	i := len(w.all)
	w.all = append(w.all, run{name: strings.TrimSpace(name), began: began})
	w.mu.Unlock()
	_, _ = io.Copy(io.Discard, reader) // however it ends, it has ended
	w.mu.Lock()
	w.all[i].ended = time.Now()
	w.mu.Unlock()
	_ = conn.Close() // nothing was written
}

// runs are all lives so far.
func (w *witness) runs() []run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// ended are all lives, once each has ended or a while is over: a process is gone before the end of
// its connection is seen.
func (w *witness) ended(within time.Duration) []run {
	lives := func(r run) bool { return r.ended.IsZero() }
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if !slices.ContainsFunc(w.runs(), lives) {
			break
		}
	}
	return w.runs()
}

// last is the newest life whose name begins so; a zero one if there is none.
func (w *witness) last(prefix string) run {
	var newest run
	for _, r := range w.runs() {
		if strings.HasPrefix(r.name, prefix) && r.began.After(newest.began) {
			newest = r
		}
	}
	return newest
}
