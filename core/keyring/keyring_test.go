package keyring

import (
	"encoding/json"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// secretWithRegistries returns a secret with an entry for each registry; the user name is the
// registry.
func secretWithRegistries(registries ...string) *v1.Secret {
	auths := map[string]map[string]string{}
	for _, registry := range registries {
		auths[registry] = map[string]string{"username": registry, "password": "x"}
	}
	data, err := json.Marshal(map[string]any{"auths": auths})
	if err != nil {
		panic(err)
	}
	return &v1.Secret{Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: data}}
}

func TestLookup(t *testing.T) {
	for _, c := range []struct {
		image, registries, want string // separated by spaces
	}{
		{"quay.io/a/b:1", "quay.io gcr.io", "quay.io"},
		{"quay.io/a/b@sha256:" + strings.Repeat("0", 64), "https://quay.io", "https://quay.io"},
		{"quay.io/a/b", "quay.io quay.io/a quay.io/a/b quay.io/c", "quay.io/a/b quay.io/a quay.io"},
		{"quay.io/ab", "quay.io/a", "quay.io/a"}, // a prefix of the text, as with the kubelet
		{"quay.io/a", "http://quay.io/v2/ https://quay.io/v1/a",
			"https://quay.io/v1/a http://quay.io/v2/"},
		{"quay.io/a", "quay.io:443", ""},
		{"local:5000/a", "local:5000 local", "local:5000"},
		{"x.azurecr.io/a", "*.azurecr.io *.io azurecr.io", "*.azurecr.io"},
		{"a.b.azurecr.io/a", "*.azurecr.io *.*.azurecr.io", "*.*.azurecr.io"},
		{"a1.io/x", "a[ a?.io", "a?.io"},
		{"nginx", "https://index.docker.io/v1/", "https://index.docker.io/v1/"},
		{"me/app", "index.docker.io quay.io", "index.docker.io"},
		{"docker.io/me/app", "docker.io index.docker.io", "docker.io"},
		{"quay.io/a", "index.docker.io", ""},
		{"not an image", "quay.io", ""},
	} {
		var got []string
		secret := secretWithRegistries(strings.Fields(c.registries)...)
		for _, credential := range Lookup([]*v1.Secret{secret}, c.image) {
			got = append(got, credential.Username)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s among %s: %v, want %s", c.image, c.registries, got, c.want)
		}
	}
}

// An entry has a user name and a password, or both encoded. A secret that cannot be read has none.
func TestSecrets(t *testing.T) {
	secret := func(kind v1.SecretType, key, text string) *v1.Secret {
		return &v1.Secret{Type: kind, Data: map[string][]byte{key: []byte(text)}}
	}
	const whole, old = v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg
	for _, c := range []struct {
		secret *v1.Secret
		want   string
	}{
		{secret(whole, v1.DockerConfigJsonKey, `{"auths": {"q.io": {"auth": "bWU6YTpi"}}}`), "me a:b"},
		{secret(whole, v1.DockerConfigJsonKey,
			`{"auths": {"q.io": {"auth": "bWU6YQ==", "username": "other"}}}`), "me a"},
		{secret(old, v1.DockerConfigKey, `{"q.io": {"username": "me", "password": "a"}}`), "me a"},
		{secret(old, v1.DockerConfigKey, `{"q.io": {"auth": "***"}}`), ""},
		{secret(old, v1.DockerConfigKey, `{"q.io": {"auth": "bWU"}}`), ""},
		{secret(whole, v1.DockerConfigJsonKey, `{`), ""},
		{secret(whole, v1.DockerConfigKey, `{"q.io": {"username": "me"}}`), ""},
		{secret(v1.SecretTypeOpaque, v1.DockerConfigKey, `{"q.io": {"username": "me"}}`), ""},
	} {
		got := ""
		for _, credential := range Lookup([]*v1.Secret{c.secret, c.secret}, "q.io/a") {
			got += credential.Username + " " + credential.Password
		}
		if got != c.want {
			t.Errorf("%v: %q, want %q", c.secret.Data, got, c.want)
		}
	}
}

// FuzzLookup reads any pull secret, for any image.
func FuzzLookup(f *testing.F) {
	f.Add([]byte(`{"auths": {"https://index.docker.io/v1/": {"auth": "bWU6eA=="}}}`), "nginx")
	f.Add([]byte(`{"auths": {"*.[": {"username": "me"}, "": {"auth": "%"}}}`), "a.[/b:c@sha256:d")
	f.Fuzz(func(t *testing.T, data []byte, image string) {
		for _, kind := range []v1.SecretType{v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg} {
			secret := &v1.Secret{Type: kind, Data: map[string][]byte{
				v1.DockerConfigJsonKey: data, v1.DockerConfigKey: data}}
			once := map[Credential]bool{}
			for _, credential := range Lookup([]*v1.Secret{secret, secret}, image) {
				if once[credential] {
					t.Errorf("the credential of %q is returned twice", credential.Username)
				}
				once[credential] = true
			}
		}
	})
}
