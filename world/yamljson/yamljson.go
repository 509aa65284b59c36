// Package yamljson converts a file that people write, one YAML or JSON document, to JSON. Ports use
// it, since a large document takes a second for each MiB, and so does the core for small ones.
//
// Parse rejects ambiguous files: several documents, duplicate keys. ParseLeniently takes them, and
// says what is ambiguous. Start reading at Parse.
package yamljson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	yamlstream "go.yaml.in/yaml/v2"
	kubejson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// Parse returns the only document in data as JSON; nil if there is nothing but comments.
func Parse(data []byte) ([]byte, error) {
	if doc, ok := normalizeJSON(data); ok {
		return doc, nil
	}
	if mayHaveSeveralDocuments(data) {
		documents, err := countDocuments(data)
		switch {
		case err != nil:
			return nil, OneLine(err)
		case documents > 1:
			return nil, fmt.Errorf("want one YAML document, have %d", documents)
		}
	}
	doc, err := yaml.YAMLToJSONStrict(data)
	switch {
	case err != nil:
		return nil, describeError(data, err)
	case string(doc) == "null":
		return nil, nil
	}
	return doc, nil
}

// ParseLeniently is Parse for a file that may be ambiguous, such as the configuration of a kubelet:
// of several documents it returns the first, and of values with the same key the last. The problem
// is what Parse rejects the file for, or empty.
func ParseLeniently(data []byte) (doc []byte, problem string, err error) {
	doc, err = Parse(data)
	if err == nil {
		return doc, "", nil
	}
	problem = err.Error()
	doc, err = yaml.YAMLToJSON(data)
	switch {
	case err != nil:
		return nil, "", describeError(data, err)
	case string(doc) == "null":
		return nil, problem, nil
	}
	return doc, problem, nil
}

// normalizeJSON returns an object that is JSON already in the form that YAML is converted to.
// Parsing it as YAML would take far longer. It returns false for an object with duplicate keys,
// which the YAML parser reports.
func normalizeJSON(data []byte) ([]byte, bool) {
	var whole map[string]any
	strict, err := kubejson.UnmarshalStrict(data, &whole)
	if err != nil || len(strict) > 0 || whole == nil {
		return nil, false
	}
	doc, err := json.Marshal(whole)
	return doc, err == nil
}

// mayHaveSeveralDocuments reports whether text after the first line may begin or end a document.
// Most files have none, and are not parsed twice.
func mayHaveSeveralDocuments(data []byte) bool {
	data = bytes.TrimPrefix(data, []byte("---"))
	return bytes.Contains(data, []byte("---")) || bytes.Contains(data, []byte("..."))
}

// documentsMax bounds the documents that are counted, since most of them may be empty: ten MiB of
// separators would take six seconds.
const documentsMax = 64

// countDocuments returns the number of documents. Empty ones at the end do not count: a file may
// end with a separator.
func countDocuments(data []byte) (int, error) {
	stream := yamlstream.NewDecoder(bytes.NewReader(data))
	last := 0
	for n := 1; ; n++ {
		var doc hasContent
		err := stream.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return 0, err
		}
		if n > documentsMax {
			return 0, fmt.Errorf("more than %d YAML documents, want one", documentsMax)
		}
		if doc {
			last = n
		}
	}
}

// hasContent reports whether a document has any content. What the content is does not matter here.
type hasContent bool

// UnmarshalYAML is called for any content but null.
func (p *hasContent) UnmarshalYAML(func(any) error) error {
	*p = true
	return nil
}

// CountValues returns the number of values of a JSON document, at most one too many for each empty
// list and object: the work of decoding and checking it grows with them.
func CountValues(doc []byte) int {
	values, inText := 1, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case inText && c == '\\':
			i++
		case c == '"':
			inText = !inText
		case !inText && (c == ',' || c == '{' || c == '['):
			values++
		}
	}
	return values
}

// errorLengthMax bounds the text of an error, in bytes. The libraries name each duplicate key, and
// quote texts of any length.
const errorLengthMax = 1024

// Shorten bounds the text of an error about a document.
func Shorten(err error) error {
	text := err.Error()
	if len(text) <= errorLengthMax {
		return err
	}
	return errors.New(strings.ToValidUTF8(text[:errorLengthMax], "") + " ...")
}

// OneLine shortens an error of a YAML or JSON library to one line.
func OneLine(err error) error {
	text := strings.Join(strings.Fields(Shorten(err).Error()), " ")
	text = strings.TrimPrefix(text, "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors: ")
	return errors.New(strings.TrimPrefix(text, "json: "))
}
