package cluster

import (
	"context"
	"os"
	"testing"
)

// Require skips a test if no cluster can be started (not Linux, not root, tools missing), with the
// reason. In CI as root, where `make test` has installed everything, a missing tool is a failure.
func Require(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("a real cluster is not started with -short")
	}
	if _, err := findTools(); err != nil {
		if os.Getenv("CI") == "true" && os.Geteuid() == 0 {
			t.Fatalf("CI must run the tests on a real cluster: %v", err)
		}
		t.Skipf("%v", err)
	}
}

// New starts a private cluster for a test after Require, and stops it when the test ends. A cluster
// takes some seconds to start: subtests should share one.
func New(t testing.TB, o Options) *Cluster {
	t.Helper()
	Require(t)
	if o.Progress == nil {
		o.Progress = func(line string) { t.Log(line) }
	}
	c, err := Start(context.Background(), o)
	if err != nil {
		t.Fatalf("starting a private cluster: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the end of the API server's log:\n%s", c.apiServer.LogTail())
			if c.metrics != nil {
				t.Logf("the end of metrics-server's log:\n%s", c.metrics.LogTail())
			}
		}
		if err := c.Stop(); err != nil {
			t.Errorf("stopping the private cluster: %v", err)
		}
		remaining, err := Leftovers(c.Dir)
		if err != nil || len(remaining) > 0 {
			t.Errorf("the private cluster left %q, %v", remaining, err)
		}
	})
	return c
}
