package config

import (
	"maps"
	"path"
	"slices"
)

// mergePatch puts over on top of base as a JSON merge patch (RFC 7386) does, which is how the
// kubelet merges drop-ins: objects field by field, lists and scalars replaced, null removes.
func mergePatch(base, over map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(over)) {
		switch value := over[key].(type) {
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

// keepDefaultThresholds puts the default eviction thresholds under those of a drop-in when the
// base file has none. The kubelet gives the base file its defaults before it merges, so a
// drop-in that changes one threshold leaves the others as they are.
func keepDefaultThresholds(base, over map[string]any) {
	const field = "evictionHard"
	if base[field] != nil || over[field] == nil {
		return
	}
	thresholds := map[string]any{}
	for _, d := range evictionHardDefaults {
		thresholds[d.signal] = d.threshold
	}
	base[field] = thresholds
}

// pathFields are the fields that hold paths which may be relative to their file.
var pathFields = [][]string{
	{"staticPodPath"},
	{"tlsCertFile"},
	{"tlsPrivateKeyFile"},
	{"authentication", "x509", "clientCAFile"},
}

// makeAbsolute lets the paths in a file begin at the file's directory, as the kubelet does.
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
