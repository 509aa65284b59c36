package porttest

import (
	"log"
	"strings"
	"sync"
	"testing"
)

// ErrorLog returns the log of a test's server, for http.Server.ErrorLog: what the server says about
// its clients, such as failed handshakes, belongs to the output of the test. Lines after the end of
// the test are dropped.
func ErrorLog(t testing.TB) *log.Logger {
	w := &testWriter{t: t}
	t.Cleanup(w.end)
	return log.New(w, "", 0)
}

// testWriter writes lines to the output of a test.
type testWriter struct {
	mu sync.Mutex
	t  testing.TB // nil after the end of the test, which may not log any more
}

// Write implements io.Writer.
func (w *testWriter) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.t != nil {
		w.t.Log(strings.TrimSpace(string(line)))
	}
	return len(line), nil
}

func (w *testWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.t = nil
}
