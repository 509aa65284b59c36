package yamljson

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// JSON is converted to the same document as if it were parsed as YAML: the UIDs of static pods are
// hashes of that document.
func TestNormalizeJSONAgreesWithYAML(t *testing.T) {
	texts := rapid.StringOf(rapid.RuneFrom([]rune("ab <&>\"\\/\n\té€\u2028~-:#{[0")))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		kinds := []*rapid.Generator[any]{
			rapid.Just[any](nil), texts.AsAny(), rapid.Bool().AsAny(), rapid.Int64().AsAny(),
			rapid.Float64Range(-1e25, 1e25).AsAny(), rapid.IntRange(-3, 3).AsAny(),
			rapid.SampledFrom([]json.RawMessage{[]byte("1.0"), []byte("1e3"), []byte("-0"),
				[]byte("0.1e-2"), []byte(`"\u00e9"`)}).AsAny(),
		}
		if depth > 0 {
			kinds = append(kinds, rapid.SliceOfN(value(depth-1), 0, 3).AsAny(),
				rapid.MapOfN(texts, value(depth-1), 0, 3).AsAny())
		}
		return rapid.OneOf(kinds...)
	}
	rapid.Check(t, func(t *rapid.T) {
		data, err := json.MarshalIndent(rapid.MapOfN(texts, value(2), 0, 3).Draw(t, "object"), "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		doc, ok := normalizeJSON(data)
		want, err := yaml.YAMLToJSONStrict(data)
		if !ok || err != nil || string(doc) != string(want) {
			t.Errorf("%s: got %s, %v; want %s, %v", data, doc, ok, want, err)
		}
	})
}

func TestNormalizeJSONRejectsOtherInput(t *testing.T) {
	for _, data := range []string{"", "null", "[1]", `"a"`, `{"a":1,"a":2}`, `{"a":1}{"b":2}`,
		`{a: 1}`, `{"a":{"b":1,"b":2}}`, "{} # empty"} {
		if doc, ok := normalizeJSON([]byte(data)); ok {
			t.Errorf("%s: %s", data, doc)
		}
	}
}

func TestCountValues(t *testing.T) {
	for doc, want := range map[string]int{`1`: 1, `"a,{[\"\\"`: 1,
		`{"a":1,"b":[2,3]}`: 5, `[[],{}]`: 5} { //ordered: each alone
		if got := CountValues([]byte(doc)); got != want {
			t.Errorf("%s: %d, want %d", doc, got, want)
		}
	}
}

// An ambiguous file is read as the kubelet reads one, and the problem says what is ambiguous.
func TestParseLeniently(t *testing.T) {
	for _, c := range []struct{ in, want, problem string }{
		{"a: 1\n", `{"a":1}`, ""},
		{"a: 1\na: 2\n", `{"a":2}`, `line 2: key "a" already set in map`},
		{`{"a": 1, "a": 2}`, `{"a":2}`, `line 1: key "a" already set in map`},
		{"a: 1\n---\nb: 2\n", `{"a":1}`, "want one YAML document, have 2"},
		{"# nothing\n", "", ""},
	} {
		doc, problem, err := ParseLeniently([]byte(c.in))
		if string(doc) != c.want || problem != c.problem || err != nil {
			t.Errorf("%q: %q, %q, %v; want %q, %q", c.in, doc, problem, err, c.want, c.problem)
		}
	}
	if doc, _, err := ParseLeniently([]byte("a: [")); err == nil {
		t.Errorf("what is no YAML is read as %q", doc)
	}
}
