package core

import (
	"encoding/json"
	"maps"
	"slices"
)

// redactedSnapshot returns the snapshot as it is served, from which no agent can be restored.
// Everything that may hold a secret is left out: the content of Secrets and ConfigMaps, tokens, the
// passwords of registries, the manifest URL, which may hold a password, its headers, the values of
// environment variables, and the headers of probes and hooks.
func (a *Agent) redactedSnapshot() ([]byte, error) {
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
	redactedText          = "[redacted]"
	annotationLastApplied = "kubectl.kubernetes.io/last-applied-configuration" // the whole object
	annotationPreStop     = "io.kubernetes.container.preStopHandler"           // may have headers
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
				if secretStringKeys[key] {
					v[key] = redactedText
				}
			case []any:
				if secretListKeys[key] {
					redactValues(value)
				}
			case map[string]any:
				if secretObjectKeys[key] {
					redactObject(value)
				}
			}
			redact(v[key])
		}
	}
}

// Keys of secrets: strings, lists of objects with a secret value, and objects whose data is secret.
var (
	secretStringKeys = map[string]bool{"token": true, "password": true, "url": true,
		annotationLastApplied: true, annotationPreStop: true}
	secretListKeys   = map[string]bool{"env": true, "httpHeaders": true}
	secretObjectKeys = map[string]bool{"secret": true, "configMap": true}
)

func redactValues(env []any) {
	for _, item := range env {
		if variable, isObject := item.(map[string]any); isObject && variable["value"] != nil {
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
