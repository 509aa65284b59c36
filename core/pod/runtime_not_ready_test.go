package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
)

func TestWaitsForRuntime(t *testing.T) {
	for _, test := range []struct {
		name          string
		env           Env
		host, sandbox bool
		want          string
	}{
		{"ready", Env{}, false, true, ""},
		{"no runtime", Env{RuntimeNotReady: "no"}, true, false, "no"},
		{"no network for a sandbox", Env{NetworkNotReady: "no"}, false, true, "no"},
		{"no network for a sandbox in the host's network", Env{NetworkNotReady: "no"}, true, true, ""},
		{"no network for a container", Env{NetworkNotReady: "no"}, false, false, ""},
	} {
		p := podWith(spec(v1.RestartPolicyAlways, "", "web"))
		p.Spec.Spec.HostNetwork = test.host
		out := &op.Effects{}
		test.env.Effects = out
		waits := p.waitsForRuntime(&test.env, test.sandbox)
		p.waitsForRuntime(&test.env, test.sandbox)
		records := test.env.NetworkNotReady != "" && test.want != ""
		if n := len(out.List()); n > 1 || (n == 1) != records {
			t.Errorf("%s: %d events", test.name, n)
		}
		if waits != (test.want != "") || p.RuntimeWaitReason != test.want {
			t.Errorf("%s: %t, %q", test.name, waits, p.RuntimeWaitReason)
		}
	}
}
