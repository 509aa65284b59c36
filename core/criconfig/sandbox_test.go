package criconfig

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"seedlet.dev/core/budget"
)

// What kubectl keeps in the annotations is left out if it is too long, and nothing else; a pod that
// still has too much is refused. The pod itself is unchanged.
func TestSandboxMetadataIsBounded(t *testing.T) {
	const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	p := newPod()
	p.Spec.Annotations = map[string]string{"small": "a", lastApplied: "{}"}
	p.Spec.Labels = map[string]string{"app": "web"}
	if p.SandboxConfig(0, "").Annotations[lastApplied] != "{}" {
		t.Error("a short manifest is left out")
	}
	p.Spec.Annotations[lastApplied] = strings.Repeat("x", 150<<10)
	p.Spec.Annotations["policy"] = strings.Repeat("x", 30<<10)
	config := p.SandboxConfig(0, "")
	if len(config.Annotations["policy"]) != 30<<10 || config.Annotations["small"] != "a" ||
		config.Annotations[lastApplied] != "" || config.Labels["app"] != "web" {
		t.Errorf("%d annotations and labels %v", len(config.Annotations), config.Labels)
	}
	if len(p.Spec.Annotations) != 3 {
		t.Errorf("the pod has %d annotations left", len(p.Spec.Annotations))
	}
	if err := CheckMetadata(p.Spec); err != nil {
		t.Errorf("refused: %v", err)
	}
	for i := range 500 {
		p.Spec.Labels[fmt.Sprintf("label-%05d", i)] = strings.Repeat("x", 63)
	}
	config = p.SandboxConfig(0, "")
	if len(config.Annotations["policy"]) != 30<<10 || len(config.Labels) < 501 {
		t.Errorf("%d labels, annotations %d", len(config.Labels), len(config.Annotations))
	}
	if err := CheckMetadata(p.Spec); err == nil ||
		!strings.HasSuffix(err.Error(), "bytes, and one pod may have 32768") {
		t.Errorf("%v", err)
	}
}

// What is left out does not count, and the rest may have exactly so much.
func TestSandboxMetadataAtTheBound(t *testing.T) {
	p := newPod()
	p.Spec.Annotations = map[string]string{
		"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 1000),
		"policy": strings.Repeat("x", budget.SandboxMetadataMax-len("policy"))}
	if err := CheckMetadata(p.Spec); err != nil {
		t.Errorf("at the bound: %v", err)
	}
	p.Spec.Annotations["policy"] += "x"
	if err := CheckMetadata(p.Spec); err == nil {
		t.Error("one byte more is accepted")
	}
}

// The agent's own annotation of what a pod uses on the node counts like those of the pod.
func TestCheckAllocation(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: make([]v1.Container, 1)}}
	c := &p.Spec.Containers[0]
	for i := range 800 {
		c.Ports = append(c.Ports, v1.ContainerPort{HostPort: int32(20_000 + i)})
	}
	if err := CheckAllocation(p); err != nil {
		t.Error(err)
	}
	c.Ports = slices.Repeat(c.Ports, 2)
	if err := CheckAllocation(p); err == nil {
		t.Error("twice the ports are within the bound")
	}
	c.Ports, c.Resources.Requests = nil, v1.ResourceList{}
	for i := range 110 {
		name := v1.ResourceName(strings.Repeat("x", 300) + fmt.Sprint("/r", i))
		c.Resources.Requests[name] = resource.MustParse("1")
	}
	const want = "the resources and host ports of the pod take "
	if err := CheckAllocation(p); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
