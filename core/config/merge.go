package config

import (
	"maps"
	"path"
	"slices"
)

// mergePatch applies patch to base as a JSON merge patch (RFC 7386), which is how the kubelet
// merges drop-ins: objects field by field, lists and scalars replaced, null removes.
func mergePatch(base, patch map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(patch)) {
		switch value := patch[key].(type) {
		case nil:
			delete(base, key)
		case map[string]any:
			inner, ok := base[key].(map[string]any)
			if !ok {
				inner = map[string]any{}
				base[key] = inner
			}
			mergePatch(inner, value)
		default:
			base[key] = value
		}
	}
}

// pathFields are the fields that hold paths, which may be relative to the file.
var pathFields = [][]string{
	{"staticPodPath"},
	{"tlsCertFile"},
	{"tlsPrivateKeyFile"},
	{"authentication", "x509", "clientCAFile"},
}

// makeAbsolute makes the paths in a file relative to the file's directory, as the kubelet does.
func makeAbsolute(fields map[string]any, dir string) {
	for _, names := range pathFields {
		at, last := fields, len(names)-1
		for _, name := range names[:last] {
			at, _ = at[name].(map[string]any)
		}
		if value, ok := at[names[last]].(string); ok && value != "" && !path.IsAbs(value) {
			at[names[last]] = path.Join(dir, value)
		}
	}
}
