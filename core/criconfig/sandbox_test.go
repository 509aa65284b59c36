package criconfig

import (
	"fmt"
	"strings"
	"testing"

	"seedlet.dev/core/budget"
)

// The largest annotations, then the largest labels, are left out; the pod itself is unchanged.
func TestSandboxMetadataIsBounded(t *testing.T) {
	p := newPod()
	p.Spec.Annotations = map[string]string{"small": "a", "large": strings.Repeat("x", 100<<10),
		"larger": strings.Repeat("x", 150<<10), "middle": strings.Repeat("x", 20<<10)}
	p.Spec.Labels = map[string]string{"app": "web"}
	config := p.SandboxConfig(0, "")
	got := config.Annotations
	if len(got["middle"]) != 20<<10 || got["small"] != "a" || got["large"] != "" ||
		got["larger"] != "" || config.Labels["app"] != "web" {
		t.Errorf("%d annotations and labels %v", len(got), config.Labels)
	}
	if len(p.Spec.Annotations) != 4 {
		t.Errorf("the pod has %d annotations left", len(p.Spec.Annotations))
	}

	for i := range 10_000 {
		p.Spec.Labels[fmt.Sprintf("label-%05d", i)] = strings.Repeat("x", 63)
	}
	config = p.SandboxConfig(0, "")
	delete(config.Annotations, "seedlet.dev/claim") // the agent's own
	bytes := metadataBytes(config.Labels) + metadataBytes(config.Annotations)
	if bytes > budget.SandboxMetadataMax+1<<10 || config.Annotations["small"] != "" ||
		config.Labels["app"] != "web" || config.Labels["io.kubernetes.pod.uid"] != "u" {
		t.Errorf("%d bytes, and %d labels", bytes, len(config.Labels))
	}
}
