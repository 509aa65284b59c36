package pod

import (
	"encoding/json"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/world"
)

// FuzzRecord gives an agent that begins anew any text for the record of a pod that runs.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"start":"2025-12-31T00:00:00Z","containers":[{"id":"web0","ready":true}]}`))
	f.Add([]byte(`{"end":{"reason":"Evicted","failed":true,"at":"9999-12-31T23:59:59Z","grace":-1}}`))
	f.Add([]byte(`{"end":{"grace":9223372036854775807},"round":9223372036854775807}`))
	f.Add([]byte(`{"start":"0000-01-01T00:00:00+23:59","round":-9223372036854775808}`))
	f.Add([]byte("{"))
	f.Fuzz(func(t *testing.T, record []byte) {
		p := running(func(c *v1.Container) {
			c.ReadinessProbe = &v1.Probe{ProbeHandler: exec("ready"), PeriodSeconds: 10}
		})
		p.Record.Read = false
		r := newRig(t, p).at(0)
		r.answer("ReadFiles", &world.FilesRead{Files: []world.File{{Data: record}}}, nil)
		for _, after := range []time.Duration{time.Second, 10 * time.Second, 5 * time.Minute} {
			r.at(after)
			if stop := r.find("StopContainer"); stop != nil &&
				stop.Body.(*runtimeapi.StopContainerRequest).Timeout < 0 {
				t.Errorf("stopped with %v", stop.Body)
			}
			if _, err := json.Marshal(p); err != nil {
				t.Fatalf("the pod cannot be kept: %v", err)
			}
			if _, err := json.Marshal(p.API(r.env.Node, "fake")); err != nil {
				t.Fatalf("the pod cannot be shown: %v", err)
			}
		}
	})
}
