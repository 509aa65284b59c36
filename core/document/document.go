// Package document reads what people write: one YAML or JSON document per file, decoded into a
// typed object, with errors of one line that name the field.
//
// Parse turns the file into JSON and refuses what could mean two things (several documents,
// duplicate keys). Decode fills the object, is case-sensitive as the API server is, and returns
// unknown fields apart, because some files may have them and others may not.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	yamlstream "go.yaml.in/yaml/v2"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Parse returns the only document in data as JSON, nil if there is none but comments.
func Parse(data []byte) ([]byte, error) {
	if doc, ok := plainJSON(data); ok {
		return doc, nil
	}
	count, err := count(data)
	switch {
	case err != nil:
		return nil, oneLine(err)
	case count == 0:
		return nil, nil
	case count > 1:
		return nil, fmt.Errorf("want one YAML document, have %d", count)
	}
	doc, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, oneLine(err)
	}
	return doc, nil
}

// plainJSON writes an object that is JSON already in the form that YAML is turned into, without
// reading it as YAML, which takes far longer. It leaves what has a key twice to those who say so.
func plainJSON(data []byte) ([]byte, bool) {
	var whole map[string]any
	strict, err := kubejson.UnmarshalStrict(data, &whole)
	if err != nil || len(strict) > 0 || whole == nil {
		return nil, false
	}
	doc, err := json.Marshal(whole)
	return doc, err == nil
}

// count says how many documents there are, not counting empty ones at the end: a file may end
// with a separator.
func count(data []byte) (int, error) {
	stream := yamlstream.NewDecoder(bytes.NewReader(data))
	last := 0
	for n := 1; ; n++ {
		var doc presence
		err := stream.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return 0, err
		}
		if doc {
			last = n
		}
	}
}

// presence is whether there is something in a document; what it is, is for another pass.
type presence bool

// UnmarshalYAML is called for whatever is not null.
func (p *presence) UnmarshalYAML(func(any) error) error {
	*p = true
	return nil
}

// Decode fills into from a JSON document. It returns the paths of fields that into does not
// have, or an error that names the field it is about.
func Decode(doc []byte, into any) (unknown []string, err error) {
	typ := reflect.TypeOf(into).Elem()
	if mayBeHuge(doc) {
		whole, err := anything(doc)
		if err == nil {
			err = boundQuantities("", whole, typ)
		}
		if err != nil {
			return nil, err
		}
	}
	strict, err := kubejson.UnmarshalStrict(doc, into)
	if err != nil {
		whole, broken := anything(doc)
		if broken != nil {
			return nil, broken
		}
		return nil, locate(whole, typ, err)
	}
	for _, problem := range strict {
		var field kubejson.FieldError
		if !errors.As(problem, &field) {
			return nil, oneLine(problem)
		}
		unknown = append(unknown, field.FieldPath())
	}
	return unknown, nil
}

// anything is what a document has, whatever that is.
func anything(doc []byte) (any, error) {
	var whole any
	if err := kubejson.UnmarshalCaseSensitivePreserveInts(doc, &whole); err != nil {
		return nil, oneLine(err)
	}
	return whole, nil
}

// oneLine makes an error of a YAML or JSON library fit into a log line.
func oneLine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	text = strings.TrimPrefix(text, "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors: ")
	return errors.New(strings.TrimPrefix(text, "json: "))
}
