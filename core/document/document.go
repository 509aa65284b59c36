// Package document decodes files that people write: one YAML or JSON document per file, into a
// typed object, with errors of one line that name the field.
//
// Parse converts the file to JSON and rejects ambiguous files (several documents, duplicate keys).
// Decode is case-sensitive like the API server, and returns unknown fields separately, because only
// some kinds of files may have them.
package document

import (
	"errors"
	"reflect"

	kubejson "sigs.k8s.io/json"

	"seedlet.dev/world/yamljson"
)

// Parse returns the only document in data as JSON; nil if there is nothing but comments.
func Parse(data []byte) ([]byte, error) { return yamljson.Parse(data) }

// ParseLeniently is Parse for a file that may be ambiguous: the problem says how, or is empty.
func ParseLeniently(data []byte) (doc []byte, problem string, err error) {
	return yamljson.ParseLeniently(data)
}

// Decode decodes a JSON document into an object. It returns the paths of fields that the object
// does not have, or an error that names the invalid field.
func Decode(doc []byte, into any) (unknown []string, err error) {
	typ := reflect.TypeOf(into).Elem()
	if mayHaveHugeQuantity(doc) {
		whole, err := decodeAny(doc)
		if err == nil {
			err = checkQuantities("", whole, typ)
		}
		if err != nil {
			return nil, err
		}
	}
	strict, err := kubejson.UnmarshalStrict(doc, into)
	if err != nil {
		whole, broken := decodeAny(doc)
		if broken != nil {
			return nil, broken
		}
		return nil, locate(whole, typ, err)
	}
	for _, problem := range strict {
		var field kubejson.FieldError
		if !errors.As(problem, &field) {
			return nil, yamljson.OneLine(problem)
		}
		unknown = append(unknown, field.FieldPath())
	}
	return unknown, nil
}

// decodeAny decodes a document of any type.
func decodeAny(doc []byte) (any, error) {
	var whole any
	if err := kubejson.UnmarshalCaseSensitivePreserveInts(doc, &whole); err != nil {
		return nil, yamljson.OneLine(err)
	}
	return whole, nil
}
