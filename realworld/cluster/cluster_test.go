package cluster

import "testing"

func TestSmoke(t *testing.T) {
	c := New(t, Options{})
	for _, args := range [][]string{{"version"},{"get","endpoints,sa,ns","-A"}, {"get","--raw","/readyz?verbose"}} {
	out, err := c.Kubectl(t.Context(), args...)
	t.Log(out, err)
	}
}
