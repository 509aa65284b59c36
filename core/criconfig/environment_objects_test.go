package criconfig

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func keyRef(name, key string, optional *bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func secretRef(name, key string, optional *bool) *v1.EnvVarSource {
	return &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
		LocalObjectReference: v1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func TestKeyReferences(t *testing.T) {
	for _, c := range []struct {
		from      *v1.EnvVarSource
		want, err string
	}{
		{keyRef("c", "k", nil), "X=one", ""},
		{secretRef("s", "k", nil), "X=two", ""},
		{keyRef("c", "none", nil), "", "couldn't find key none in ConfigMap default/c"},
		{secretRef("s", "none", nil), "", "couldn't find key none in Secret default/s"},
		{keyRef("c", "none", ref(true)), "", ""},
		{keyRef("gone", "k", nil), "", `configmap "gone" not found`},
		{secretRef("gone", "k", nil), "", `secret "gone" not found`},
		{secretRef("gone", "k", ref(true)), "", ""},
	} {
		p := newPod()
		p.web().Env = []v1.EnvVar{{Name: "X", ValueFrom: c.from}}
		p.serve(configMap("c", map[string]string{"k": "one"}),
			secret("s", map[string]string{"k": "two"}))
		got, err := p.Environment(p.web())
		if shell(got) != c.want || err != nil != (c.err != "") || err != nil && err.Error() != c.err {
			t.Errorf("%v: %q, %v; want %q, %q", c.from, shell(got), err, c.want, c.err)
		}
	}
}

// The variables of whole objects come first, in the order of their keys; a variable of the spec
// replaces one of the same name.
func TestEnvFrom(t *testing.T) {
	from := func(prefix, name string, optional *bool) v1.EnvFromSource {
		return v1.EnvFromSource{Prefix: prefix, ConfigMapRef: &v1.ConfigMapEnvSource{
			LocalObjectReference: v1.LocalObjectReference{Name: name}, Optional: optional}}
	}
	p := newPod()
	p.web().EnvFrom = []v1.EnvFromSource{
		from("", "c", nil), from("P-", "c", nil), from("", "gone", ref(true)),
		{SecretRef: &v1.SecretEnvSource{LocalObjectReference: v1.LocalObjectReference{Name: "s"}}}}
	p.web().Env = []v1.EnvVar{{Name: "b", Value: "own"}, {Name: "D", Value: "$(a)$(z)"}}
	p.serve(configMap("c", map[string]string{"b": "2", "a": "1", "x.y": "$(a)"}),
		secret("s", map[string]string{"a": "secret", "z": "9"}))
	got, err := p.Environment(p.web())
	want := "a=secret b=own x.y=$(a) P-a=1 P-b=2 P-x.y=$(a) z=9 D=secret9"
	if shell(got) != want || err != nil {
		t.Errorf("%s, %v; want %s", shell(got), err, want)
	}
	p.web().EnvFrom[2].ConfigMapRef.Optional = nil
	if _, err = p.newEnvironment(p.web()); err == nil ||
		err.Error() != `configmap "gone" not found` {
		t.Errorf("a required ConfigMap that does not exist: %v", err)
	}
}
