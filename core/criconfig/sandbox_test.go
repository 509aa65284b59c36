package criconfig

import (
	"fmt"
	"strings"
	"testing"
)

// The largest annotations are left out, and never a label or a short annotation; the pod itself is
// unchanged.
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

	if err := CheckMetadata(p.Spec); err != nil {
		t.Errorf("refused: %v", err)
	}

	for i := range 500 {
		p.Spec.Labels[fmt.Sprintf("label-%05d", i)] = strings.Repeat("x", 63)
	}
	config = p.SandboxConfig(0, "")
	if config.Annotations["small"] != "a" || len(config.Labels) < 501 {
		t.Errorf("%d labels, annotations %d", len(config.Labels), len(config.Annotations))
	}
	if err := CheckMetadata(p.Spec); err == nil ||
		!strings.Contains(err.Error(), "take 37012 bytes, and one pod may have 32768") {
		t.Errorf("%v", err)
	}
}
