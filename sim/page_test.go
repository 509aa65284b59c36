package sim

import (
	"testing"

	"seedlet.dev/core/manifest"
)

// A page has its entries in order, is a list unless it has one only, and nothing but a text if
// there is one.
func TestPage(t *testing.T) {
	pods := map[string]*PlanPod{}
	for _, name := range []string{"a", "b"} {
		pods[name] = &PlanPod{Name: name, Manifest: map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
		}}
	}
	p, uids := newPage(), map[string]string{}
	for _, step := range []struct {
		change Change
		want   string
	}{
		{Change{File: "2", Pod: "a"}, "a"},
		{Change{File: "1", Pod: "b", Note: "later"}, "ba"},
		{Change{File: "x", Text: "kind: Nonsense\n"}, "error"},
		{Change{File: "2"}, "error"},
		{Change{File: "x"}, "b"},
		{Change{File: "1"}, ""},
	} {
		p.change(&step.change, pods)
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
