package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/porttest"
)

// The agent begins when its lock file is free, and ends in order when another process opens it.
func TestLockFile(t *testing.T) {
	dir := t.TempDir()
	lock := filepath.Join(dir, "lock")
	other, err := os.Create(lock)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	notified := notifySocket(t, filepath.Join(dir, "notify.sock"))
	cmd := command(t, "--lock-file", lock, "--exit-on-lock-contention", "--root-dir",
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
	case state := <-notified:
		t.Fatalf("%s while another process has the lock", state)
	case <-time.After(time.Second):
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case state := <-notified:
		if state != "READY=1" {
			t.Errorf("systemd is told %q first", state)
		}
	case <-time.After(porttest.Patience):
		t.Fatal("it does not begin after the lock was released")
	}
	if _, err := os.ReadFile(lock); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("ends with %v; it says:\n%s", err, log.String())
	}
}
