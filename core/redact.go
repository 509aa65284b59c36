package core

import (
	"encoding/json"
	"maps"
	"slices"
)

// redacted is the snapshot as it is shown. The values of environment variables and of the headers
// of probes and hooks are left out: that is where people keep secrets in manifests. It cannot be
// restored from.
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

// redact replaces the value of everything in a list called env or httpHeaders.
func redact(v any) {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			redact(item)
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if list, is := v[key].([]any); is && secretLists[key] {
				redactValues(list)
			}
			redact(v[key])
		}
	}
}

// secretLists are the lists whose items have a value to hide.
var secretLists = map[string]bool{"env": true, "httpHeaders": true}

func redactValues(env []any) {
	for _, item := range env {
		if variable, is := item.(map[string]any); is && variable["value"] != nil {
			variable["value"] = "[redacted]"
		}
	}
}
