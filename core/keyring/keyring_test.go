package keyring

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
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

// find returns the credentials for an image.
func find(t *testing.T, image string, secrets ...*v1.Secret) []Credential {
	t.Helper()
	var decoded []*Secret
	for _, s := range secrets {
		decoded = append(decoded, Decode(s))
	}
	keys, err := Join(OfPod, decoded)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time from what is kept
		if _, err := keys.Lookup(image); err != nil {
			t.Fatal(err)
		}
	}
	found, _ := keys.Lookup(image)
	return found.Credentials
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
		{"[::1]:5000/a", "[::1]:5000 [::1] [::2]:5000", "[::1]:5000"},
		{"[fd00::1]/a/b", "[fd00::1]/a [fd00::*] [fd00::1]:5000", "[fd00::1]/a [fd00::*]"},
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
		for _, credential := range find(t, c.image, secret) {
			got = append(got, credential.Username)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s among %s: %v, want %s", c.image, c.registries, got, c.want)
		}
	}
}

// An entry has a user name and a password, or both encoded. A secret that a kubelet cannot decode
// has a problem, which quotes none of it; one of another type is passed over.
func TestSecrets(t *testing.T) {
	secret := func(kind v1.SecretType, key, text string) *v1.Secret {
		s := &v1.Secret{Type: kind, Data: map[string][]byte{key: []byte(text)}}
		s.Name = "s"
		return s
	}
	const whole, old = v1.SecretTypeDockerConfigJson, v1.SecretTypeDockercfg
	const failed = "Failed to decode image pull secret \"s\": "
	for _, c := range []struct {
		secret *v1.Secret
		want   string // the end
	}{
		{secret(whole, v1.DockerConfigJsonKey, `{"auths": {"q.io": {"auth": "bWU6YTpi"}}}`), "me a:b"},
		{secret(whole, v1.DockerConfigJsonKey,
			`{"auths": {"q.io": {"auth": "bWU6YQ==", "username": "other"}}}`), "me a"},
		{secret(old, v1.DockerConfigKey, `{"q.io": {"username": "me", "password": "a"}}`), "me a"},
		{secret(old, v1.DockerConfigKey, `{"q.io": null, "Q.io": {}}`), " "},
		{secret(whole, v1.DockerConfigJsonKey, `null`), ""},
		{secret(old, v1.DockerConfigKey, `{"q.io": {"auth": "***"}}`), failed +
			"illegal base64 data at input byte 0"},
		{secret(old, v1.DockerConfigKey, `{"q.io": {"auth": "bWU"}}`), failed +
			"an auth field is not the base64 of username:password"},
		{secret(old, v1.DockerConfigKey, `{"q.io": {"auth": "bWU6YTpi="}}`), failed +
			"illegal base64 data at input byte 8"}, // with padding that is wrong
		{secret(old, v1.DockerConfigKey, `{"q.io": {"auth": "bWU6YQ== "}}`), failed +
			"illegal base64 data at input byte 8"},
		{secret(old, v1.DockerConfigKey, `{"q.io": {"auth": "?"}, "q.io": {}}`), failed +
			"illegal base64 data at input byte 0"},
		{secret(whole, v1.DockerConfigJsonKey, `{`), failed + "unexpected end of JSON input"},
		{secret(whole, v1.DockerConfigJsonKey, `{"auths": []}`), failed +
			"json: cannot unmarshal array into Go struct field dockerConfig.auths of type " +
			"map[string]keyring.authEntry"},
		{secret(whole, v1.DockerConfigJsonKey, `{"HttpHeaders": {"a": 1}}`), failed +
			"json: cannot unmarshal number into Go struct field dockerConfig.HttpHeaders of type string"},
		{secret(whole, v1.DockerConfigKey, `{"q.io": {"username": "me"}}`), ""},
		{secret(v1.SecretTypeOpaque, v1.DockerConfigKey, `{"q.io": {"username": "me"}}`), ""},
	} {
		keys, err := Join(OfPod, []*Secret{Decode(secretWithRegistries("r.io")), Decode(c.secret),
			Decode(c.secret)})
		if err != nil {
			t.Fatal(err)
		}
		got := keys.Problem
		for _, image := range []string{"q.io/a", "r.io/a"} {
			found, _ := keys.Lookup(image)
			for _, credential := range found.Credentials {
				got += credential.Username + " " + credential.Password
			}
		}
		want := c.want
		if !strings.HasPrefix(want, failed) {
			want += "r.io x"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", c.secret.Data, got, want)
		}
	}
}

// A Docker configuration of the node is refused as a whole, by an error that does not take it for a
// secret of a pod.
func TestDecodeFile(t *testing.T) {
	many := string(secretWithRegistries(names(1025, "r%d.io")...).Data[v1.DockerConfigJsonKey])
	for _, c := range []struct {
		text, want string
		isLegacy   bool
	}{
		{`{"auths": {"https://q.io/v1/": {"username": "a"}, "q.io": {"username": "b"}}}`, "2", false},
		{`{"q.io": {"username": "a"}}`, "1", true},
		{`{"maxPods": 3}`, "0", false},
		{`{"auths": {"q.io": {"username": "a"}, "r.io": {"auth": "?"}}}`,
			"illegal base64 data at input byte 0", false},
		{many, "it has more than 1024 registries, as many as it may have", false},
		{many + strings.Repeat(" ", 128<<10), "it has 180113 bytes, and may have 131072", false},
		{string(secretWithRegistries(names(65, "*.r%03d/x")...).Data[v1.DockerConfigJsonKey]),
			"the entries of the node's Docker configuration have 390 bytes of registries with " +
				"wildcards, and may have 384", false},
	} {
		found, err := DecodeFile([]byte(c.text), c.isLegacy)
		got := fmt.Sprint(len(found))
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%.64s: %q, want %q", c.text, got, c.want)
		}
	}
}

