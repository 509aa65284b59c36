package sim

import (
	"testing"

	"seedlet.dev/core/manifest"
	"seedlet.dev/sim/plan"
)

// A page is a list of its entries in order, or the pod of its only entry. An entry that is a text
// replaces the whole page.
func TestManifestPage(t *testing.T) {
	pods := map[string]*plan.Pod{}
	for _, name := range []string{"a", "b"} {
		pods[name] = &plan.Pod{Name: name, Manifest: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
		}}
	}
	p, uids := newManifestPage(), map[string]string{}
	for _, step := range []struct {
		change plan.ManifestChange
		want   string
	}{
		{plan.ManifestChange{File: "2", Pod: "a"}, "a"},
		{plan.ManifestChange{File: "1", Pod: "b", Note: "later"}, "ba"},
		{plan.ManifestChange{File: "x", Text: "kind: Nonsense\n"}, "error"},
		{plan.ManifestChange{File: "2"}, "error"},
		{plan.ManifestChange{File: "x"}, "b"},
		{plan.ManifestChange{File: "1"}, ""},
	} {
		p.apply(&step.change, pods)
		parts, _, err := manifest.DecodePage("http://x", p.text, "n")
		got := ""
		for _, part := range parts {
			name, uid := part.Pod.Name[:1], string(part.Pod.UID)
			if got += name; uids[name] != "" && uids[name] != uid {
				t.Errorf("%s has another UID in another page", name)
			}
			uids[name] = uid
		}
		if err != nil {
			got = "error"
		}
		if got != step.want {
			t.Errorf("after %+v the page is %q, want %q: %s", step.change, got, step.want, p.text)
		}
	}
}
