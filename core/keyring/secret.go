package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
)

// Secret is a decoded image pull secret.
type Secret struct {
	bytes   int
	entries []entry // sorted by registry
	// hasMore is set if the secret has more entries than one pod may have. Then it has none here.
	hasMore bool
}

// entry is the credential of a secret for one registry.
type entry struct {
	registry   string // HOST[:PORT][/PATH], where the host may have wildcards
	credential Credential
	source     Source
}

// authEntry is an entry of a Docker configuration file.
type authEntry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"` // base64 of USERNAME:PASSWORD
	Email    string `json:"email"`
}

// authEntries are the entries of a Docker configuration file, by registry, as far as one pod may
// have them.
type authEntries struct {
	byRegistry map[string]authEntry
	read       int // with those of a registry that is repeated
	hasMore    bool
}

// Decode decodes a secret. One that is no image pull secret, or cannot be read, has no credentials.
// What is more than one pod may have is not decoded: Join has an error for it.
func Decode(s *v1.Secret) *Secret {
	var data []byte
	var config struct {
		Auths authEntries `json:"auths"`
	}
	var into any = &config
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		data = s.Data[v1.DockerConfigJsonKey]
	case v1.SecretTypeDockercfg:
		data, into = s.Data[v1.DockerConfigKey], &config.Auths
	}
	decoded := &Secret{bytes: len(data)}
	if len(data) > budget.PullSecretBytesMax || len(data) == 0 || json.Unmarshal(data, into) != nil {
		return decoded
	}
	decoded.hasMore = config.Auths.hasMore
	for _, registry := range slices.Sorted(maps.Keys(config.Auths.byRegistry)) {
		auth := config.Auths.byRegistry[registry]
		if credential, isValid := auth.credential(); isValid {
			decoded.entries = append(decoded.entries, entry{normalizeRegistry(registry), credential,
				Source{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name,
					CredentialHash: hashOf(credential, auth.Email)}})
		}
	}
	return decoded
}

// hashOf returns the hash of a credential in the kubelet's records of pulled images (hashAuthConfig
// in pkg/credentialprovider/keyring.go).
func hashOf(c Credential, email string) string {
	data, err := json.Marshal(struct {
		Username string `json:"username,omitempty"`
		Password string `json:"password,omitempty"`
		Email    string `json:"email,omitempty"`
	}{c.Username, c.Password, email})
	if err != nil {
		panic("keyring: three strings cannot be encoded: " + err.Error())
	}
	return fmt.Sprintf("%x", sha256.Sum256(data))
}

// DecodeFile decodes a Docker configuration file of the node, config.json or the older .dockercfg.
// It reports whether the file is one.
func DecodeFile(data []byte, legacy bool) (*Secret, bool) {
	s := &v1.Secret{Type: v1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{v1.DockerConfigJsonKey: data}}
	if legacy {
		s.Type, s.Data = v1.SecretTypeDockercfg, map[string][]byte{v1.DockerConfigKey: data}
	}
	var object map[string]json.RawMessage
	return Decode(s), json.Unmarshal(data, &object) == nil
}

// FromAuth returns a secret with one credential for each registry.
func FromAuth(byRegistry map[string]Credential) *Secret {
	s := &Secret{}
	for _, registry := range slices.Sorted(maps.Keys(byRegistry)) {
		c := byRegistry[registry]
		s.bytes += len(registry) + len(c.Username) + len(c.Password)
		s.entries = append(s.entries, entry{registry: normalizeRegistry(registry), credential: c})
	}
	return s
}

// ByRegistry returns the credentials of a secret by registry.
func (s *Secret) ByRegistry() map[string]Credential {
	all := map[string]Credential{}
	for _, e := range s.entries {
		all[e.registry] = e.credential
	}
	return all
}

// UnmarshalJSON adds entries until they are too many. A file may have several lists of them.
func (a *authEntries) UnmarshalJSON(data []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return json.Unmarshal(data, &a.byRegistry) // null, or an error
	}
	for decoder.More() {
		if a.read++; a.read > budget.PullRegistriesMax {
			a.byRegistry, a.hasMore = nil, true
			return nil
		}
		registry, err := decoder.Token()
		if err != nil {
			return err
		}
		var value authEntry
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		if a.byRegistry == nil {
			a.byRegistry = map[string]authEntry{}
		}
		a.byRegistry[registry.(string)] = value
	}
	return nil
}

func (f authEntry) credential() (Credential, bool) {
	if f.Auth == "" {
		return Credential{f.Username, f.Password}, true
	}
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(f.Auth, "="))
	name, password, hasPassword := strings.Cut(string(text), ":")
	return Credential{name, password}, err == nil && hasPassword
}

// normalizeRegistry removes the scheme from the key of an entry, and the version of the registry's
// API, which is not part of the path.
func normalizeRegistry(text string) string {
	text = strings.TrimPrefix(strings.TrimPrefix(text, "https://"), "http://")
	host, path, _ := strings.Cut(text, "/")
	for _, version := range []string{"v1/", "v2/"} {
		if rest, hasVersion := strings.CutPrefix(path, version); hasVersion {
			path = rest
			break
		}
	}
	if path == "" {
		return host
	}
	return host + "/" + path
}
