package credentials

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// withTokens returns the configuration of a plugin with fields of tokenAttributes.
func withTokens(fields string) string {
	return pluginConfig + "  tokenAttributes: {" + fields + "}\n"
}

func TestTokenAttributes(t *testing.T) {
	got := parse(t, withTokens("serviceAccountTokenAudience: a, cacheType: Token, "+
		"requireServiceAccount: true, requiredServiceAccountAnnotationKeys: [x.example/Role], "+
		"optionalServiceAccountAnnotationKeys: [k, z]"))
	want := &Tokens{Audience: "a", PerToken: true, NeedsAccount: true,
		RequiredKeys: []string{"x.example/Role"}, OptionalKeys: []string{"k", "z"}}
	if diff := cmp.Diff(want, got[0].Tokens); diff != "" || GetsTokens(got) != "ecr" {
		t.Errorf("%s, %q gets tokens", diff, GetsTokens(got))
	}
	if got := parse(t, pluginConfig); got[0].Tokens != nil || GetsTokens(got) != "" {
		t.Errorf("%+v", got[0])
	}
}

func TestTokenAttributesAreValidated(t *testing.T) {
	const valid = "serviceAccountTokenAudience: a, cacheType: ServiceAccount, " +
		"requireServiceAccount: true"
	const at = "/0.yaml: providers[0].tokenAttributes"
	for text, want := range map[string]string{
		withTokens(strings.Replace(valid, ": a", `: ""`, 1)): at +
			".serviceAccountTokenAudience: Required value: ",
		withTokens(strings.Replace(valid, ", cacheType: ServiceAccount", "", 1)): at +
			`.cacheType: Required value: one of ["ServiceAccount" "Token"]`,
		withTokens(strings.Replace(valid, "cacheType: S", "cacheType: s", 1)): at +
			`.cacheType: Unsupported value: "serviceAccount"`,
		withTokens(strings.Replace(valid, ", requireServiceAccount: true", "", 1)): at +
			".requireServiceAccount: Required value: ",
		withTokens(strings.Replace(valid, "true", "false", 1) +
			", requiredServiceAccountAnnotationKeys: [x]"): at +
			".requiredServiceAccountAnnotationKeys: Forbidden: needs requireServiceAccount",
		withTokens(valid + `, requiredServiceAccountAnnotationKeys: ["x y"]`): at +
			`.requiredServiceAccountAnnotationKeys[0]: Invalid value: "x y"`,
		withTokens(valid + `, optionalServiceAccountAnnotationKeys: [x, x]`): at +
			`.optionalServiceAccountAnnotationKeys[1]: Duplicate value: "x"`,
		withTokens(valid + `, requiredServiceAccountAnnotationKeys: [x], ` +
			`optionalServiceAccountAnnotationKeys: [k, x]`): at +
			`.optionalServiceAccountAnnotationKeys[1]: Invalid value: "x": is required`,
		strings.Replace(withTokens(valid), "credentialprovider.kubelet.k8s.io/v1",
			"credentialprovider.kubelet.k8s.io/v1beta1", 1): at +
			": Forbidden: needs the apiVersion credentialprovider.kubelet.k8s.io/v1",
		strings.Replace(withTokens(valid), "kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1",
			1): at + ": Forbidden: needs a configuration of the apiVersion kubelet.config.k8s.io/v1",
		withTokens(valid + ", audience: b"): "/0.yaml: unknown fields: " +
			"providers[0].tokenAttributes.audience",
	} {
		_, err := ParseConfig([]File{{"/0.yaml", []byte(text)}})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	parse(t, withTokens(valid))
}
