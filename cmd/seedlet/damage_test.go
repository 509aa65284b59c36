package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"seedlet.dev/realworld/porttest"
)

// stateFiles are the files of the root directory that an agent, or a kubelet before it, has left.
var stateFiles = []string{panicsFile, "allocated_pods_state", "actuated_pods_state",
	"pods/u1/seedlet.json", "pods/u2", "pods/u3/volumes", "pods/u3/etc-hosts",
	"pod-resources/kubelet.sock", "cpu_manager_state", "seedlet.json"}

// damages are what may stand in the place of a file.
var damages = map[string]func(path string) error{
	"a directory": func(path string) error { return os.MkdirAll(filepath.Join(path, "x"), 0o700) },
	"a pipe":      func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"endless":     func(path string) error { return os.Symlink("/dev/zero", path) },
	"a loop":      func(path string) error { return os.Symlink(filepath.Base(path), path) },
	"huge": func(path string) error {
		return errors.Join(os.WriteFile(path, []byte("{"), 0o600), os.Truncate(path, 1<<40))
	},
	"truncated":  func(path string) error { return os.WriteFile(path, []byte(`{"`), 0o600) },
	"a list":     func(path string) error { return os.WriteFile(path, []byte(`[1]`), 0o600) },
	"other text": func(path string) error { return os.WriteFile(path, []byte("\x00\xff"), 0o600) },
	"of other types": func(path string) error {
		return os.WriteFile(path, []byte(`{"data":5,"checksum":"x","panics":{},"start":[]}`), 0o600)
	},
}

// An agent starts, is healthy and ends in time whatever its files have become, and its memory does
// not depend on them.
func TestDamagedStateFiles(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			root := filepath.Join(dir, "root")
			for _, file := range stateFiles {
				path := filepath.Join(root, file)
				err := os.MkdirAll(filepath.Dir(path), 0o700)
				if err = errors.Join(err, damage(path)); err != nil {
					t.Fatal(err)
				}
			}
			startDamaged(t, dir, root)
		})
	}
}

var peakMemory = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

func startDamaged(t *testing.T, dir, root string) {
	healthz := freePort(t)
	config := write(t, filepath.Join(dir, "config.yaml"), header+"podLogsDir: "+
		filepath.Join(dir, "logs")+"\n")
	cmd := command(t, "--config", config, "--root-dir", root, "--port", fmt.Sprint(freePort(t)),
		"--container-runtime-endpoint", "unix://"+filepath.Join(dir, "none.sock"),
		"--healthz-port", fmt.Sprint(healthz), "--cert-dir", filepath.Join(dir, "pki"))
	notified := notifySocket(t, filepath.Join(dir, "notify.sock"))
	cmd.Env = append(cmd.Env, "NOTIFY_SOCKET="+filepath.Join(dir, "notify.sock"))
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		_ = cmd.Process.Kill() // it may have ended
		if t.Failed() {
			t.Logf("it says:\n%.10000s", log.String())
		}
	}()
	select {
	case <-notified:
	case err := <-ended:
		t.Fatalf("ends at its start: %v", err)
	case <-time.After(porttest.Patience):
		t.Fatal("does not start")
	}
	time.Sleep(time.Second) // for it to read the files: nothing tells when it has
	if body := get(t, healthz, "/healthz"); body != "ok" {
		t.Errorf("health is %q", body)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	peak, err := strconv.Atoi(peakMemory.FindStringSubmatch(string(status))[1])
	if err != nil || peak > 400<<10 {
		t.Errorf("%d KiB of memory at most, %v", peak, err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("ends with %v, want exit code 0", err)
		}
	case <-time.After(porttest.Patience):
		t.Error("SIGTERM does not end it")
	}
}
