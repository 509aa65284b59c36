package manifest

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"seedlet.dev/world/yamljson"
)

// largest returns the largest documents that a step decodes, by what they repeat. Each has as many
// values as is allowed.
func largest() map[string][]byte {
	const head = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"w"},"spec":{"containers":[`
	repeat := func(values int, item string) string { // %d is the number of the item
		var items strings.Builder
		for i := range (ValuesMax - 20) / values {
			fmt.Fprintf(&items, item, i)
		}
		return strings.TrimPrefix(items.String(), ",")
	}
	documents := map[string][]byte{}
	for name, text := range map[string]string{
		"containers": repeat(3, `,{"name":"c%d","image":"i"}`) + `]}}`,
		"variables": `{"name":"c","image":"i","env":[` +
			repeat(3, `,{"name":"A%d","value":"$(A)"}`) + `]}]}}`,
		"invalid variables": `{"name":"c","image":"i","env":[` +
			repeat(3, `,{"name":"=%d","value":"x"}`) + `]}]}}`,
		"volumes": `{"name":"c","image":"i"}],"volumes":[` +
			repeat(4, `,{"name":"v%d","emptyDir":{}}`) + `]}}`,
		"resources": `{"name":"c","image":"i","resources":{"limits":{` +
			repeat(1, `,"a.b/r%d":"1"`) + `}}}]}}`,
		"unknown fields": `{"name":"c","image":"i",` + repeat(1, `,"u%d":1`) + `}]}}`,
		"text": `{"name":"c","image":"i","args":["` +
			strings.Repeat("x", DocumentMax-1000) + `"]}]}}`,
		"wrong type after text": `{"name":"c","image":"i","args":["` +
			strings.Repeat("x", DocumentMax-1000) + `",1]}]}}`,
		"wrong type": `{"name":"c","image":"i","args":[` + repeat(1, `,"%d"`) + `,1]}]}}`,
	} { //ordered: into a map
		documents[name] = []byte(head + text)
	}
	return documents
}

// BenchmarkLargestManifest decodes the largest documents. The goal is 20 ms for each.
func BenchmarkLargestManifest(b *testing.B) {
	for name, doc := range largest() { //ordered: each alone
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _, _ = Decode("f", doc, "n") // some are invalid
			}
		})
	}
}

// No shape of a document takes more than linear time: an invalid one has had an error for each
// value, which were joined.
func TestLargestManifest(t *testing.T) {
	for name, doc := range largest() { //ordered: each alone
		if values := yamljson.CountValues(doc); values > ValuesMax || len(doc) > DocumentMax {
			t.Errorf("%s: %d values, %d bytes", name, values, len(doc))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, _ = Decode("f", doc, "n")
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 32<<20 {
			t.Errorf("%s: %d bytes are allocated", name, got)
		}
	}
}
