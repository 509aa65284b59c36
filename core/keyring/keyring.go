// Package keyring finds the credentials for an image among those that image pull secrets hold.
//
// It keeps nothing and is a function of the secrets. The rules are the kubelet's, which are
// Docker's: an entry is for a host, or for what is below a path on it; "*" stands for a part of a
// host name; the entry for Docker's own registry serves images that name none. Start reading at
// Find.
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

// Credential is who a registry is told that pulls.
type Credential struct {
	Username string `json:"username"`
	Password string `json:"password"` // secret
}

// entry is what a secret holds for one place.
type entry struct {
	place      string // a host, a port maybe, a path maybe
	credential Credential
}

// defaultRegistry is the place of entries for images that name no registry.
const defaultRegistry = "index.docker.io"

// Find is the credentials to try for an image, in order: those for the longest place first. A
// secret that cannot be read has none.
func Find(secrets []*v1.Secret, image string) []Credential {
	var entries []entry
	for _, s := range secrets {
		entries = append(entries, read(s)...)
	}
	if len(entries) == 0 {
		return nil
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return nil
	}
	slices.SortStableFunc(entries, func(x, y entry) int { return cmp.Compare(y.place, x.place) })
	var found, fallback []Credential
	for _, e := range entries {
		if matches(e.place, named.Name()) {
			found = append(found, e.credential)
		}
		if e.place == defaultRegistry && reference.Domain(named) == "docker.io" {
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

// file is an entry as it is written.
type file struct {
	Username string `json:"username"`
	Password string `json:"password"`
	Auth     string `json:"auth"` // both, encoded
}

// read is what a secret holds, by place.
func read(s *v1.Secret) []entry {
	var files map[string]file
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
		var config struct {
			Auths map[string]file `json:"auths"`
		}
		if json.Unmarshal(s.Data[v1.DockerConfigJsonKey], &config) != nil {
			return nil
		}
		files = config.Auths
	case v1.SecretTypeDockercfg:
		if json.Unmarshal(s.Data[v1.DockerConfigKey], &files) != nil {
			return nil
		}
	}
	var entries []entry
	for _, place := range slices.Sorted(maps.Keys(files)) {
		credential, is := files[place].credential()
		if is {
			entries = append(entries, entry{placeOf(place), credential})
		}
	}
	return entries
}

func (f file) credential() (Credential, bool) {
	if f.Auth == "" {
		return Credential{f.Username, f.Password}, true
	}
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(f.Auth, "="))
	name, password, both := strings.Cut(string(text), ":")
	return Credential{name, password}, err == nil && both
}

// placeOf is a host, or what is below a path on it. The versions of the registry's own API are no
// paths.
func placeOf(text string) string {
	text = strings.TrimPrefix(strings.TrimPrefix(text, "https://"), "http://")
	host, below, _ := strings.Cut(text, "/")
	for _, version := range []string{"v1/", "v2/"} {
		if rest, is := strings.CutPrefix(below, version); is {
			below = rest
			break
		}
	}
	if below == "" {
		return host
	}
	return host + "/" + below
}

// matches says whether a place is that of an image.
func matches(place, image string) bool {
	host, below, _ := strings.Cut(place, "/")
	imageHost, name, _ := strings.Cut(image, "/")
	if !strings.HasPrefix(name, below) {
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
