package subprocess

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A program that has succeeded counts as such although what it has started holds its output, of
// which the beginning is kept.
func TestOutputIsHeld(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "echo 12345; sleep 60 &")
	out := &Buffer{Max: 3}
	cmd.Stdout = out
	if err := Run(cmd); err != nil || out.String() != "123" || !out.IsCut {
		t.Errorf("%v, %q, %v", err, out, out.IsCut)
	}
	_ = cmd.Cancel() // what is left of it
}

// A program that hangs is killed with what it has started when its context ends.
func TestProgramHangs(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", "sleep 1000 & echo $!; wait")
	out := &Buffer{Max: 100}
	cmd.Stdout = out
	if err := Run(cmd); err == nil {
		t.Error("it has ended")
	}
	if state, err := exec.CommandContext(t.Context(), "ps", "-o", "stat=", "-p",
		strings.TrimSpace(out.String())).Output(); err == nil && !strings.HasPrefix(string(state), "Z") {
		t.Errorf("process %s is left: %s", out, state)
	}
}
