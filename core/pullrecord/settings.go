package pullrecord

import (
	"slices"
	"strings"

	"github.com/distribution/reference"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// Settings say which images have to be verified.
type Settings struct {
	// Policy is empty if no image is verified, and nothing is recorded.
	Policy kubeletconfig.ImagePullCredentialsVerificationPolicy `json:"policy,omitempty"`
	// Allowed are the repositories that are not verified under NeverVerifyAllowlistedImages: names
	// without a tag, or prefixes that end in "/*".
	Allowed []string `json:"allowed,omitempty"`
}

// SettingsFromConfig returns the settings of a configuration with defaults.
func SettingsFromConfig(c *kubeletconfig.KubeletConfiguration) Settings {
	return Settings{Policy: c.ImagePullCredentialsVerificationPolicy,
		Allowed: c.PreloadedImagesVerificationAllowlist}
}

// CheckPattern returns what is wrong with an entry of preloadedImagesVerificationAllowlist; empty
// if nothing is (ValidateAllowlistImagesPatterns in pkg/kubelet/images/pullmanager).
func CheckPattern(pattern string) string {
	prefix, isPrefix := strings.CutSuffix(pattern, "/*")
	switch {
	case pattern != strings.TrimSpace(pattern):
		return "must not begin or end with a space"
	case strings.Contains(prefix, "*"):
		return "may have a wildcard only as /* at its end"
	case prefix == "":
		return "must name a registry at least"
	case isPrefix:
		return ""
	}
	if _, err := reference.Parse(pattern); err != nil {
		return "must be the name of an image: " + err.Error()
	}
	if repositoryOf(pattern) != pattern {
		return "must have neither tag nor digest"
	}
	return ""
}

func (s Settings) isAllowed(ref string) bool {
	repository := repositoryOf(ref)
	return slices.ContainsFunc(s.Allowed, func(pattern string) bool {
		prefix, isPrefix := strings.CutSuffix(pattern, "*")
		return isPrefix && strings.HasPrefix(repository, prefix) || pattern == repository
	})
}

// repositoryOf returns a reference as it is written, without its tag and digest.
func repositoryOf(ref string) string {
	name, _, _ := strings.Cut(ref, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		return name[:i]
	}
	return name
}
