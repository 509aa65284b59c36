package credentials

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	providerconfig "k8s.io/kubelet/config/v1"

	"seedlet.dev/core/document"
	"seedlet.dev/core/keyring"
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
	// Tokens says which tokens of service accounts the plugin gets; nil: none.
	Tokens *Tokens `json:"tokens,omitempty"`
}

// Tokens says which tokens of the service accounts of pods a plugin gets (KEP-4412).
type Tokens struct {
	Audience string `json:"audience"`
	// PerToken is set if a response counts for the token of its request only (cacheType Token), and
	// not for all pods of the service account.
	PerToken bool `json:"perToken,omitempty"`
	// NeedsAccount is set if the plugin is not asked for pods without a service account.
	NeedsAccount bool `json:"needsAccount,omitempty"`
	// RequiredKeys are the annotations without which the plugin is not asked. It gets them, and those
	// of OptionalKeys that the service account has.
	RequiredKeys []string `json:"requiredKeys,omitempty"`
	OptionalKeys []string `json:"optionalKeys,omitempty"`
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
	// tokensVersion is the only version of requests that have a token.
	tokensVersion = pluginGroup + "v1"
)

// Hash returns the hash of a configuration, as the kubelet's metric credential_provider_config_info
// has it.
func Hash(files []File) string {
	hash := sha256.New()
	for _, file := range files {
		addSized(hash, file.Data)
	}
	return fmt.Sprintf("sha256:%x", hash.Sum(nil))
}

// addSized adds data to a hash, after its size: other data that are the same when they are joined
// have another hash.
func addSized(hash hash.Hash, data []byte) {
	hash.Write(binary.BigEndian.AppendUint64(nil, uint64(len(data))))
	hash.Write(data)
}

// versions are the versions of both groups that the kubelet knows. Only the first one has tokens;
// else they do not differ in what the agent has.
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
			err = validate(c.Providers, all, version).ToAggregate()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name, err)
		}
		for _, p := range c.Providers {
			all = append(all, providerOf(p))
		}
	}
	if len(files) > 0 && len(all) == 0 {
		return nil, fmt.Errorf("%s: %w", files[len(files)-1].Name,
			field.Required(field.NewPath("providers"), "a configuration has at least one plugin"))
	}
	return all, nil
}

func providerOf(c providerconfig.CredentialProvider) Provider {
	p := Provider{Name: c.Name, MatchImages: c.MatchImages, APIVersion: c.APIVersion, Args: c.Args,
		CacheDuration: c.DefaultCacheDuration.Duration}
	for _, v := range c.Env {
		p.Env = append(p.Env, world.CredentialVariable{Name: v.Name, Value: v.Value})
	}
	if t := c.TokenAttributes; t != nil {
		p.Tokens = &Tokens{Audience: t.ServiceAccountTokenAudience,
			NeedsAccount: *t.RequireServiceAccount,
			PerToken:     t.CacheType == providerconfig.TokenServiceAccountTokenCacheType,
			RequiredKeys: t.RequiredServiceAccountAnnotationKeys,
			OptionalKeys: t.OptionalServiceAccountAnnotationKeys}
	}
	return p
}

// GetsTokens returns the name of a plugin that gets tokens of service accounts; empty if none does.
func GetsTokens(providers []Provider) string {
	for i := range providers {
		if providers[i].Tokens != nil {
			return providers[i].Name
		}
	}
	return ""
}

// validate returns the errors of the plugins of one file, after those of earlier files
// (validateCredentialProviderConfig in pkg/credentialprovider/plugin).
func validate(providers []providerconfig.CredentialProvider, before []Provider,
	version string) field.ErrorList {
	var errs field.ErrorList
	root := field.NewPath("providers")
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
		of, inGroup := strings.CutPrefix(p.APIVersion, pluginGroup)
		if !inGroup || !slices.Contains(versions, of) {
			errs = append(errs, field.NotSupported(at.Child("apiVersion"), p.APIVersion,
				[]string{pluginGroup + "v1"}))
		}
		errs = append(errs, validateRest(at, &p)...)
		if p.TokenAttributes != nil && version != versions[0] {
			errs = append(errs, field.Forbidden(at.Child("tokenAttributes"),
				"needs a configuration of the apiVersion "+configGroup+versions[0]))
		}
	}
	return errs
}

