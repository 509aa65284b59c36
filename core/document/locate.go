package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	kubejson "sigs.k8s.io/json"

	"seedlet.dev/world/yamljson"
)

// Decoders do not report where a value with a text form of its own (a duration, a quantity) is
// invalid. The place is found by decoding smaller and smaller parts of the document: the smallest
// part that still fails is the invalid one.

// locateDepthMax bounds the search; no API type is nested as deeply.
const locateDepthMax = 32

// locateTriesMax bounds the parts that are decoded alone, each in microseconds. The invalid item of
// a list of millions is not searched for: the error names the list.
const locateTriesMax = 2000

// locate adds the path of the invalid field to an error of decoding a document into typ.
func locate(whole any, typ reflect.Type, err error) error {
	s := locator{typ: typ, err: err}
	path := s.narrow("", whole, func(part any) any { return part }, 0)
	if path == "" {
		return plainError(s.err)
	}
	return fmt.Errorf("%s: %w", path, plainError(s.err))
}

type locator struct {
	typ reflect.Type
	err error // of the smallest part that failed
	// tries is how many parts have been decoded.
	tries int
}

// narrow returns the path of the smallest failing part of value, which is at path. Wrap puts a part
// of the value into an otherwise empty document.
func (s *locator) narrow(path string, value any, wrap func(any) any, depth int) string {
	if depth == locateDepthMax {
		return path
	}
	switch value := value.(type) {
	case map[string]any:
		if s.fails(wrap(map[string]any{})) {
			return path // the type here is not an object
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			inner := func(part any) any { return wrap(map[string]any{key: part}) }
			if s.fails(inner(value[key])) {
				return s.narrow(yamljson.JoinPath(path, key), value[key], inner, depth+1)
			}
		}
	case []any:
		if s.fails(wrap([]any{})) {
			return path
		}
		for i, item := range value {
			inner := func(part any) any { return wrap([]any{part}) }
			if s.fails(inner(item)) {
				return s.narrow(fmt.Sprintf("%s[%d]", path, i), item, inner, depth+1)
			}
		}
	}
	return path
}

// fails reports whether decoding a part fails; false without trying after locateTriesMax tries.
func (s *locator) fails(part any) bool {
	if s.tries++; s.tries > locateTriesMax {
		return false
	}
	doc, err := json.Marshal(part)
	if err != nil {
		return false
	}
	err = kubejson.UnmarshalCaseSensitivePreserveInts(doc, reflect.New(s.typ).Interface())
	if err != nil {
		s.err = err
	}
	return err != nil
}

// plainError describes the error of a value in terms of YAML and JSON instead of Go.
func plainError(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return yamljson.OneLine(err)
	}
	return fmt.Errorf("want %s, have %s", describeType(wrong.Type), wrong.Value)
}

func describeType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct:
		return "an object"
	default:
		return "a number (" + t.Kind().String() + ")"
	}
}