// names returns so many registries of a format.
func names(n int, format string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

// secretWithText returns a secret with so many bytes of a Docker configuration. Its end is padded.
func secretWithText(text string, bytes int) *v1.Secret {
	return &v1.Secret{Type: v1.SecretTypeDockerConfigJson, Data: map[string][]byte{
		v1.DockerConfigJsonKey: fmt.Appendf(nil, "%*s", -bytes, text)}}
}

// imagePath is the path of the image that TestBounds looks up.
const imagePath = "aaaaaaaaaaaaaaaaaaaa"

// prefixes returns registries with so many prefixes of imagePath.
func prefixes(n int) (all []string) {
	for i := range n {
		all = append(all, "q.io/"+imagePath[:i])
	}
	return all
}

// The secrets of a pod are refused above each bound, by an error with the number and the bound.
func TestBounds(t *testing.T) {
	long := func(n int) *v1.Secret {
		return secretWithText(fmt.Sprintf(`{"auths": {"q.io": {"username": "%0*d"}}}`, n, 0), 0)
	}
	again := strings.Repeat(`"q.io": {}, `, 600) + `"q.io": {}`
	const pod = "the image pull secrets of the pod have "
	for _, c := range []struct {
		secrets []*v1.Secret
		want    string
	}{
		{[]*v1.Secret{secretWithText("{}", 128<<10)}, ""},
		{[]*v1.Secret{secretWithText("{}", 64<<10), secretWithText("{}", 64<<10+1)},
			"pull_secret_bytes: " + pod + "131073 bytes, and may have 131072"},
		{[]*v1.Secret{secretWithText("{}", 512<<10)},
			"pull_secret_bytes: " + pod + "524288 bytes, and may have 131072"},
		{[]*v1.Secret{secretWithRegistries(names(1024, "r%d.io")...)}, ""},
		{[]*v1.Secret{secretWithRegistries(names(1024, "r%d.io")...), secretWithRegistries("q.io")},
			"pull_registries: " + pod + "1025 registries, and may have 1024"},
		{[]*v1.Secret{secretWithRegistries(names(1025, "r%d.io")...)}, "pull_registries: " + pod +
			"more than 1024 registries, as many as they may have"},
		{[]*v1.Secret{secretWithText(`{"auths": {`+again+`}, "AUTHS": {`+again+"}}", 0)},
			"pull_registries: " + pod + "more than 1024 registries, as many as they may have"},
		{[]*v1.Secret{secretWithRegistries(names(64, "*.r%03d/x")...),
			secretWithRegistries(names(100, "r%d.io")...)}, ""},
		{[]*v1.Secret{secretWithRegistries(names(64, "*.r%03d/x")...), secretWithRegistries("*")},
			"pull_wildcard_bytes: " + pod + "385 bytes of registries with wildcards, and may have 384"},
		{[]*v1.Secret{secretWithRegistries(prefixes(16)...)}, ""},
		{[]*v1.Secret{secretWithRegistries(prefixes(17)...)}, "pull_credentials: " + pod +
			"17 credentials for image \"q.io/" + imagePath + "\", and one image may have 16"},
		{[]*v1.Secret{long(32 << 10)}, ""},
		{[]*v1.Secret{long(32<<10 + 1)}, "pull_credential_bytes: " + pod + "32769 bytes of " +
			"credentials for image \"q.io/" + imagePath + "\", and one image may have 32768"},
	} {
		if got := problemOf(c.secrets); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// problemOf returns the bound that secrets exceed, and the error; empty if they exceed none.
func problemOf(secrets []*v1.Secret) string {
	var decoded []*Secret
	for _, s := range secrets {
		decoded = append(decoded, Decode(s))
	}
	keys, err := Join(OfPod, decoded)
	if err == nil {
		_, err = keys.Lookup("q.io/" + imagePath)
	}
	if err != nil {
		return budget.NameOf(err) + ": " + err.Error()
	}
	return ""
}

// A keyring keeps a bounded number of results, and none for a reference that is too long.
func TestKeptResults(t *testing.T) {
	keys, err := Join(OfPod, []*Secret{Decode(secretWithRegistries("q.io"))})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		if found, err := keys.Lookup(fmt.Sprint("q.io/", i)); err != nil ||
			len(found.Credentials) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
	}
	if found, _ := keys.Lookup("q.io/" + strings.Repeat("a", 1020)); len(found.Credentials) > 0 {
		t.Errorf("%v for a reference that is too long", found)
	}
	if len(keys.found) > lookupsMax {
		t.Errorf("%d results are kept, at most %d may be", len(keys.found), lookupsMax)
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
			keys, err := Join(OfPod, []*Secret{Decode(secret), Decode(secret)})
			if err != nil {
				return
			}
			found, _ := keys.Lookup(image)
			for _, credential := range found.Credentials {
				if once[credential] {
					t.Errorf("the credential of %q is returned twice", credential.Username)
				}
				once[credential] = true
			}
		}
	})
}
