package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListeningPorts(t *testing.T) {
	pod := Pod{Manifest: map[string]any{"spec": map[string]any{
		"containers": []any{
			map[string]any{"name": "quiet"},
			map[string]any{
				"name":  "app",
				"ports": []any{map[string]any{"name": "web", "containerPort": 80}},
				"readinessProbe": map[string]any{
					"httpGet": map[string]any{"path": "/", "port": "web"}},
				"livenessProbe": map[string]any{"tcpSocket": map[string]any{"port": "81"}},
				"startupProbe":  map[string]any{"grpc": map[string]any{"port": 82}},
				"lifecycle": map[string]any{
					"postStart": map[string]any{"httpGet": map[string]any{"port": 83}},
					"preStop": map[string]any{"httpGet": map[string]any{
						"host": "elsewhere", "port": 84}},
				},
			},
		},
	}}}
	for name, want := range map[string][]int32{ //ordered: each alone
		"app": {80, 82, 81, 80, 83}, "quiet": {}, "nobody": {},
	} {
		if diff := cmp.Diff(want, pod.ListeningPorts(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}
