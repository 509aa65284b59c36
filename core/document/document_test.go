package document

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

func TestParse(t *testing.T) {
	for _, c := range []struct{ name, in, want, err string }{
		{"empty", "", "", ""},
		{"comments only", "# nothing\n---\n# here\n", "", ""},
		{"yaml", "a: 1\n", `{"a":1}`, ""},
		{"json", `{"a": [true, null]}`, `{"a":[true,null]}`, ""},
		{"JSON that is not YAML", `{"a": "\/\ud83d\ude00"}`, `{"a":"/😀"}`, ""},
		{"separator at both ends", "---\na: 1\n---\n", `{"a":1}`, ""},
		{"two documents", "a: 1\n---\nb: 2\n", "", "want one YAML document, have 2"},
		{"empty, then one", "---\n---\nb: 2\n", "", "want one YAML document, have 2"},
		{"duplicate key", "a: 1\na: 2\n", "", `line 2: key "a" already set in map`},
		{"duplicate key in JSON", `{"a": 1, "a": 2}`, "", `line 1: key "a" already set in map`},
		{"empty, at the end", "a: 1\n---\n---\n", `{"a":1}`, ""},
		{"many empty", strings.Repeat("---\n", 65), "", "more than 64 YAML documents, want one"},
		{"as many empty ones as count", strings.Repeat("---\n", 64), "", ""},
		{"an end", "a: 1\n...\n", `{"a":1}`, ""},
		{"an end and more", "a: 1\n...\nb: 2\n", "", "line 2: did not find expected <document start>"},
		{"a null key", "a: [{b: {? \n: 1}}]\n", "", "a[0].b: the key of a map is null"},
		{"a list as key", "b: {}\na: {[x]: 1}\n", "", "a: the key of a map is a list"},
		{"a map as key", "{a: 1}: 1\n", "", "the key of a map is a map"},
		{"not YAML", "a: [", "", "line 1: did not find expected node content"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Parse([]byte(c.in))
			if string(got) != c.want || errorText(err) != c.err {
				t.Errorf("got %q, %q; want %q, %q", got, errorText(err), c.want, c.err)
			}
		})
	}
}

func TestErrorsAreBounded(t *testing.T) {
	for _, data := range []string{
		strings.Repeat("a: 1\n", 100_000),
		"a: &a [" + strings.Repeat("é", 2000) + "\n",
		"*" + strings.Repeat("é", 2000) + "\n",
		strings.Repeat("é", 2000) + ": 1\n" + strings.Repeat("é", 2000) + ": 1\n",
	} {
		_, err := Parse([]byte(data))
		if n := len(errorText(err)); n == 0 || n > 1100 || !utf8.ValidString(err.Error()) {
			t.Errorf("%.10s: %d bytes, %.700s", data, n, errorText(err))
		}
	}
}

func TestDecodeNamesTheField(t *testing.T) {
	for in, want := range map[string]string{
		`[1]`:                                  "want an object, have array",
		`{"maxPods":"many"}`:                   "maxPods: want a number (int32), have string",
		`{"maxPods":9999999999}`:               "maxPods: want a number (int32), have number 9999999999",
		`{"clusterDNS":"1.2.3.4"}`:             "clusterDNS: want a list, have string",
		`{"clusterDNS":["1.2.3.4",5]}`:         "clusterDNS[1]: want a string, have number",
		`{"fileCheckFrequency":"soon"}`:        `fileCheckFrequency: time: invalid duration "soon"`,
		`{"failSwapOn":"yes"}`:                 "failSwapOn: want true or false, have string",
		`{"authentication":{"webhook":5}}`:     "authentication.webhook: want an object, have number",
		`[]`:                                   "want an object, have array",
		`{"evictionHard":{"pid.available":1}}`: "evictionHard.pid.available: want a string, have number",
	} {
		_, err := Decode([]byte(in), &kubeletconfigv1beta1.KubeletConfiguration{})
		if errorText(err) != want {
			t.Errorf("%s: got %q, want %q", in, errorText(err), want)
		}
	}
}

