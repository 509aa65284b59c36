package manifest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const webManifest = `# A web server.
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: web
    image: nginx:1.27
    ports: [{containerPort: 80}]
    livenessProbe: {httpGet: {port: 80}}
`

// decode returns the pod of a manifest, or fails the test.
func decode(t *testing.T, data string) *v1.Pod {
	t.Helper()
	pod, warnings, err := DecodeText("/manifests/web.yaml", []byte(data), "Node-A")
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	return pod
}

func TestDecodeReturnsStaticPod(t *testing.T) {
	pod := decode(t, webManifest)
	if pod.Name != "web-node-a" || pod.Namespace != "default" || pod.Spec.NodeName != "Node-A" {
		t.Errorf("name %q, namespace %q, node %q", pod.Name, pod.Namespace, pod.Spec.NodeName)
	}
	if len(pod.UID) != 32 || strings.Trim(string(pod.UID), "0123456789abcdef") != "" {
		t.Errorf("UID %q is not 32 hex digits", pod.UID)
	}
	want := map[string]string{
		"kubernetes.io/config.source": "file",
		"kubernetes.io/config.hash":   string(pod.UID),
	}
	if diff := cmp.Diff(want, pod.Annotations); diff != "" {
		t.Error(diff)
	}
	taint := v1.Taint{Key: "any", Effect: v1.TaintEffectNoExecute}
	if len(pod.Spec.Tolerations) != 1 || pod.Spec.Tolerations[0].Effect != taint.Effect ||
		pod.Spec.Tolerations[0].Operator != v1.TolerationOpExists || pod.Spec.Tolerations[0].Key != "" {
		t.Errorf("tolerations %v", pod.Spec.Tolerations)
	}
}

func TestDecodeAcceptsJSON(t *testing.T) {
	doc, err := yaml.YAMLToJSON([]byte(webManifest))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, webManifest), decode(t, string(doc))); diff != "" {
		t.Error("the same pod in YAML and in JSON:", diff)
	}
}

func TestDecodeSkipsEmptyFiles(t *testing.T) {
	for _, data := range []string{"", "\n", "# later\n", "---\n---\n", "null"} {
		if pod, warnings, err := DecodeText("f", []byte(data), "n"); pod != nil || err != nil ||
			warnings != nil {
			t.Errorf("%q: got %v, %q, %v", data, pod, warnings, err)
		}
	}
}

func TestDecodeWarnsOfIgnoredFields(t *testing.T) {
	pod, warnings, err := DecodeText("f", []byte(`
apiVersion: v1
kind: Pod
metadata:
  name: web
  deletionTimestamp: "2026-01-01T00:00:00Z"
  resourceVersion: "17"
  annotations: {kubernetes.io/config.mirror: x, kubernetes.io/config.seen: x, mine: "x y"}
spec:
  colour: blue
  containers: [{name: a, image: b, imagePullpolicy: Never}]
status: {phase: Running}
`), "n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"f: spec.colour: unknown field is ignored",
		"f: spec.containers[0].imagePullpolicy: unknown field is ignored",
		"f: metadata.deletionTimestamp: is ignored",
	}
	if diff := cmp.Diff(want, warnings); diff != "" {
		t.Error(diff)
	}
	if pod.DeletionTimestamp != nil || pod.ResourceVersion != "" || pod.Status.Phase != "" ||
		pod.Annotations[ConfigMirrorAnnotation] != "" || pod.Annotations["mine"] != "x y" {
		t.Errorf("not cleared: %+v", pod.ObjectMeta)
	}
}

func TestDecodeRejects(t *testing.T) {
	const head = "apiVersion: v1\nkind: Pod\n"
	for _, c := range []struct{ name, data, want string }{
		{"not YAML", "a: [", "f: line 1: did not find expected node content"},
		{"two pods", webManifest + "---\n" + webManifest, "f: want one YAML document, have 2"},
		{"a list", "apiVersion: v1\nkind: PodList\n",
			`f: want apiVersion v1, kind Pod; have apiVersion "v1", kind "PodList"`},
		{"another version", "apiVersion: v2\nkind: Pod\n",
			`f: want apiVersion v1, kind Pod; have apiVersion "v2", kind "Pod"`},
		{"no name", head, "f: metadata.name: Required value: a static pod has a name"},
		{"duplicate key", head + "kind: Pod\n", `f: line 3: key "kind" already set in map`},
		{"wrong type", head + "spec: {containers: {}}\n",
			"f: spec.containers: want a list, have object"},
		{"wrong quantity",
			head + "spec: {containers: [{resources: {limits: {cpu: lots}}}]}\n",
			"f: spec.containers[0].resources.limits.cpu: quantities must match the regular " +
				"expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"},
		{"invalid", head + "metadata: {name: ../x}\nspec: {containers: [{name: a, image: b}]}\n",
			`f: metadata.name: Invalid value: "../x-n": a lowercase RFC 1123 subdomain must ` +
				`consist of lower case alphanumeric characters, '-' or '.', and must start and ` +
				`end with an alphanumeric character (e.g. 'example.com', regex used for ` +
				`validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod, _, err := DecodeText("f", []byte(c.data), "n")
			if err == nil || err.Error() != c.want || pod != nil {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

// The error of a file is logged and kept, whatever the file is.
func TestErrorsOfManifestsAreBounded(t *testing.T) {
	const head = "{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: ["
	for name, containers := range map[string]string{
		"many errors": strings.Repeat("{name: a, image: b},", 2000),
		"long value":  "{name: " + strings.Repeat("A", 100_000) + ", image: b}",
	} {
		_, _, err := DecodeText("f", []byte(head+containers+"]}}"), "n")
		if err == nil || len(err.Error()) > 1100 {
			t.Errorf("%s: an error of %d bytes", name, len(fmt.Sprint(err)))
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(webManifest))
	f.Add([]byte(validManifest))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"../b"},` +
		`"spec":{"containers":[{"name":"a","image":"b:latest"}],"hostNetwork":true}}`))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pod, warnings, err := DecodeText("f", data, "node")
		if err != nil {
			if pod != nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("pod %v with error %q", pod, err)
			}
			return
		}
		for _, warning := range warnings {
			if strings.Contains(warning, "\n") {
				t.Errorf("warning of several lines: %q", warning)
			}
		}
		if pod == nil {
			return
		}
		if strings.Contains(string(pod.UID)+pod.Name+pod.Namespace, "/") {
			t.Errorf("names with a slash could leave a directory: %q %q %q", pod.UID, pod.Namespace,
				pod.Name)
		}
		before := marshal(t, pod)
		SetDefaults(pod)
		if after := marshal(t, pod); before != after {
			t.Errorf("defaults are not idempotent:\n%s\n%s", before, after)
		}
	})
}

func marshal(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	data, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
