package yamljson

import (
	"errors"
	"fmt"
	"strings"

	yamlstream "go.yaml.in/yaml/v2"
)

// describeError shortens an error of the YAML library to one line. The library names neither the
// place nor the kind of a key that JSON cannot have.
func describeError(data []byte, err error) error {
	text := err.Error()
	if !strings.Contains(text, "unsupported map key of type: ") &&
		!strings.Contains(text, "invalid map key: ") {
		return OneLine(err)
	}
	var whole yamlstream.MapSlice // has the order of the file
	if yamlstream.Unmarshal(data, &whole) == nil {
		if path, kind := findInvalidKey("", whole); kind != "" {
			return errors.New(strings.TrimPrefix(path+": the key of a map is "+kind, ": "))
		}
	}
	return errors.New("the key of a map is neither a text, a number, true nor false")
}

// findInvalidKey returns the path of the first map with a key that JSON cannot have, and what the
// key is.
func findInvalidKey(path string, value any) (found, kind string) {
	switch value := value.(type) {
	case yamlstream.MapSlice:
		for _, item := range value {
			switch item.Key.(type) {
			case nil:
				return path, "null"
			case []any:
				return path, "a list"
			case yamlstream.MapSlice:
				return path, "a map"
			}
			inner := JoinPath(path, fmt.Sprint(item.Key))
			if found, kind = findInvalidKey(inner, item.Value); kind != "" {
				return found, kind
			}
		}
	case []any:
		for i, item := range value {
			if found, kind = findInvalidKey(fmt.Sprintf("%s[%d]", path, i), item); kind != "" {
				return found, kind
			}
		}
	}
	return "", ""
}

// JoinPath returns the path of a field.
func JoinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
