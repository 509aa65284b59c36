// Package keyring finds the registry credentials for an image in image pull secrets.
//
// It has no state. The rules are those of the kubelet and Docker: an entry is for a registry host,
// or for the images below a path on it; "*" stands for a part of a host name; the entry for Docker
// Hub serves images that name no registry. Start reading at Lookup.
package keyring

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
)

// Credential is a user name and a password for a registry.
type Credential struct {
	Username string `json:"username"`
	Password string `json:"password"` // secret
}

// entry is the credential of a secret for one registry.
type entry struct {
	registry   string // HOST[:PORT][/PATH], where the host may have wildcards
	credential Credential
}

// defaultRegistry is the entry for images that name no registry.
const defaultRegistry = "index.docker.io"

// Lookup returns the credentials to try for an image, those for the longest registry path first. A
// secret that cannot be read has none.
func Lookup(secrets []*v1.Secret, image string) []Credential {
	var entries []entry
	for _, s := range secrets {
		entries = append(entries, readSecret(s)...)
	}
	if len(entries) == 0 {
		return nil
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil
	}
	slices.SortStableFunc(entries, func(x, y entry) int { return cmp.Compare(y.registry, x.registry) })
	var found, fallback []Credential
	for _, e := range entries {
		if matches(e.registry, named.Name()) {
			found = append(found, e.credential)
		}
		if e.registry == defaultRegistry && reference.Domain(named) == "docker.io" {
			fallback = append(fallback, e.credential)
		}
	}
	if len(found) == 0 {
		found = fallback
	}
	var once []Credential
	for _, c := range found {
		if !slices.Contains(once, c) {
			once = append(once, c)
		}
	}
	return once
}

// authEntry is an entry of a Docker configuration file.
type authEntry struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"` // base64 of USERNAME:PASSWORD
}

// readSecret returns the entries of a secret, sorted by registry.
func readSecret(s *v1.Secret) []entry {
	var auths map[string]authEntry
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		var config struct {
			Auths map[string]authEntry `json:"auths"`
		}
		if json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &config) != nil {
			return nil
		}
		auths = config.Auths
	case v1.SecretTypeDockercfg:
		if json.Unmarshal(s.Data[v1.DockerConfigKey], &auths) != nil {
			return nil
		}
	}
	var entries []entry
	for _, registry := range slices.Sorted(maps.Keys(auths)) {
		credential, isValid := auths[registry].credential()
		if isValid {
			entries = append(entries, entry{normalizeRegistry(registry), credential})
		}
	}
	return entries
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

// matches reports whether the entry for a registry is for an image.
func matches(registry, image string) bool {
	host, pathPrefix, _ := strings.Cut(registry, "/")
	imageHost, imagePath, _ := strings.Cut(image, "/")
	if !strings.HasPrefix(imagePath, pathPrefix) {
		return false
	}
	host, port, _ := strings.Cut(host, ":")
	imageHost, imagePort, _ := strings.Cut(imageHost, ":")
	parts, imageParts := strings.Split(host, "."), strings.Split(imageHost, ".")
	if port != imagePort || len(parts) != len(imageParts) {
		return false
	}
	for i, part := range parts {
		if same, err := path.Match(part, imageParts[i]); err != nil || !same {
			return false
		}
	}
	return true
}
