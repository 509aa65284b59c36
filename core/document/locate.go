package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	kubejson "sigs.k8s.io/json"
)

// Decoders do not say where in the document a value of a type with a text form of its own
// (a duration, a quantity) was wrong. The place is found by decoding ever smaller parts of the
// document: the smallest that still fails is the culprit.

// locateDepthMax bounds the search; no API type nests as deep.
const locateDepthMax = 32

// locate adds the path of the offending field to an error of decoding a document into typ.
func locate(whole any, typ reflect.Type, err error) error {
	s := search{typ: typ, err: err}
	path := s.narrow("", whole, func(part any) any { return part }, 0)
	if path == "" {
		return plain(s.err)
	}
	return fmt.Errorf("%s: %w", path, plain(s.err))
}

type search struct {
	typ reflect.Type
	err error // of the smallest part that failed
}

// narrow returns the path of the smallest failing part of value, which is at path. Wrap puts a
// part of the value into an otherwise empty document.
func (s *search) narrow(path string, value any, wrap func(any) any, depth int) string {
	if depth == locateDepthMax {
		return path
	}
	switch value := value.(type) {
	case map[string]any:
		if s.fails(wrap(map[string]any{})) {
			return path // no object is wanted here at all
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			inner := func(part any) any { return wrap(map[string]any{key: part}) }
			if s.fails(inner(value[key])) {
				return s.narrow(join(path, key), value[key], inner, depth+1)
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

func (s *search) fails(part any) bool {
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

// plain says what was wrong with one value in the user's words, not in Go's.
func plain(err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return oneLine(err)
	}
	return fmt.Errorf("want %s, have %s", describe(wrong.Type), wrong.Value)
}

func describe(t reflect.Type) string {
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

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
