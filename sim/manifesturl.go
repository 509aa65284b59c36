package sim

import (
	"encoding/json"
	"maps"
	"slices"

	"seedlet.dev/sim/plan"
)

// manifestPage is the content of the manifest URL. It has entries, as the manifest directory has
// files, so that the same changes can be made to both.
type manifestPage struct {
	entries map[string]*plan.ManifestChange // the last write of each entry, by name
	text    []byte
	broken  bool // an entry is a text
}

func newManifestPage() manifestPage {
	return manifestPage{entries: map[string]*plan.ManifestChange{},
		text: []byte(plan.EmptyPodList)}
}

// names returns the names of the entries, in the order of the page.
func (p *manifestPage) names() []string { return slices.Sorted(maps.Keys(p.entries)) }

// apply writes or removes an entry. If an entry is a text, the page is that text and nothing else.
func (p *manifestPage) apply(c *plan.ManifestChange, pods map[string]*plan.Pod) {
	p.entries[c.File] = c
	if c.Pod == "" && c.Text == "" {
		delete(p.entries, c.File)
	}
	notes, items := "", []any{}
	for _, name := range p.names() {
		entry := p.entries[name]
		if entry.Text != "" {
			p.text, p.broken = []byte(entry.Text), true
			return
		}
		if entry.Note != "" {
			notes += "# " + entry.Note + "\n"
		}
		items = append(items, pods[entry.Pod].Manifest)
	}
	content := any(map[string]any{"apiVersion": "v1", "kind": "PodList", "items": items})
	if len(items) == 1 {
		content = items[0]
	}
	data, err := json.Marshal(content)
	if err != nil {
		panic("sim: cannot encode the page at the manifest URL: " + err.Error())
	}
	p.text, p.broken = append([]byte(notes), data...), false
}
