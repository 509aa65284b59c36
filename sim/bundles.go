package sim

import (
	"encoding/pem"
	"fmt"
	"math/rand/v2"
	"strings"
)

// kindTrustBundle is the kind of a bundle of trust anchors in a plan.
const kindTrustBundle = "ClusterTrustBundle"

// otherAnchors is a patch that gives a bundle other anchors: some of its own, some that other
// bundles may have as well, in any order, and with something between them.
func otherAnchors(n int, r *rand.Rand) map[string]any {
	names := []string{fmt.Sprintf("anchor %d", n)}
	for shared := range r.IntN(3) {
		names = append(names, fmt.Sprintf("shared %d", shared))
	}
	r.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	var b strings.Builder
	for _, name := range names {
		b.WriteString("# " + name + "\n")
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)}))
	}
	return map[string]any{"spec": map[string]any{"trustBundle": b.String()}}
}