func isPort(text string) bool { return strings.Trim(text, "0123456789") == "" }

func validateRest(at *field.Path, p *providerconfig.CredentialProvider) field.ErrorList {
	var errs field.ErrorList
	if len(p.MatchImages) == 0 {
		errs = append(errs, field.Required(at.Child("matchImages"), "a plugin is for some images"))
	}
	for i, pattern := range p.MatchImages {
		host, _, _ := strings.Cut(pattern, "/")
		_, port := keyring.SplitPort(host)
		if host == "" || strings.ContainsAny(pattern, " ?#@") || !isPort(port) {
			errs = append(errs, field.Invalid(at.Child("matchImages").Index(i), pattern,
				"must be HOST[:PORT][/PATH], where the host may have wildcards, and the port none"))
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
		errs = append(errs, validateTokens(at.Child("tokenAttributes"), p)...)
	}
	return errs
}

// validateTokens returns the errors of tokenAttributes. Whether the feature gate is on is checked
// when the configuration of the agent is known.
func validateTokens(at *field.Path, p *providerconfig.CredentialProvider) field.ErrorList {
	var errs field.ErrorList
	t := p.TokenAttributes
	if p.APIVersion != tokensVersion {
		errs = append(errs, field.Forbidden(at, "needs the apiVersion "+tokensVersion))
	}
	if t.ServiceAccountTokenAudience == "" {
		errs = append(errs, field.Required(at.Child("serviceAccountTokenAudience"),
			"the audience of the tokens"))
	}
	kinds := []providerconfig.ServiceAccountTokenCacheType{
		providerconfig.ServiceAccountServiceAccountTokenCacheType,
		providerconfig.TokenServiceAccountTokenCacheType}
	switch {
	case t.CacheType == "":
		errs = append(errs, field.Required(at.Child("cacheType"), fmt.Sprintf("one of %q", kinds)))
	case !slices.Contains(kinds, t.CacheType):
		errs = append(errs, field.NotSupported(at.Child("cacheType"), t.CacheType, kinds))
	}
	required := at.Child("requiredServiceAccountAnnotationKeys")
	switch {
	case t.RequireServiceAccount == nil:
		errs = append(errs, field.Required(at.Child("requireServiceAccount"), "true or false"))
	case !*t.RequireServiceAccount && len(t.RequiredServiceAccountAnnotationKeys) > 0:
		errs = append(errs, field.Forbidden(required, "needs requireServiceAccount"))
	}
	errs = append(errs, validateKeys(required, t.RequiredServiceAccountAnnotationKeys, nil)...)
	return append(errs, validateKeys(at.Child("optionalServiceAccountAnnotationKeys"),
		t.OptionalServiceAccountAnnotationKeys, t.RequiredServiceAccountAnnotationKeys)...)
}

// validateKeys returns the errors of keys of annotations, none of which may be one of others.
func validateKeys(at *field.Path, keys, others []string) field.ErrorList {
	var errs field.ErrorList
	isKnown := map[string]bool{}
	for i, key := range keys {
		for _, problem := range validation.IsQualifiedName(strings.ToLower(key)) {
			errs = append(errs, field.Invalid(at.Index(i), key, problem))
		}
		switch {
		case isKnown[key]:
			errs = append(errs, field.Duplicate(at.Index(i), key))
		case slices.Contains(others, key):
			errs = append(errs, field.Invalid(at.Index(i), key, "is required, so it is not optional"))
		}
		isKnown[key] = true
	}
	return errs
}
