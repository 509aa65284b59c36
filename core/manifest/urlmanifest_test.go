package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

const (
	manifestURL = "https://me:secret@host/pods?token=secret"
	twoPods     = "apiVersion: v1\nkind: PodList\nitems:\n" + itemA + itemB
	itemA       = "- metadata: {name: a}\n  spec: {containers: [{name: c, image: i}]}\n"
	itemB       = "- metadata: {name: b}\n  spec: {containers: [{name: c, image: i}]}\n"
	itemBad     = "- metadata: {name: bad}\n  spec: {containers: []}\n"
	emptyList   = "apiVersion: v1\nkind: PodList\n"
)

// decodeURLPods returns the pods of a URL manifest, or fails the test.
func decodeURLPods(t *testing.T, page string) []*v1.Pod {
	t.Helper()
	parts, warnings, err := DecodePage(manifestURL, []byte(page), "Node-A")
	if err != nil || len(warnings) > 0 {
		t.Fatalf("%v, warnings %q", err, warnings)
	}
	var pods []*v1.Pod
	for _, part := range parts {
		pods = append(pods, part.Pod)
	}
	return pods
}

func TestURLManifestIsPodOrList(t *testing.T) {
	one := decodeURLPods(t, webManifest)
	if len(one) != 1 || one[0].Name != "web-node-a" || one[0].Namespace != "default" ||
		one[0].Annotations[ConfigSourceAnnotation] != "http" ||
		one[0].Annotations[ConfigHashAnnotation] != string(one[0].UID) {
		t.Errorf("one pod: %+v", one)
	}
	two := decodeURLPods(t, twoPods)
	if len(two) != 2 || two[0].Name != "a-node-a" || two[1].Kind != "Pod" {
		t.Errorf("two pods: %+v", two)
	}
	if none := decodeURLPods(t, emptyList); len(none) != 0 {
		t.Errorf("no pods: %+v", none)
	}
}

// Other fields of the list, the position of the pod in the list, and the URL's password do not
// change a pod.
func TestURLPodsKeepUIDs(t *testing.T) {
	a := decodeURLPods(t, twoPods)[0].UID
	moved := decodeURLPods(t,
		"# two\n"+emptyList+"metadata: {resourceVersion: '7'}\nitems:\n"+itemB+itemA)[1]
	if moved.UID != a {
		t.Error("the position in the list changes the UID")
	}
	parts, _, _ := DecodePage("https://you:other@host/pods?token=x", []byte(twoPods), "Node-A")
	if parts[0].Pod.UID != a {
		t.Error("the password changes the UID")
	}
	parts, _, _ = DecodePage("https://host/others", []byte(twoPods), "Node-A")
	if parts[0].Pod.UID == a {
		t.Error("at another URL the pod has the same UID")
	}
}

// An invalid URL manifest has no pods at all, and the error contains no secret.
func TestInvalidURLManifestIsAnError(t *testing.T) {
	for page, want := range map[string]string{ //ordered: each alone
		"":                            "https://host/pods: the page is empty",
		"# nothing\n":                 "https://host/pods: the page is empty",
		"[]":                          "https://host/pods: want kind Pod or PodList, have no object",
		"kind: PodList\n":             "https://host/pods: want apiVersion v1, have ",
		emptyList + "items: {}\n":     "https://host/pods: items: want a list",
		emptyList + "items: [null]\n": "https://host/pods: items[0]: metadata.name: Required value",
		twoPods + itemBad:             "https://host/pods: items[2]: spec.containers: Required value",
		emptyList + "items: [{kind: Secret}]\n": "https://host/pods: items[0]: want apiVersion v1, " +
			"kind Pod",
		"apiVersion: v1\nkind: List\n":      "https://host/pods: want apiVersion v1, kind Pod",
		webManifest + "---\n" + webManifest: "https://host/pods: want one YAML document, have 2",
	} {
		parts, _, err := DecodePage(manifestURL, []byte(page), "n")
		if parts != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", page, parts, err, want)
		}
	}
	many := emptyList + "items:\n" + strings.Repeat(itemA, FilesMax+1)
	if _, _, err := DecodePage(manifestURL, []byte(many), "n"); err == nil {
		t.Errorf("%d pods are accepted", FilesMax+1)
	}
}

func TestURLManifestWarnings(t *testing.T) {
	_, warnings, err := DecodePage(manifestURL, []byte(emptyList+"colour: red\nitems:\n"+
		"- metadata: {name: a}\n  spec: {colour: red, containers: [{name: c, image: i}]}\n"), "n")
	want := []string{"https://host/pods: colour: unknown field is ignored",
		"https://host/pods: items[0].spec.colour: unknown field is ignored"}
	if diff := cmp.Diff(want, warnings); diff != "" || err != nil {
		t.Errorf("%v, warnings (-want +got):\n%s", err, diff)
	}
}

func TestRedactURL(t *testing.T) {
	for url, want := range map[string]string{ //ordered: each alone
		"":                          "",
		"http://h":                  "http://h",
		"https://u:p@h:1/a@b/c?d#e": "https://h:1/a@b/c",
		"https://u:p@h?d/e":         "https://h",
		"nonsense?x":                "nonsense",
	} {
		if got := RedactURL(url); got != want {
			t.Errorf("%q: %q, want %q", url, got, want)
		}
	}
}

// Whatever the manifest is: the names of its pods can be elements of paths, and no error contains
// the password of the URL.
func FuzzDecodeURLManifest(f *testing.F) {
	f.Add([]byte(webManifest))
	f.Add([]byte(`{"apiVersion":"v1","kind":"PodList","items":[{"metadata":{"name":"a",` +
		`"uid":"../b"},"spec":{"containers":[{"name":"a","image":"b"}]}},{}]}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"PodList","items":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		parts, warnings, err := DecodePage("http://me:unspeakable@host/pods?token=unspeakable",
			data,
			"node")
		if err != nil {
			warnings = append(warnings, err.Error())
		}
		for _, text := range warnings {
			if strings.Contains(text, "unspeakable") && !strings.Contains(string(data), "unspeakable") {
				t.Errorf("secret revealed: %q", text)
			}
		}
		for _, part := range parts {
			for _, name := range []string{string(part.Pod.UID), part.Pod.Name, part.Pod.Namespace} {
				if err != nil || name == "" || name == "." || name == ".." ||
					strings.ContainsAny(name, "/\x00") {
					t.Errorf("error %v, pod %q", err, name)
				}
			}
		}
	})
}
