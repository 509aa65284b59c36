package nodetest

import (
	"context"
	"os"
	"testing"
)

// New starts a private node for a test and closes it when the test ends. If no node can be started
// (not Linux, not root, missing tools) the test is skipped with the reason. In CI as root, where
// `make test` has installed everything, a missing tool is a failure. A node takes a second or two
// to start: share one among subtests.
func New(t testing.TB, version string) *Node { return NewWith(t, Options{Version: version}) }

// NewWith is New with all options.
func NewWith(t testing.TB, o Options) *Node {
	t.Helper()
	if testing.Short() {
		t.Skip("a real node is not started with -short")
	}
	if _, err := findTools(o.Version); err != nil {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatalf("CI must run the real-runtime tests: %v", err)
		}
		t.Skipf("%v", err)
	}
	n, err := Start(context.Background(), o)
	if err != nil {
		t.Fatalf("starting a private node: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of containerd's log:\n%s", n.daemon.LogTail())
		}
		if err := n.Close(); err != nil {
			t.Errorf("closing the private node: %v", err)
		}
		left, err := Leftovers(n.Dir)
		if err != nil || len(left) > 0 {
			t.Errorf("the private node left %q, %v", left, err)
		}
	})
	return n
}
