package sim_test

import (
	"testing"
	"time"

	"seedlet.dev/sim"
	"seedlet.dev/sim/kubelet"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/truth"
)

// twoRounds has a kubelet before the first agent, and again after it: that one deletes a pod and
// creates it again, and adds a container to another one that runs since the first kubelet.
const twoRounds = `
apiVersion: sim.seedlet.dev/v1alpha1
kind: Plan
metadata: {name: two-rounds}
spec:
  duration: 30s
  settle: 5m
  seed: 1
  order: uniform
  node: {api: true}
  pods:
  - name: stays
    api: true
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: stays}
      spec:
        containers:
        - {name: app, image: "registry.test/app:1", resources: {requests: {cpu: 100m}}}
  - name: again
    api: true
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: again}
      spec: {containers: [{name: app, image: "registry.test/app:1"}]}
  happenings:
  - act: {do: create, pod: stays}
  - act: {do: create, pod: again}
  takeOver:
    ran: 20s
    rounds:
    - after: 10s
      ran: 1m
      down: 1s
      debugs: [{pod: stays, before: 30s}]
      resizes:
      - pod: stays
        before: 20s
        patch: {spec: {containers: [{name: app, resources: {requests: {cpu: 200m}}}]}}
      deletions: [{pod: again, before: 50s}]
      creations: [{pod: again, before: 40s}]
`

// A kubelet that has the node back goes on with what is there, and the agent after it, too.
func TestKubeletComesBack(t *testing.T) {
	p, err := plan.Parse("two-rounds", []byte(twoRounds))
	if err != nil {
		t.Fatal(err)
	}
	started := map[string]int{}
	resizedAt := time.Time{}
	verdict, err := sim.Run(p, sim.Options{WatchFact: func(f truth.Fact) {
		switch f.Kind {
		case truth.ContainerStarted:
			started[f.PodName+"/"+f.Container]++
		case truth.ContainerResized:
			resizedAt = f.Time
		}
	}})
	switch {
	case err != nil:
		t.Fatal(err)
	case verdict.Failure != nil:
		t.Errorf("%s: %s", verdict.Failure.Oracle, verdict.Failure.Message)
	case verdict.Incarnations != 2:
		t.Errorf("there were %d agents, want 2", verdict.Incarnations)
	}
	for name, want := range map[string]int{"stays/app": 1, "stays/debug": 1,
		"again/app": 2} { //ordered: each by itself
		if started[name] != want {
			t.Errorf("%s was started %d times, want %d", name, started[name], want)
		}
	}
	if from := plan.Start.Add(80 * time.Second); resizedAt.Before(from) ||
		resizedAt.After(from.Add(2*time.Second)) {
		t.Errorf("the container was resized at %v, want it by the kubelet after %v", resizedAt, from)
	}
}

// The UIDs that a kubelet gives the static pods of the scenario are recorded: it is not judged that
// those of the agent are the same for any other manifest.
func TestRecordedUIDs(t *testing.T) {
	const name = "take-over"
	found := map[string]bool{}
	for _, s := range loadAll(t) {
		for seed := uint64(1); s.Metadata.Name == name && seed <= 20; seed++ {
			p := generate(t, s, seed)
			for i := range p.Spec.Pods {
				static := &p.Spec.Pods[i]
				metadata, _ := static.Manifest["metadata"].(map[string]any)
				if static.API || metadata["uid"] != nil || metadata["name"] != static.Name {
					continue // the last are replacements
				}
				if found[static.Name] = true; kubelet.RecordedUID(static.ManifestJSON()) == "" {
					t.Errorf("seed %d: no UID is recorded for %s", seed, static.ManifestJSON())
				}
			}
		}
	}
	if len(found) == 0 {
		t.Error("no static pod of the scenario has a UID of the kubelet")
	}
}
