package core

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/world"
)

// Whatever may be secret is replaced, wherever it is; all else stays as it is.
func TestRedact(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"token":"x","a":{"token":7,"password":"y\"","url":["z"]},"credentialHash":"h"}`,
			`{"token":"[redacted]","a":{"token":7,"password":"[redacted]","url":["z"]},` +
				`"credentialHash":"[redacted]"}`},
		{`[{"env":[{"name":"A","value":"x"},{"name":"B","value":null},{"value":{"a":[1]}},"value"]}]`,
			`[{"env":[{"name":"A","value":"[redacted]"},{"name":"B","value":null},` +
				`{"value":"[redacted]"},"value"]}]`},
		{`{"env":{"value":"x"},"httpHeaders":[{"value":"y","valueFrom":{"token":"z"}}],"value":"v"}`,
			`{"env":{"value":"x"},"httpHeaders":[{"value":"[redacted]",` +
				`"valueFrom":{"token":"[redacted]"}}],"value":"v"}`},
		{`{"secret":{"data":{"k":"x","token":{"a":1}},"stringData":{},"binaryData":{"b":"y"},` +
			`"metadata":{"data":{"k":"kept"}}}}`,
			`{"secret":{"data":{"k":"[redacted]","token":"[redacted]"},"stringData":{},` +
				`"binaryData":{"b":"[redacted]"},"metadata":{"data":{"k":"kept"}}}}`},
		{`{"configMap":[{"data":{"k":"kept"}}],"data":{"k":"kept","url":"x"},"secret":"kept"}`,
			`{"configMap":[{"data":{"k":"kept"}}],"data":{"k":"kept","url":"[redacted]"},"secret":"kept"}`},
		{`{"\u0074oken":"x","` + annotationPreStop + `":"y","` + annotationLastApplied + `":"z\\"}`,
			`{"\u0074oken":"[redacted]","` + annotationPreStop + `":"[redacted]","` +
				annotationLastApplied + `":"[redacted]"}`},
		{`{"secrets":{"user":"x","":null},"volumeContext":{"` + world.CSITokensKey + `":"x","a":"kept"}}`,
			`{"secrets":{"user":"[redacted]","":null},"volumeContext":{"` + world.CSITokensKey +
				`":"[redacted]","a":"kept"}}`},
		{`{"accountAnnotations":{"role":"x"},"annotations":{"role":"kept"}}`,
			`{"accountAnnotations":{"role":"[redacted]"},"annotations":{"role":"kept"}}`},
		{`[]`, `[]`}, {`{}`, `{}`}, {`-1.5e3`, `-1.5e3`}, {`"a\\\"b"`, `"a\\\"b"`}, {`[true,[],null]`,
			`[true,[],null]`},
	} {
		if got := string(redact([]byte(c.text))); got != c.want {
			t.Errorf("%s: %s\nwant %s", c.text, got, c.want)
		}
	}
}

// What is not secret of any JSON stays, and stays valid.
func FuzzRedact(f *testing.F) {
	f.Add([]byte(`{"token":"x","env":[{"value":1}],"secret":{"data":{"a":"b"}}}`))
	f.Add([]byte(`["\\","\"",{"":[{}]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after any
		if json.Unmarshal(data, &before) != nil {
			t.Skip()
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			t.Fatal(err)
		}
		redacted := redact(compact.Bytes())
		if err := json.Unmarshal(redacted, &after); err != nil {
			t.Fatalf("%s: %s: %v", data, redacted, err)
		}
		if again := redact(redacted); !bytes.Equal(again, redacted) {
			t.Errorf("%s changes to %s", redacted, again)
		}
	})
}

// The state is encoded once for a client: a step that decodes and encodes it again allocates many
// times as often.
func TestServedStateIsEncodedOnce(t *testing.T) {
	pods := make([]*v1.Pod, 8)
	for i := range pods {
		pods[i] = apiPodNamed(fmt.Sprint("p", i), fmt.Sprint("u", i))
	}
	n := bootWithPods(nil, pods...)
	n.advance(time.Minute)
	once := testing.AllocsPerRun(5, func() { snapshotOf(t, n.agent) })
	served := testing.AllocsPerRun(5, func() {
		if _, err := n.agent.redactedSnapshot(); err != nil {
			t.Error(err)
		}
	})
	if served > once+20 {
		t.Errorf("%v allocations for the state as it is served, %v for the state", served, once)
	}
}
