package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world/yamljson"
)

// The manifest at a URL is one document, a Pod or a PodList. It is applied as a whole or not at
// all: a document with an invalid pod may be truncated or mangled elsewhere too.

// URLPod is one static pod of a URL manifest.
type URLPod struct {
	Doc []byte // as written, in canonical JSON
	Pod *v1.Pod
}

// DecodePage returns the static pods of the manifest at a URL, as DecodeURLManifest does of its
// document. It is for callers that have no port to convert the page.
func DecodePage(url string, text []byte, nodeName string) ([]URLPod, []string, error) {
	doc, err := yamljson.Parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", RedactURL(url), err)
	}
	return DecodeURLManifest(url, doc, nodeName)
}

// DecodeURLManifest returns the static pods of the document at a URL, in their order. An empty
// response is an error: the response of a server that has lost its manifests looks the same. A
// PodList without items means that there are no pods.
func DecodeURLManifest(url string, doc []byte, nodeName string) ([]URLPod, []string, error) {
	address := RedactURL(url)
	from := location{OriginHTTP, address, nodeName}
	parts, warnings, err := decodeURLManifest(doc, from)
	for i := range warnings {
		warnings[i] = address + ": " + warnings[i]
	}
	if err != nil {
		return nil, warnings, fmt.Errorf("%s: %w", address, err)
	}
	return parts, warnings, nil
}

func decodeURLManifest(doc []byte, from location) ([]URLPod, []string, error) {
	if doc == nil {
		return nil, nil, errors.New("the page is empty")
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(doc, &fields) != nil {
		return nil, nil, errors.New("want kind Pod or PodList, have no object")
	}
	if string(fields["kind"]) != `"PodList"` {
		pod, warnings, err := decodePod(doc, from, metav1.TypeMeta{})
		if err != nil {
			return nil, warnings, err
		}
		return []URLPod{{doc, pod}}, warnings, nil
	}
	if version := fields["apiVersion"]; string(version) != `"v1"` {
		return nil, nil, fmt.Errorf("want apiVersion v1, have %s", version)
	}
	var items []json.RawMessage
	if list, given := fields["items"]; given && json.Unmarshal(list, &items) != nil {
		return nil, nil, errors.New("items: want a list")
	}
	warnings := unknownOfList(fields)
	parts, more, err := decodeItems(items, from)
	return parts, append(warnings, more...), err
}

// decodeItems decodes the items of a PodList. An item needs no apiVersion and kind.
func decodeItems(items []json.RawMessage, from location) ([]URLPod, []string, error) {
	if len(items) > FilesMax {
		return nil, nil, fmt.Errorf("items: %d pods are more than %d", len(items), FilesMax)
	}
	var parts []URLPod
	var warnings []string
	for i, doc := range items {
		pod, podWarnings, err := decodePod(doc, from, metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"})
		for _, warning := range podWarnings {
			warnings = append(warnings, fmt.Sprintf("items[%d].%s", i, warning))
		}
		if err != nil {
			return nil, warnings, fmt.Errorf("items[%d]: %w", i, err)
		}
		parts = append(parts, URLPod{doc, pod})
	}
	return parts, warnings, nil
}

func unknownOfList(fields map[string]json.RawMessage) []string {
	var warnings []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "items"}, name) {
			warnings = append(warnings, name+": unknown field is ignored")
		}
	}
	return warnings
}

// RedactURL returns a URL without its possible secrets: user, password and query. The pods of a URL
// manifest keep their UIDs when these change.
func RedactURL(url string) string {
	url, _, _ = strings.Cut(url, "#")
	url, _, _ = strings.Cut(url, "?")
	scheme, rest, absolute := strings.Cut(url, "://")
	if !absolute {
		return url
	}
	authority, path, rooted := strings.Cut(rest, "/")
	if rooted {
		path = "/" + path
	}
	return scheme + "://" + authority[strings.LastIndexByte(authority, '@')+1:] + path
}
