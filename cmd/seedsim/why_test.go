package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// late is a scenario in which it is left to chance whether a pod starts in time.
const late = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: late}
spec:
  description: A pod that has to start within a second.
  duration: 10s
  settle: 1m
  pods:
  - manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec: {containers: [{name: web, image: "registry.test/web:1"}]}
  faults:
  - {class: latency, windows: 1, for: 10s, probability: 0.2, takes: 300ms..500ms, always: true}
  expect: [{pods: web, startsWithin: 1s}]
`

func TestWhy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "late.yaml")
	if err := os.WriteFile(file, []byte(late), 0o600); err != nil {
		t.Fatal(err)
	}
	explain := func(seed string) (string, error) {
		c := newCommand()
		var out bytes.Buffer
		c.SetOut(&out)
		c.SetArgs([]string{"why", file, "--seed", seed, "--runs", "20"})
		err := c.Execute()
		return out.String(), err
	}
	text, err := explain(lateSeed)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAIL at ", "same up to  failures", "Decisive: event ", "█", "/20"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	again, _ := explain(lateSeed)
	if again != text {
		t.Errorf("explained otherwise the second time:\n%s", again)
	}
	if _, err := explain(timelySeed); err == nil || errors.Is(err, errFailed) ||
		!strings.Contains(err.Error(), "does not fail") {
		t.Errorf("a plan that passes: %v", err)
	}
}

// The seeds of late that fail by chance, and pass.
const lateSeed, timelySeed = "3", "1"