func TestDecodeReturnsUnknownFields(t *testing.T) {
	var c kubeletconfigv1beta1.KubeletConfiguration
	unknown, err := Decode([]byte(`{"maxPods":3,"MaxPods":4,"logging":{"colour":1}}`), &c)
	if err != nil || c.MaxPods != 3 {
		t.Fatalf("got %v, maxPods %d", err, c.MaxPods)
	}
	if len(unknown) != 2 || unknown[0] != "MaxPods" || unknown[1] != "logging.colour" {
		t.Errorf("unknown fields %q", unknown)
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestDecodeRejectsHugeQuantities(t *testing.T) {
	const at = "spec.containers[0].resources.limits.cpu: "
	for amount, want := range map[string]string{
		"1e-999999999":          at + "the exponent of a quantity has at most three digits",
		"1E+0001000":            at + "the exponent of a quantity has at most three digits",
		strings.Repeat("9", 65): at + "a quantity has at most 64 characters",
		"1e0003":                "",
		"1e3":                   "",
	} {
		var pod v1.Pod
		doc := `{"metadata":{"labels":{"commit":"1e99999"}},"spec":{"containers":[{"resources":` +
			`{"limits":{"cpu":"` + amount + `"}}}]}}`
		if _, err := Decode([]byte(doc), &pod); errorText(err) != want {
			t.Errorf("%s: got %q, want %q", amount, errorText(err), want)
		}
	}
	_, err := Decode([]byte(`{"logging":{"options":{"json":{"infoBufferSize":"1e99999"}}}}`),
		&kubeletconfigv1beta1.KubeletConfiguration{})
	want := "logging.options.json.infoBufferSize: the exponent of a quantity has at most three digits"
	if errorText(err) != want {
		t.Errorf("got %q, want %q", errorText(err), want)
	}
}

// A quantity that is rejected is found in the document as written, at any place.
func TestMayHaveHugeQuantity(t *testing.T) {
	for text, want := range map[string]bool{
		"1e3": false, "1E-999": false, "e": false, "100m": false, "ee1e12": false,
		"1e1000": true, "1E+1000": true, "1e-9999": true, "xe1e9999": true, `1\u0065`: true,
		strings.Repeat("9", 64): false, strings.Repeat("9", 65): true,
	} {
		for _, doc := range []string{`{"cpu":"` + text + `"}`, `["` + text + `","1"]`} {
			if got := mayHaveHugeQuantity([]byte(doc)); got != want {
				t.Errorf("%s: %v, want %v", doc, got, want)
			}
		}
	}
}

// A file of a few kilobytes must not keep the agent busy, whatever its content.
func TestHostileDocumentsAreRejectedQuickly(t *testing.T) {
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += string(c) + ": &" + string(c) + " [" + strings.Repeat("*"+string(c-1)+",", 9) + "]\n"
	}
	for name, data := range map[string]string{
		"deep":  "spec: {containers: " + deep + "}",
		"bomb":  bomb,
		"cycle": "a: &a [*a]",
	} {
		start := time.Now()
		doc, err := Parse([]byte(data))
		if err == nil {
			_, err = Decode(doc, &v1.Pod{})
		}
		if err == nil || len(err.Error()) > 1000 {
			t.Errorf("%s: got %v", name, err)
		}
		if took := time.Since(start); took > 3*time.Minute { // its expansion takes hours
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// The place of an invalid value in a long list costs little more than decoding the list does: the
// loop stands still meanwhile. Beyond a bound the error names the list.
func TestLocateInLongLists(t *testing.T) {
	for n, want := range map[int]string{
		1000:    "metadata.finalizers[1000]: want a string, have number",
		300_000: "metadata.finalizers: want a string, have number",
	} {
		doc := []byte(`{"metadata":{"finalizers":[` + strings.Repeat(`"",`, n) + `5]}}`)
		allocated := testing.AllocsPerRun(1, func() {
			if _, err := Decode(doc, &v1.Pod{}); err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		})
		if allocated > float64(8*n+600_000) {
			t.Errorf("%d items: %.0f allocations", n, allocated)
		}
	}
}
