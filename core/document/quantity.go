package document

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Amounts are parsed with arbitrary precision, so "1e-999999999" in a manifest would keep the
// agent busy for hours. No amount that means anything needs an exponent of four digits.

// quantityLengthMax bounds the text of an amount, in bytes.
const quantityLengthMax = 64

// exponentMax bounds the digits of an exponent.
const exponentMax = 3

var hugeExponent = regexp.MustCompile(`[eE][+-]?[0-9]*[1-9][0-9]{3}`)

// ParseQuantity is resource.ParseQuantity for text that is not to be trusted.
func ParseQuantity(text string) (resource.Quantity, error) {
	if err := boundQuantity(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

func boundQuantity(text string) error {
	if len(text) > quantityLengthMax {
		return fmt.Errorf("a quantity has at most %d characters", quantityLengthMax)
	}
	if hugeExponent.MatchString(text) {
		return errors.New("the exponent of a quantity has at most three digits")
	}
	return nil
}

// mayBeHuge says whether a JSON document has any text that boundQuantity refuses, or one of which
// that cannot be seen as it is written. Most have none, and need not be looked at twice.
func mayBeHuge(doc []byte) bool {
	const none = -1
	length, exponent := 0, none // of the text, or whatever else; digits of an exponent
	for _, b := range doc {
		length++
		switch {
		case b == '\\':
			return true
		case b == '"':
			length, exponent = 0, none
		case b == 'e' || b == 'E':
			exponent = 0
		case exponent == 0 && (b == '+' || b == '-'):
		case exponent >= 0 && '0' <= b && b <= '9':
			exponent++
		default:
			exponent = none
		}
		if length > quantityLengthMax || exponent > exponentMax {
			return true
		}
	}
	return false
}

// boundQuantities checks every amount in a document that is about to be decoded into type t.
func boundQuantities(path string, value any, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case string:
		if isQuantity(t) {
			if err := boundQuantity(value); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for i, item := range value {
			if err := boundQuantities(fmt.Sprintf("%s[%d]", path, i), item, t.Elem()); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			inner, ok := typeOf(key, t)
			if !ok {
				continue
			}
			if err := boundQuantities(join(path, key), value[key], inner); err != nil {
				return err
			}
		}
	}
	return nil
}

// isQuantity says whether t is an amount, or embeds one.
func isQuantity(t reflect.Type) bool {
	quantity := reflect.TypeFor[resource.Quantity]()
	if t == quantity {
		return true
	}
	return t.Kind() == reflect.Struct && t.NumField() == 1 && t.Field(0).Type == quantity
}

// typeOf is the type that a key of an object has in t.
func typeOf(key string, t reflect.Type) (reflect.Type, bool) {
	if t.Kind() == reflect.Map {
		return t.Elem(), true
	}
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == key {
			return field.Type, true
		}
		if name == "" && field.Anonymous {
			if inner, ok := typeOf(key, field.Type); ok {
				return inner, true
			}
		}
	}
	return nil, false
}
