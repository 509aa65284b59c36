package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// What a claim says takes the same room as the pod.
func TestClaim(t *testing.T) {
	p := changed(onPort("p", "10.0.0.1", 80), func(p *v1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, asks("", "cpu", "500m").Spec.Containers...)
		p.Spec.InitContainers = asks("", "cpu", "2", "memory", "1Gi").Spec.Containers
		p.Spec.Overhead = list("memory", "1Mi")
	})
	is := Claimed(Claim(p))
	if d := cmp.Diff(requests(p), requests(is)); d != "" {
		t.Error(d)
	}
	check := Check{Pod: onPort("q", "", 80), Others: []*v1.Pod{is}}
	if got := check.Reject(); len(got) != 1 || got[0].Reason != "NodePorts" {
		t.Errorf("rejected for %v", got)
	}
	if Claim(asks("p")) != "" || len(requests(Claimed("{"))) > 0 {
		t.Error("a place is more than that")
	}
}
