package core

import (
	"encoding/json"
	"maps"
	"slices"
)

// redacted is the snapshot as it is shown. Left out are the content of Secrets and ConfigMaps,
// tokens, the passwords of registries, the manifest URL, which may have one, and the values of
// environment variables and of the headers of it, of probes and of hooks: that is where people keep
// secrets. It cannot be restored from.
func (a *Agent) redacted() ([]byte, error) {
	data, err := a.Snapshot()
	if err != nil {
		return nil, err
	}
	var state any
	if err := json.Unmarshal(data, &state); err != nil {
		return nil, err
	}
	redact(state)
	return json.Marshal(state)
}

const (
	redactedText = "[redacted]"
	lastApplied  = "kubectl.kubernetes.io/last-applied-configuration" // all of an object once more
	preStop      = "io.kubernetes.container.preStopHandler"           // a hook, with its headers
)

// redact replaces everything that may be secret.
func redact(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			redact(item)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			switch value := v[key].(type) {
			case string:
				if secretTexts[key] {
					v[key] = redactedText
				}
			case []any:
				if secretLists[key] {
					redactValues(value)
				}
			case map[string]any:
				if secretObjects[key] {
					redactObject(value)
				}
			}
			redact(v[key])
		}
	}
}

// What is secret: texts, values of the items of lists, and all values of objects.
var (
	secretTexts = map[string]bool{"token": true, "password": true, "url": true, lastApplied: true,
		preStop: true}
	secretLists   = map[string]bool{"env": true, "httpHeaders": true}
	secretObjects = map[string]bool{"secret": true, "configMap": true}
)

func redactValues(env []any) {
	for _, item := range env {
		if variable, is := item.(map[string]any); is && variable["value"] != nil {
			variable["value"] = redactedText
		}
	}
}

func redactObject(object map[string]any) {
	for _, field := range []string{"data", "stringData", "binaryData"} {
		values, _ := object[field].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			values[key] = redactedText
		}
	}
}
