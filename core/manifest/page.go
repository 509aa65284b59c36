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

	"seedlet.dev/core/document"
)

// The page of a URL is one document, a Pod or a PodList. It is taken whole or not at all: what is
// wrong with one of its pods may be wrong with where it ends.

// Part is the static pod of a part of a page.
type Part struct {
	Doc []byte // as it was written, in canonical JSON
	Pod *v1.Pod
}

// DecodePage makes the static pods of the page at a URL, in their order there. An empty page is an
// error: a server that has lost its manifests says the same as one that has none, and no pod is
// worth that. A list without items is how a page says that there are no pods.
func DecodePage(url string, data []byte, nodeName string) ([]Part, []string, error) {
	address := Address(url)
	from := source{OriginHTTP, address, nodeName}
	parts, warnings, err := decodePage(data, from)
	for i := range warnings {
		warnings[i] = address + ": " + warnings[i]
	}
	if err != nil {
		return nil, warnings, fmt.Errorf("%s: %w", address, err)
	}
	return parts, warnings, nil
}

func decodePage(data []byte, from source) ([]Part, []string, error) {
	doc, err := document.Parse(data)
	switch {
	case err != nil:
		return nil, nil, err
	case doc == nil:
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
		return []Part{{doc, pod}}, warnings, nil
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

// decodeItems decodes the items of a list. They need not say that they are pods.
func decodeItems(items []json.RawMessage, from source) ([]Part, []string, error) {
	if len(items) > FilesMax {
		return nil, nil, fmt.Errorf("items: %d pods are more than %d", len(items), FilesMax)
	}
	var parts []Part
	var warnings []string
	for i, doc := range items {
		pod, told, err := decodePod(doc, from, metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"})
		for _, warning := range told {
			warnings = append(warnings, fmt.Sprintf("items[%d].%s", i, warning))
		}
		if err != nil {
			return nil, warnings, fmt.Errorf("items[%d]: %w", i, err)
		}
		parts = append(parts, Part{doc, pod})
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

// Address is a URL without what may be secret in it: the user, the password and the query. The
// pods of a page keep their UIDs when those change.
func Address(url string) string {
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
