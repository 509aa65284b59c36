package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"seedlet.dev/realworld/porttest"
)

// A started agent has the score and the limit of open files that are configured. The values are
// those that a process may set without CAP_SYS_RESOURCE.
func TestProcessSettings(t *testing.T) {
	dir := t.TempDir()
	notified := notifySocket(t, filepath.Join(dir, "notify.sock"))
	cmd := command(t, "--oom-score-adj", "987", "--max-open-files", "1234", "--root-dir",
		filepath.Join(dir, "root"), "--healthz-port", "0", "--enable-server=false",
		"--hostname-override", "node-a",
		"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"))
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify.sock"))
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-notified:
	case <-time.After(porttest.Patience):
		t.Fatal("it does not begin")
	}
	for file, want := range map[string]string{
		"oom_score_adj": `^987\n$`, "limits": `\nMax open files +1234 +1234 +files`,
	} {
		got, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", cmd.Process.Pid, file))
		if err != nil || !regexp.MustCompile(want).Match(got) {
			t.Errorf("%s of the agent: %s, %v; want %s", file, got, err, want)
		}
	}
	endInOrder(t, cmd, notified)
	if t.Failed() {
		t.Logf("it says:\n%s", log.String())
	}
}

// What an agent without privileges lacks is in its log, and the agent goes on.
func TestProcessWithoutPrivileges(t *testing.T) {
	var log bytes.Buffer
	state := klog.CaptureState()
	defer state.Restore()
	klog.LogToStderr(false)
	klog.SetOutput(&log)
	c := defaultConfig()
	c.MaxOpenFiles = 1 << 40
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // it ends with the user of this thread
		const other = 65534
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, other, other, other)
		if errno != 0 {
			done <- errno
			return
		}
		setUpProcess(c)
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	klog.Flush()
	for _, want := range []string{`"the agent has to run as root" uid=65534`,
		`"oomScoreAdj has no effect"`, `"maxOpenFiles has no effect"`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %s:\n%s", want, log.String())
		}
	}
}

// The first renewal of the lease that fails is followed by others before the lease expires.
func TestHeartbeatTimeout(t *testing.T) {
	for _, c := range []struct {
		frequency time.Duration
		lease     int32 // seconds
		want      time.Duration
	}{
		{10 * time.Second, 40, 10 * time.Second}, // the defaults
		{time.Minute, 40, 10 * time.Second},
		{10 * time.Second, 8, 2 * time.Second},
		{5 * time.Second, 40, 5 * time.Second},
	} {
		config := defaultConfig()
		config.NodeStatusUpdateFrequency = metav1.Duration{Duration: c.frequency}
		config.NodeLeaseDurationSeconds = c.lease
		if got := heartbeatTimeout(config); got != c.want {
			t.Errorf("%v for %v and a lease of %d s, want %v", got, c.frequency, c.lease, c.want)
		}
	}
}

// /flagz has all flags, and no value that may be secret.
func TestServedFlags(t *testing.T) {
	line := newCommandLine(defaultConfig())
	args := []string{"--storage-driver-password=hidden", "--manifest-url=http://hidden@a.example",
		"--manifest-url-header=X:hidden", "--node-labels=shown=true"}
	if err := line.set.Parse(args); err != nil {
		t.Fatal(err)
	}
	shown := servedFlags(line.set)
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		want := "CLASSIFIED"
		if name == "node-labels" {
			want = "shown=true"
		}
		if shown[name] != want {
			t.Errorf("--%s is shown as %q, want %q", name, shown[name], want)
		}
	}
}
