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

	"seedlet.dev/world/yamljson"
)

// Quantities are parsed with arbitrary precision, so "1e-999999999" in a manifest would keep the
// agent busy for hours. No reasonable quantity needs an exponent of four digits.

// quantityLengthMax bounds the text of a quantity, in bytes.
const quantityLengthMax = 64

// exponentMax bounds the digits of an exponent.
const exponentMax = 3

var hugeExponent = regexp.MustCompile(`[eE][+-]?[0-9]*[1-9][0-9]{3}`)

// ParseQuantity is resource.ParseQuantity for untrusted text.
func ParseQuantity(text string) (resource.Quantity, error) {
	if err := checkQuantity(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}

func checkQuantity(text string) error {
	if len(text) > quantityLengthMax {
		return fmt.Errorf("a quantity has at most %d characters", quantityLengthMax)
	}
	if hugeExponent.MatchString(text) {
		return errors.New("the exponent of a quantity has at most three digits")
	}
	return nil
}

// mayHaveHugeQuantity reports whether a JSON document has any text that checkQuantity rejects, or
// an escape that may hide one. Most documents have neither and are not checked further.
func mayHaveHugeQuantity(doc []byte) bool {
	const none = -1
	length, exponent := 0, none // of the current text or token; digits of an exponent
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

// checkQuantities checks every quantity in a document that is about to be decoded into type t.
func checkQuantities(path string, value any, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case string:
		if isQuantity(t) {
			if err := checkQuantity(value); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
	case []any:
		if t.Kind() != reflect.Slice {
			return nil
		}
		for i, item := range value {
			if err := checkQuantities(fmt.Sprintf("%s[%d]", path, i), item, t.Elem()); err != nil {
				return err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			inner, ok := fieldType(key, t)
			if !ok {
				continue
			}
			if err := checkQuantities(yamljson.JoinPath(path, key), value[key], inner); err != nil {
				return err
			}
		}
	}
	return nil
}

// isQuantity reports whether t is a quantity, or embeds one.
func isQuantity(t reflect.Type) bool {
	quantity := reflect.TypeFor[resource.Quantity]()
	if t == quantity {
		return true
	}
	return t.Kind() == reflect.Struct && t.NumField() == 1 && t.Field(0).Type == quantity
}

// fieldType returns the type of the field of t that has a key.
func fieldType(key string, t reflect.Type) (reflect.Type, bool) {
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
			if inner, ok := fieldType(key, field.Type); ok {
				return inner, true
			}
		}
	}
	return nil, false
}
