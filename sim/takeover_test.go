package sim_test

import (
	"testing"

	"seedlet.dev/sim/kubelet"
)

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
