// Package imagename takes references to images apart, in time that is linear in their length.
//
// It keeps no facts. For a valid reference the result is that of github.com/distribution/reference,
// whose regular expressions take up to a microsecond for each byte: that is for one reference, and
// not for those of all pods at once. Of an invalid reference the result is some name, which need
// not be valid. Start reading at Split.
package imagename

import "strings"

// Name is the name of an image, with the default registry if the reference has none.
type Name struct {
	Registry   string // HOST[:PORT]
	Repository string
	Tag        string // may be empty
	Digest     string // may be empty
}

// The default registry, its old name, and where it has official images.
const (
	hub      = "docker.io"
	oldHub   = "index.docker.io"
	official = "library/"
)

// Split takes a reference apart.
func Split(ref string) Name {
	registry, rest, hasSlash := strings.Cut(ref, "/")
	switch {
	case !hasSlash:
		registry, rest = hub, ref
	case registry == oldHub:
		registry = hub
	case registry != "localhost" && !strings.ContainsAny(registry, ".:") &&
		strings.ToLower(registry) == registry:
		registry, rest = hub, ref
	}
	rest, digest, _ := strings.Cut(rest, "@")
	repository, tag, _ := strings.Cut(rest, ":")
	if registry == hub && !strings.Contains(repository, "/") {
		repository = official + repository
	}
	return Name{registry, repository, tag, digest}
}

// Path returns the registry and the repository.
func (n Name) Path() string { return n.Registry + "/" + n.Repository }

// Full returns the name as the runtime reports it: with a digest and without a tag, or else with a
// tag.
func (n Name) Full() string {
	switch {
	case n.Digest != "":
		return n.Path() + "@" + n.Digest
	case n.Tag == "":
		return n.Path() + ":latest"
	}
	return n.Path() + ":" + n.Tag
}

// WithFullNames returns references and, of those that are no full names, the full names, each once.
func WithFullNames(refs []string) []string {
	var all []string
	isKnown := map[string]bool{"": true}
	add := func(name string) {
		if !isKnown[name] {
			isKnown[name] = true
			all = append(all, name)
		}
	}
	for _, ref := range refs {
		if !isKnown[ref] {
			add(ref)
			add(Split(ref).Full())
		}
	}
	return all
}
