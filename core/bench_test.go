package core

import (
	"fmt"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// BenchmarkRelistAtRest measures one relist of 500 running pods that need nothing. It fails if the
// relist leads to any effect but the next relist.
func BenchmarkRelistAtRest(b *testing.B) {
	const pods = 500
	manifests := map[string]string{}
	for i := range pods {
		manifests[fmt.Sprintf("p%03d.yaml", i)] = fmt.Sprintf(`{apiVersion: v1, kind: Pod,
			metadata: {name: p%03d}, spec: {containers: [{name: web, image: i}]}}`, i)
	}
	n := newNode(manifests)
	n.podsMax, n.stepsMax = pods, 1_000_000
	n.restart()
	n.advance(5 * time.Second)
	if len(n.containers) != pods {
		b.Fatalf("%d containers run, want %d", len(n.containers), pods)
	}
	sandboxes := n.perform(&runtimeapi.ListPodSandboxRequest{})
	containers := n.perform(&runtimeapi.ListContainersRequest{})
	b.ReportAllocs()
	for b.Loop() {
		n.now = n.agent.NextWake()
		effects := n.agent.Step(world.Event{Time: n.now})
		completions := make([]world.Event, 0, 2)
		for _, eff := range effects {
			switch eff.Body.(type) {
			case *runtimeapi.ListPodSandboxRequest:
				completions = append(completions, world.Event{Op: eff.Op, Body: sandboxes})
			case *runtimeapi.ListContainersRequest:
				completions = append(completions, world.Event{Op: eff.Op, Body: containers})
			default:
				b.StopTimer()
				completions = append(completions, world.Event{Op: eff.Op, Body: n.perform(eff.Body)})
				b.StartTimer()
			}
		}
		for _, ev := range completions {
			ev.Time = n.now
			if out := n.agent.Step(ev); len(out) > 0 && ev.Body == sandboxes {
				b.Fatalf("a relist at rest led to %d effects: %T", len(out), out[0].Body)
			}
		}
	}
}
