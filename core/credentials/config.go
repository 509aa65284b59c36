package credentials

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	providerconfig "k8s.io/kubelet/config/v1"

	"seedlet.dev/core/document"
	"seedlet.dev/world"
)

// Provider is a plugin that provides credentials for images.
type Provider struct {
	Name          string                     `json:"name"` // of its program
	MatchImages   []string                   `json:"matchImages"`
	CacheDuration time.Duration              `json:"cacheDuration"` // if a response has none
	APIVersion    string                     `json:"apiVersion"`    // of requests and responses
	Args          []string                   `json:"args,omitempty"`
	Env           []world.CredentialVariable `json:"env,omitempty"`
}

// File is a file of the plugins' configuration.
type File struct {
	Name string
	Data []byte
}

const (
	configKind  = "CredentialProviderConfig"
	configGroup = "kubelet.config.k8s.io/"
	pluginGroup = "credentialprovider.kubelet.k8s.io/"
)

// Hash returns the hash of a configuration, as the kubelet's metric credential_provider_config_info
// has it.
func Hash(files []File) string {
	hash := sha256.New()
	for _, file := range files {
		hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(file.Data))))
		hash.Write(file.Data)
	}
	return fmt.Sprintf("sha256:%x", hash.Sum(nil))
}

// versions are the versions of both groups that the kubelet knows; they do not differ in what the
// agent has.
var versions = []string{"v1", "v1beta1", "v1alpha1"}

// ParseConfig returns the plugins of CredentialProviderConfigs, in the order of the files. An error
// names the file and the fields.
func ParseConfig(files []File) ([]Provider, error) {
	var all []Provider
	for _, file := range files {
		doc, err := document.Parse(file.Data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		var c providerconfig.CredentialProviderConfig
		unknown, err := document.Decode(doc, &c)
		version, inGroup := strings.CutPrefix(c.APIVersion, configGroup)
		switch {
		case doc == nil:
			err = fmt.Errorf("the file is empty, want kind %s", configKind)
		case err != nil:
		case c.Kind != configKind || !inGroup || !slices.Contains(versions, version):
			err = fmt.Errorf("want apiVersion %sv1, kind %s; have apiVersion %q, kind %q", configGroup,
				configKind, c.APIVersion, c.Kind)
		case len(unknown) > 0:
			err = fmt.Errorf("unknown fields: %s", strings.Join(unknown, ", "))
		default:
			err = validate(c.Providers, all).ToAggregate()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		for _, p := range c.Providers {
			all = append(all, providerOf(p))
		}
	}
	return all, nil
}

func providerOf(c providerconfig.CredentialProvider) Provider {
	p := Provider{Name: c.Name, MatchImages: c.MatchImages, APIVersion: c.APIVersion, Args: c.Args,
		CacheDuration: c.DefaultCacheDuration.Duration}
	for _, v := range c.Env {
		p.Env = append(p.Env, world.CredentialVariable{Name: v.Name, Value: v.Value})
	}
	return p
}

// validate returns the errors of the plugins of one file, after those of earlier files
// (validateCredentialProviderConfig in pkg/credentialprovider/plugin).
func validate(providers []providerconfig.CredentialProvider, before []Provider) field.ErrorList {
	var errs field.ErrorList
	root := field.NewPath("providers")
	if len(providers) == 0 {
		errs = append(errs, field.Required(root, "a configuration has at least one plugin"))
	}
	isKnown := map[string]bool{}
	for _, p := range before {
		isKnown[p.Name] = true
	}
	for i, p := range providers {
		at := root.Index(i)
		if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ ") {
			errs = append(errs, field.Invalid(at.Child("name"), p.Name,
				"must be the name of a program, without '/' and spaces"))
		}
		if isKnown[p.Name] {
			errs = append(errs, field.Duplicate(at.Child("name"), p.Name))
		}
		isKnown[p.Name] = true
		version, inGroup := strings.CutPrefix(p.APIVersion, pluginGroup)
		if !inGroup || !slices.Contains(versions, version) {
			errs = append(errs, field.NotSupported(at.Child("apiVersion"), p.APIVersion,
				[]string{pluginGroup + "v1"}))
		}
		errs = append(errs, validateRest(at, &p)...)
	}
	return errs
}

func validateRest(at *field.Path, p *providerconfig.CredentialProvider) field.ErrorList {
	var errs field.ErrorList
	if len(p.MatchImages) == 0 {
		errs = append(errs, field.Required(at.Child("matchImages"), "a plugin is for some images"))
	}
	for i, pattern := range p.MatchImages {
		if host, _, _ := strings.Cut(pattern, "/"); host == "" || strings.ContainsAny(pattern, " ?#@") {
			errs = append(errs, field.Invalid(at.Child("matchImages").Index(i), pattern,
				"must be HOST[:PORT][/PATH], where the host may have wildcards"))
		}
	}
	switch d := p.DefaultCacheDuration; {
	case d == nil:
		errs = append(errs, field.Required(at.Child("defaultCacheDuration"), "as 10m, or 0s"))
	case d.Duration < 0:
		errs = append(errs, field.Invalid(at.Child("defaultCacheDuration"), d.Duration.String(),
			"must not be negative"))
	}
	if p.TokenAttributes != nil {
		errs = append(errs, field.Forbidden(at.Child("tokenAttributes"),
			"tokens of service accounts for plugins are not supported yet (KEP-4412)"))
	}
	return errs
}
