package host

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

// kernelRecords has records of the kernel's log as /dev/kmsg has them.
const kernelRecords = "testdata/kmsg"

var kernelOOMs = []*world.SystemOOM{{Process: "stress", PID: 4711}, {Process: "a (b) c", PID: 4713},
	{Process: "sh", PID: 4714}}

// overwritten fails one read in between with EPIPE, as the kernel's log does after an overflow.
type overwritten struct {
	io.Reader
	failed bool
}

func (r *overwritten) Read(data []byte) (int, error) {
	if !r.failed {
		r.failed = true
		return 0, syscall.EPIPE
	}
	return r.Reader.Read(data)
}

func TestOOMsInKernelLog(t *testing.T) {
	file, err := os.Open(kernelRecords)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var found []*world.SystemOOM
	err = readOOMs(&overwritten{Reader: file}, func(oom *world.SystemOOM) {
		found = append(found, oom)
	})
	if !errors.Is(err, io.EOF) {
		t.Errorf("ends with %v", err)
	}
	if diff := cmp.Diff(kernelOOMs, found); diff != "" {
		t.Errorf("found (-want +found):\n%s", diff)
	}
}

// The kernel's own log is read where that is allowed; the end of the watch does not wait for a
// record.
func TestKernelLogIsWatchedFromItsEnd(t *testing.T) {
	ended := make(chan error, 1)
	w, err := WatchOOM(kernelRecords, func(oom *world.SystemOOM) bool {
		t.Errorf("an old record is reported: %v", oom)
		return true
	}, func(err error) { ended <- err })
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, io.EOF) {
		t.Errorf("the end of a file is reported as %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}

	w, err = WatchOOM(KernelLog, func(*world.SystemOOM) bool { return true },
		func(err error) { ended <- err })
	if err != nil {
		t.Logf("the kernel's log cannot be read here: %v", err)
		return
	}
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case err := <-ended:
		t.Errorf("the watch ended by itself: %v", err)
	case <-time.After(porttest.Patience):
		t.Fatal("the watch does not end")
	}
}

func TestMissingKernelLog(t *testing.T) {
	w, err := WatchOOM(filepath.Join(t.TempDir(), "none"), nil, nil)
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

// However many processes the kernel ends, and however busy the agent is, few are reported one by
// one; the next report has the number of the others.
func TestRateOfOOMs(t *testing.T) {
	now, taken := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), true
	var reported, processes uint64
	r := oomReports{now: func() time.Time { return now }, report: func(oom *world.SystemOOM) bool {
		if taken {
			reported, processes = reported+1, processes+1+oom.Omitted
		}
		return taken
	}}
	end := func(count int, every time.Duration) {
		for range count {
			r.add(&world.SystemOOM{Process: "bomb", PID: 1})
			now = now.Add(every)
		}
	}
	expect := func(wantReported, wantProcesses, wantOmitted uint64) {
		t.Helper()
		if omitted := r.omittedTotal.Load(); reported != wantReported || processes != wantProcesses ||
			omitted != wantOmitted {
			t.Errorf("%d reports of %d processes, %d omitted; want %d of %d, %d", reported, processes,
				omitted, wantReported, wantProcesses, wantOmitted)
		}
	}
	end(60_000, time.Millisecond) // a minute
	expect(6*reportsMax, 50_000+reportsMax, 60_000-6*reportsMax)
	now = now.Add(reportsPeriod)
	taken = false
	end(3, 0)
	expect(6*reportsMax, 50_000+reportsMax, 60_003-6*reportsMax)
	taken = true
	end(1, 0)
	expect(6*reportsMax+1, 60_004, 60_003-6*reportsMax)
}
