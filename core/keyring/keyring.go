// Package keyring finds the registry credentials for an image in image pull secrets, and in those
// of the node's Docker configuration and of plugins.
//
// The rules are those of the kubelet and Docker: an entry is for a registry host, or for the images
// below a path on it; "*" stands for a part of a host name; the entry for Docker Hub serves images
// that name no registry. A secret is decoded once for each version, and the secrets of a pod are
// joined once for each set of versions, because a pod looks up many images. Start reading at
// Decode, then Join and Keyring.Lookup.
package keyring

import (
	"cmp"
	"path"
	"slices"
	"strings"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/imagename"
)

// Credential is a user name and a password for a registry.
type Credential struct {
	Username string `json:"username"`
	Password string `json:"password"` // secret
}

// Source is the secret that has a credential, as the kubelet records it.
type Source = kubeletconfig.ImagePullSecret

// Found are the credentials to try for an image.
type Found struct {
	Credentials []Credential
	// Sources are the secrets that have them: first one of each credential, in the same order, and
	// then the others.
	Sources []Source
}

// Owner is what the credentials of a keyring come from, as messages name it.
type Owner string

// The owners.
const (
	OfPod     Owner = "the image pull secrets of the pod"
	OfDocker  Owner = "the entries of the node's Docker configuration"
	OfPlugins Owner = "the answers of plugins"
)

// Keyring has the credentials of one owner: an image pull secret of a pod is not better than the
// others, nor is a plugin.
type Keyring struct {
	// Problem is why one of the secrets of a pod cannot be decoded: no image is pulled for it, as
	// with a kubelet. Empty: all are decoded.
	Problem   string
	owner     Owner
	entries   []entry          // those for the longest registry path first
	byHost    map[string][]int // the entries without wildcards, by HOST[:PORT]
	wildcards []int            // the other entries
	hub       []int            // the entries for Docker Hub
	found     map[string]lookup
}

// lookup is the result of looking up an image.
type lookup struct {
	Found
	err error
}

// lookupsMax bounds the results that a keyring keeps. A spec may change its images for ever.
const lookupsMax = 2 * budget.ImagesMax

// defaultRegistry is the entry for images that name no registry.
const defaultRegistry = "index.docker.io"

// Join returns the keyring of the secrets of an owner, and an error if they are more than one may
// have.
func Join(owner Owner, secrets []*Secret) (*Keyring, error) {
	k := &Keyring{owner: owner, byHost: map[string][]int{}, found: map[string]lookup{}}
	bytes, hasMore := 0, false
	for _, s := range secrets {
		bytes, hasMore = bytes+s.bytes, hasMore || s.hasMore
		k.entries = append(k.entries, s.entries...)
		k.Problem = cmp.Or(k.Problem, s.problem)
	}
	switch {
	case bytes > budget.PullSecretBytesMax:
		return nil, budget.PullSecretBytes.Errorf("%s have %d bytes, and may have %d", owner, bytes,
			budget.PullSecretBytesMax)
	case hasMore:
		return nil, budget.PullRegistries.Errorf("%s have more than %d registries, as many as they may "+
			"have", owner, budget.PullRegistriesMax)
	case len(k.entries) > budget.PullRegistriesMax:
		return nil, budget.PullRegistries.Errorf("%s have %d registries, and may have %d", owner,
			len(k.entries), budget.PullRegistriesMax)
	case k.Problem != "":
		return &Keyring{owner: owner, Problem: k.Problem}, nil
	}
	slices.SortStableFunc(k.entries, func(x, y entry) int {
		return cmp.Compare(y.registry, x.registry)
	})
	if bytes := k.index(); bytes > budget.PullWildcardBytesMax {
		return nil, budget.PullWildcardBytes.Errorf("%s have %d bytes of registries with wildcards, and "+
			"may have %d", owner, bytes, budget.PullWildcardBytesMax)
	}
	return k, nil
}

