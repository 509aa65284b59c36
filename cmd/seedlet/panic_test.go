package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
)

// fragile is a core that panics.
type fragile struct{}

func (fragile) Step(world.Event) []world.Effect { panic("a secret is in the value") }
func (fragile) NextWake() time.Time             { return time.Time{} }

// A panic over a pod is noted for the next agent. One that is about no pod is not. The record has
// the place and not the value, which may hold secrets.
func TestPanicIsNoted(t *testing.T) {
	dir := t.TempDir()
	for _, uid := range []string{"", "u1", "u1"} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic does not go on")
				}
			}()
			reportPanics(fragile{}, func() string { return uid }, openBreaker(dir)).Step(world.Event{})
		}()
	}
	pods := openBreaker(dir).SetAside(time.Now())
	if len(pods) != 1 || pods[0].UID != "u1" || pods[0].Panics != 2 || pods[0].Remaining <= 0 {
		t.Errorf("told the next agent: %+v", pods)
	}
	text, err := os.ReadFile(filepath.Join(dir, panicsFile))
	if err != nil || !strings.Contains(string(text), "fragile.Step panic_test.go:") ||
		strings.Contains(string(text), "secret") {
		t.Errorf("%s, %v", text, err)
	}
}
