package plan

import (
	"strings"
	"testing"
)

// What a kubelet is to do happens in its time, to pods and objects that there are.
func TestValidateTakeOver(t *testing.T) {
	for text, want := range map[string]string{ //ordered: each by itself
		"rounds: [{ran: 10s, deletions: [{pod: web, before: 5s}]}]": "",
		"rounds: [{after: 5s}]":                           "rounds[0].ran: want",
		"rounds: [{ran: 10s, creations: [{pod: other}]}]": "no pod of the API server",
		"resizes: [{pod: web, before: 20s, patch: {}}]":   "resizes[0].before: 20s",
		"replaced: [{object: other, before: 2s}]":         "replaced[0]: want an object",
	} {
		_, err := Parse("plan", []byte(`
apiVersion: sim.seedlet.dev/v1alpha1
kind: Plan
metadata: {name: p}
spec:
  duration: 30s
  settle: 5m
  seed: 1
  order: uniform
  node: {api: true}
  pods:
  - name: web
    api: true
    manifest:
      apiVersion: v1
      kind: Pod
      metadata: {name: web}
      spec: {containers: [{name: app, image: i}]}
  takeOver: {ran: 10s, `+text+"}"))
		switch {
		case want == "" && err != nil:
			t.Errorf("%s: %v", text, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