// index indexes the entries by what an image needs to find them, and returns the bytes of the hosts
// with wildcards.
func (k *Keyring) index() (wildcardBytes int) {
	for i := range k.entries {
		registry := k.entries[i].registry
		host, _, _ := strings.Cut(registry, "/")
		if registry == defaultRegistry {
			k.hub = append(k.hub, i)
		}
		if name, _ := SplitPort(host); strings.ContainsAny(name, `*?[\`) {
			k.wildcards = append(k.wildcards, i)
			wildcardBytes += len(host)
		} else {
			k.byHost[host] = append(k.byHost[host], i)
		}
	}
	return wildcardBytes
}

// Lookup returns the credentials to try for an image, those for the longest registry path first,
// and an error if they are more than one image may have. The caller does not change them.
func (k *Keyring) Lookup(image string) (Found, error) {
	if len(k.entries) == 0 || len(image) > budget.ImageReferenceMax {
		return Found{}, nil
	}
	result, isKnown := k.found[image]
	if !isKnown {
		if len(k.found) >= lookupsMax {
			clear(k.found)
		}
		result.Found, result.err = k.lookup(image)
		k.found[image] = result
	}
	return result.Found, result.err
}

func (k *Keyring) lookup(image string) (Found, error) {
	name := imagename.Split(image)
	var all []int
	for _, i := range k.byHost[name.Registry] {
		_, prefix, _ := strings.Cut(k.entries[i].registry, "/")
		if strings.HasPrefix(name.Repository, prefix) {
			all = append(all, i)
		}
	}
	for _, i := range k.wildcards {
		if matches(k.entries[i].registry, name.Path()) {
			all = append(all, i)
		}
	}
	if len(all) == 0 && name.Registry == "docker.io" {
		all = k.hub
	}
	slices.Sort(all)
	once, bytes := []Credential(nil), 0
	var sources, others []Source
	isKnown := map[Credential]bool{}
	for _, i := range all {
		c, source := k.entries[i].credential, k.entries[i].source
		if isKnown[c] {
			others = append(others, source)
			continue
		}
		isKnown[c] = true
		sources = append(sources, source)
		once, bytes = append(once, c), bytes+len(c.Username)+len(c.Password)
	}
	switch {
	case len(once) > budget.PullCredentialsMax:
		return Found{}, budget.PullCredentials.Errorf("%s have %d credentials for image %q, and one "+
			"image may have %d", k.owner, len(once), image, budget.PullCredentialsMax)
	case bytes > budget.PullCredentialBytesMax:
		return Found{}, budget.PullCredentialBytes.Errorf("%s have %d bytes of credentials for image "+
			"%q, and one image may have %d", k.owner, bytes, image, budget.PullCredentialBytesMax)
	}
	return Found{once, append(sources, others...)}, nil
}

// Matches reports whether the entry for a registry, with or without a scheme, is for an image.
func Matches(registry, image string) bool { return matches(normalizeRegistry(registry), image) }

// SplitPort splits the port from a host, which may be an IPv6 address in brackets.
func SplitPort(host string) (name, port string) {
	if address, rest, isClosed := strings.Cut(host, "]"); isClosed && strings.HasPrefix(host, "[") {
		return address[1:], strings.TrimPrefix(rest, ":")
	}
	name, port, _ = strings.Cut(host, ":")
	return name, port
}

// matches reports whether the entry for a registry is for an image.
func matches(registry, image string) bool {
	host, pathPrefix, _ := strings.Cut(registry, "/")
	imageHost, imagePath, _ := strings.Cut(image, "/")
	if !strings.HasPrefix(imagePath, pathPrefix) {
		return false
	}
	host, port := SplitPort(host)
	imageHost, imagePort := SplitPort(imageHost)
	if port != imagePort || strings.Count(host, ".") != strings.Count(imageHost, ".") {
		return false
	}
	for isLast := false; !isLast; {
		var part, imagePart string
		var hasMore bool
		part, host, hasMore = strings.Cut(host, ".")
		imagePart, imageHost, _ = strings.Cut(imageHost, ".")
		if same, err := path.Match(part, imagePart); err != nil || !same {
			return false
		}
		isLast = !hasMore
	}
	return true
}
