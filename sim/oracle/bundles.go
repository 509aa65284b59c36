package oracle

import (
	"bytes"
	"encoding/pem"
	"slices"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// Trust anchors in volumes: of one bundle of the cluster, or of all of a signer that have some
// labels. A state of them is a state of all bundles together.

// takeBundle takes that a bundle was made, changed or removed.
func (o *sources) takeBundle(f *truth.Write) {
	var now []*certificatesv1beta1.ClusterTrustBundle
	if n := len(o.bundles); n > 0 {
		now = slices.DeleteFunc(slices.Clone(o.bundles[n-1]),
			func(b *certificatesv1beta1.ClusterTrustBundle) bool { return b.Name == f.Name })
	}
	if after := f.After.TrustBundle; after != nil {
		now = append(now, after)
	}
	o.bundles = append(o.bundles, now)
}

// ofBundle is a source of trust anchors.
func ofBundle(s *v1.ClusterTrustBundleProjection) source {
	name := s.Path
	if s.Name != nil {
		name += " of " + *s.Name
	} else if s.SignerName != nil {
		name += " of " + *s.SignerName
	}
	return source{object: objectName(api.ResourceTrustBundles, "", name),
		optional: s.Optional != nil && *s.Optional, bundle: s}
}

// of is every state that a source has had.
func (o *sources) of(s *source) []map[string][]byte {
	if s.bundle == nil {
		return o.states[s.object]
	}
	states := []map[string][]byte{nil} // at first there was none
	for _, all := range o.bundles {
		var state map[string][]byte
		for _, b := range all {
			if !selects(s.bundle, b) {
				continue
			}
			if state == nil {
				state = map[string][]byte{}
			}
			for _, der := range certificates([]byte(b.Spec.TrustBundle)) {
				state[string(der)] = der
			}
		}
		states = append(states, state)
	}
	return states
}

func selects(s *v1.ClusterTrustBundleProjection, b *certificatesv1beta1.ClusterTrustBundle) bool {
	if s.Name != nil {
		return b.Name == *s.Name
	}
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
	return err == nil && s.SignerName != nil && b.Spec.SignerName == *s.SignerName &&
		selector.Matches(labels.Set(b.Labels))
}

func certificates(text []byte) [][]byte {
	var all [][]byte
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		all = append(all, block.Bytes)
	}
	return all
}

// trusts says whether a file holds the anchors of a state: each once, and nothing else.
func (w *world) trusts(at string, s *source, state map[string][]byte) bool {
	text, there := w.opts.Read(at)
	if !there {
		return false
	}
	var again []byte
	anchors := certificates(text)
	for _, der := range anchors {
		if _, is := state[string(der)]; !is {
			return false
		}
		again = append(again, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return len(anchors) == len(state) && bytes.Equal(again, text)
}
