package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
	"seedlet.dev/world"
)

const onePod = `apiVersion: sim.seedlet.dev/v1alpha1
kind: Scenario
metadata: {name: one}
spec:
  description: A pod is created and deleted on a calm node.
  duration: 1m
  settle: 2m
  node: {api: true}
  pods:
  - count: 1
    api: true
    comes: 10s
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec:
        dnsPolicy: Default
        containers:
        - {name: app, image: "registry.test/app:1"}
  actors: {deletions: 1}
`

// What the start and the end of one pod cost, in calls for the pod. Each call more slows down every
// node; the status is written when the pod is seen, when it runs, when its deletion is seen, and at
// its end.
const (
	startCost = "1 ContainerStatus, 1 CreateContainer, 1 ImageStatus, 3 MakeDir, 1 MakeLink, " +
		"2 PatchObject, 1 PodSandboxStatus, 1 RunPodSandbox, 1 SetCgroup, 1 StartContainer, 3 WriteFile"
	endCost = "1 ContainerStatus, 1 DeleteObject, 2 PatchObject, 1 ReadTail, 1 RemoveCgroup, " +
		"1 RemoveContainer, 1 RemovePodSandbox, 3 RemoveTree, 1 StopContainer, 1 StopPodSandbox, " +
		"2 Unmount"
)

// endMax is how long the end of a pod takes from the exit of its last process until its object is
// removed, if the runtime answers as fast as a small machine's.
const endMax = 250 * time.Millisecond

func TestPaceOfOnePod(t *testing.T) {
	s, err := plan.ParseScenario("one.yaml", []byte(onePod), nil)
	if err != nil {
		t.Fatal(err)
	}
	for seed := uint64(1); seed <= 5; seed++ {
		p, err := plan.Generate(s, seed)
		if err != nil {
			t.Fatal(err)
		}
		c := &pace{counts: map[string]int{}}
		verdict, err := Run(p, Options{Watch: c.step, WatchFact: c.fact})
		if err != nil || verdict.Failure != nil {
			t.Fatal(err, verdict)
		}
		if c.start != startCost || c.end != endCost {
			t.Errorf("seed %d: a start costs\n%s\nand an end\n%s", seed, c.start, c.end)
		}
		if took := c.removedAt.Sub(c.exitedAt); took > endMax {
			t.Errorf("seed %d: the object is removed %v after the exit", seed, took)
		}
	}
}

// pace counts the calls between the facts of a pod's life.
type pace struct {
	counts     map[string]int
	start, end string

	exitedAt, removedAt time.Time
}

func (c *pace) step(s Step) {
	for _, eff := range s.Effects {
		if eff.Op != 0 && eff.Tenant != "" {
			c.counts[world.CallName(eff.Body)]++
		}
	}
}

func (c *pace) fact(f truth.Fact) {
	switch f.Kind {
	case truth.ObjectCreated:
		clear(c.counts)
	case truth.ObjectUpdated:
		isDeletion := f.Write.After.Pod != nil && f.Write.After.Pod.DeletionTimestamp != nil
		if isDeletion && c.start == "" {
			c.start = c.text()
			clear(c.counts)
		}
	case truth.ContainerExited:
		c.exitedAt = f.Time
	case truth.ObjectDeleted:
		c.removedAt, c.end = f.Time, c.text()
	}
}

func (c *pace) text() string {
	var all []string
	for _, call := range slices.Sorted(maps.Keys(c.counts)) {
		all = append(all, fmt.Sprintf("%d %s", c.counts[call], call))
	}
	return strings.Join(all, ", ")
}
