package verify

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// differencesMax bounds the differences that are reported.
const differencesMax = 40

// Differences returns where two values that were decoded from JSON differ, a line each: the path,
// and both values.
func Differences(a, b any) []string {
	var d differences
	d.compare("", a, b)
	if len(d) > differencesMax {
		rest := len(d) - differencesMax
		return append(d[:differencesMax], fmt.Sprintf("and %d more", rest))
	}
	return d
}

type differences []string

func (d *differences) compare(path string, a, b any) {
	switch x := a.(type) {
	case map[string]any:
		if y, isMap := b.(map[string]any); isMap {
			names := maps.Clone(x)
			maps.Copy(names, y)
			for _, name := range slices.Sorted(maps.Keys(names)) {
				d.compare(path+"."+name, valueOf(x, name), valueOf(y, name))
			}
			return
		}
	case []any:
		if y, isList := b.([]any); isList && len(x) == len(y) {
			for i := range x {
				d.compare(fmt.Sprintf("%s[%d]", path, i), x[i], y[i])
			}
			return
		}
	}
	if before, after := text(a), text(b); before != after {
		*d = append(*d, fmt.Sprintf("%s: %s, then %s", path, before, after))
	}
}

// absent is the value of a field that is not there.
type absent struct{}

func valueOf(m map[string]any, name string) any {
	if v, exists := m[name]; exists {
		return v
	}
	return absent{}
}

// text returns a value in JSON, cut to a line that can be read.
func text(v any) string {
	if v == (absent{}) {
		return "absent"
	}
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	const longest = 200
	if len(data) > longest {
		return string(data[:longest]) + fmt.Sprintf("… (%d bytes)", len(data))
	}
	return string(data)
}
