package sim

import (
	"encoding/json"
	"maps"
	"slices"
)

// page is what is at the manifest URL. It has entries, as a directory has files, so that the same
// things happen to both.
type page struct {
	entries map[string]*Change // what was written last, by name
	text    []byte
}

func newPage() page { return page{map[string]*Change{}, []byte(emptyPage)} }

const emptyPage = `{"apiVersion":"v1","kind":"PodList","items":[]}`

// names are those of the entries, in the order in which the page has them.
func (p *page) names() []string { return slices.Sorted(maps.Keys(p.entries)) }

// change writes or removes an entry. If one is a text and no pod, it is all that the page says.
func (p *page) change(c *Change, pods map[string]*PlanPod) {
	p.entries[c.File] = c
	if c.Pod == "" && c.Text == "" {
		delete(p.entries, c.File)
	}
	notes, items := "", []any{}
	for _, name := range p.names() {
		entry := p.entries[name]
		if entry.Text != "" {
			p.text = []byte(entry.Text)
			return
		}
		if entry.Note != "" {
			notes += "# " + entry.Note + "\n"
		}
		items = append(items, pods[entry.Pod].Manifest)
	}
	whole := any(map[string]any{"apiVersion": "v1", "kind": "PodList", "items": items})
	if len(items) == 1 {
		whole = items[0]
	}
	data, err := json.Marshal(whole)
	if err != nil {
		panic("sim: a page cannot be written: " + err.Error())
	}
	p.text = append([]byte(notes), data...)
}
