package apiserver

import (
	"encoding/pem"
	"strings"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// validateTrustBundle returns why a trust bundle is invalid. It does not check that the
// certificates are CA certificates, so that plans may use any content.
func validateTrustBundle(b *certificatesv1beta1.ClusterTrustBundle) string {
	name, hasSignerPrefix := b.Name, false
	if signer := b.Spec.SignerName; signer != "" {
		name, hasSignerPrefix = strings.CutPrefix(name, strings.ReplaceAll(signer, "/", ":")+":")
	}
	if hasSignerPrefix != (b.Spec.SignerName != "") || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return "metadata.name: Invalid value: want that of the signer, a colon and another, and no " +
			"colon without a signer"
	}
	seen := map[string]bool{}
	for rest := []byte(b.Spec.TrustBundle); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 || seen[string(block.Bytes)] {
			return "spec.trustBundle: Invalid value: want certificates without headers, each once"
		}
		seen[string(block.Bytes)] = true
	}
	if len(seen) == 0 {
		return "spec.trustBundle: Invalid value: at least one trust anchor must be provided"
	}
	return ""
}
