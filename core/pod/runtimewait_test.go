package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
)

func TestHoldRuntime(t *testing.T) {
	for _, test := range []struct {
		name          string
		env           Env
		host, sandbox bool
		want          string
	}{
		{"all is well", Env{}, false, true, ""},
		{"no runtime", Env{NotReady: "no"}, true, false, "no"},
		{"no network for a sandbox", Env{NetworkNotReady: "no"}, false, true, "no"},
		{"no network for one of the host's", Env{NetworkNotReady: "no"}, true, true, ""},
		{"no network for a container", Env{NetworkNotReady: "no"}, false, false, ""},
	} {
		p := facts(spec(v1.RestartPolicyAlways, "", "web"))
		p.Spec.Spec.HostNetwork = test.host
		out := &op.Out{}
		test.env.Out = out
		held := p.holdRuntime(&test.env, test.sandbox)
		p.holdRuntime(&test.env, test.sandbox)
		tells := test.env.NetworkNotReady != "" && test.want != ""
		if n := len(out.Take()); n > 1 || (n == 1) != tells {
			t.Errorf("%s: %d events", test.name, n)
		}
		if held != (test.want != "") || p.RuntimeWait != test.want {
			t.Errorf("%s: %t, %q", test.name, held, p.RuntimeWait)
		}
	}
}
