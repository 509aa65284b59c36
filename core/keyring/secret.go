package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
)

// Secret is a decoded image pull secret, or what else has credentials.
type Secret struct {
	bytes   int
	problem string  // why it cannot be decoded; empty: it is
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
	credential Credential
	email      string
}

// authEntries are the entries of a Docker configuration file, by registry, as far as one pod may
// have them.
type authEntries struct {
	byRegistry map[string]authEntry
	read       int // with those of a registry that is repeated
	hasMore    bool
}

// dockerConfig is a Docker configuration file, as far as its content is decoded.
type dockerConfig struct {
	Auths       authEntries       `json:"auths"`
	HTTPHeaders map[string]string `json:"HttpHeaders"` // a kubelet refuses others
}

// Decode decodes a secret. One that is no image pull secret has no credentials. What is more than
// one pod may have is not decoded: Join has an error for it.
func Decode(s *v1.Secret) *Secret {
	var data []byte
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		data = s.Data[v1.DockerConfigJsonKey]
	case v1.SecretTypeDockercfg:
		data = s.Data[v1.DockerConfigKey]
	}
	decoded := &Secret{bytes: len(data)}
	if len(data) > budget.PullSecretBytesMax || len(data) == 0 {
		return decoded
	}
	auths, err := decodeAuths(data, s.Type == v1.SecretTypeDockercfg)
	if err != nil {
		decoded.problem = fmt.Sprintf("Failed to decode image pull secret %q: %s", s.Name,
			budget.CutMessage(err.Error()))
		return decoded
	}
	decoded.hasMore = auths.hasMore
	for _, registry := range slices.Sorted(maps.Keys(auths.byRegistry)) {
		auth := auths.byRegistry[registry]
		decoded.entries = append(decoded.entries, entry{normalizeRegistry(registry), auth.credential,
			Source{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name,
				CredentialHash: hashOf(auth.credential, auth.email)}})
	}
	return decoded
}

// decodeAuths decodes a Docker configuration file, or one in the legacy format. An error quotes no
// credential.
func decodeAuths(data []byte, isLegacy bool) (authEntries, error) {
	var config dockerConfig
	var into any = &config
	if isLegacy {
		into = &config.Auths
	}
	err := json.Unmarshal(data, into)
	return config.Auths, err
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
// It returns the credentials by registry, or an error for a file that a kubelet refuses or that has
// more than it may.
func DecodeFile(data []byte, isLegacy bool) (map[string]Credential, error) {
	if len(data) > budget.PullSecretBytesMax {
		return nil, fmt.Errorf("it has %d bytes, and may have %d", len(data), budget.PullSecretBytesMax)
	}
	auths, err := decodeAuths(data, isLegacy)
	switch {
	case err != nil:
		return nil, err
	case auths.hasMore:
		return nil, fmt.Errorf("it has more than %d registries, as many as it may have",
			budget.PullRegistriesMax)
	}
	all := map[string]Credential{}
	for registry, auth := range auths.byRegistry { //ordered: a map
		all[registry] = auth.credential
	}
	_, err = Join(OfDocker, []*Secret{FromAuth(all, Source{})})
	return all, err
}

// FromAuth returns a secret with one credential for each registry, all of a source.
func FromAuth(byRegistry map[string]Credential, source Source) *Secret {
	s := &Secret{}
	for _, registry := range slices.Sorted(maps.Keys(byRegistry)) {
		c := byRegistry[registry]
		s.bytes += len(registry) + len(c.Username) + len(c.Password)
		s.entries = append(s.entries, entry{normalizeRegistry(registry), c, source})
	}
	return s
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

// UnmarshalJSON decodes an entry. Its credential may be encoded once more, and counts then.
func (a *authEntry) UnmarshalJSON(data []byte) error {
	var fields struct {
		Username string `json:"username"`
		Password string `json:"password"`
		Auth     string `json:"auth"` // base64 of USERNAME:PASSWORD
		Email    string `json:"email"`
	}
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	a.credential, a.email = Credential{fields.Username, fields.Password}, fields.Email
	if fields.Auth == "" {
		return nil
	}
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(strings.TrimSpace(fields.Auth), "=") {
		encoding = base64.StdEncoding
	}
	text, err := encoding.DecodeString(fields.Auth)
	if err != nil {
		return err
	}
	name, password, hasPassword := strings.Cut(string(text), ":")
	if !hasPassword {
		return errors.New("an auth field is not the base64 of username:password")
	}
	a.credential = Credential{name, password}
	return nil
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
