package core

import (
	"encoding/json"
	"maps"
	"slices"
)

// redacted is the snapshot as it is shown: the values of environment variables, which is where
// people keep secrets in manifests, are left out. It cannot be restored from.
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

// redact replaces the value of everything in a list called env.
func redact(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			redact(item)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if list, is := v[key].([]any); is && key == "env" {
				redactValues(list)
			}
			redact(v[key])
		}
	}
}

func redactValues(env []any) {
	for _, item := range env {
		if variable, is := item.(map[string]any); is && variable["value"] != nil {
			variable["value"] = "[redacted]"
		}
	}
}
