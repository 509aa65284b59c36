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

// Trust anchors in volumes: those of one ClusterTrustBundle, or of all bundles of a signer that
// have certain labels. A state of this source is a state of all bundles together.

// applyBundle records that a bundle was created, updated or deleted.
func (o *objectHistory) applyBundle(f *truth.Write) {
	var now []*certificatesv1beta1.ClusterTrustBundle
	if n := len(o.bundleStates); n > 0 {
		now = slices.DeleteFunc(slices.Clone(o.bundleStates[n-1]),
			func(b *certificatesv1beta1.ClusterTrustBundle) bool { return b.Name == f.Name })
	}
	if after := f.After.TrustBundle; after != nil {
		now = append(now, after)
	}
	o.bundleStates = append(o.bundleStates, now)
}

// bundleSource returns a source of trust anchors.
func bundleSource(s *v1.ClusterTrustBundleProjection) volumeSource {
	name := s.Path
	if s.Name != nil {
		name += " of " + *s.Name
	} else if s.SignerName != nil {
		name += " of " + *s.SignerName
	}
	return volumeSource{object: objectKey(api.ResourceTrustBundles, "", name),
		optional: s.Optional != nil && *s.Optional, bundle: s}
}

// statesOf returns every state that a source has had.
func (o *objectHistory) statesOf(s *volumeSource) []map[string][]byte {
	if s.bundle == nil {
		return o.states[s.object]
	}
	states := []map[string][]byte{nil} // at first no bundle exists
	for _, all := range o.bundleStates {
		var state map[string][]byte
		for _, b := range all {
			if !selectsBundle(s.bundle, b) {
				continue
			}
			if state == nil {
				state = map[string][]byte{}
			}
			for _, der := range decodeCertificates([]byte(b.Spec.TrustBundle)) {
				state[string(der)] = der
			}
		}
		states = append(states, state)
	}
	return states
}

func selectsBundle(s *v1.ClusterTrustBundleProjection,
	b *certificatesv1beta1.ClusterTrustBundle) bool {
	if s.Name != nil {
		return b.Name == *s.Name
	}
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
	return err == nil && s.SignerName != nil && b.Spec.SignerName == *s.SignerName &&
		selector.Matches(labels.Set(b.Labels))
}

func decodeCertificates(text []byte) [][]byte {
	var all [][]byte
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		all = append(all, block.Bytes)
	}
	return all
}

// holdsTrustAnchors reports whether a file holds the anchors of a state, each once and no others.
func (m *model) holdsTrustAnchors(at string, s *volumeSource, state map[string][]byte) bool {
	text, exists := m.opts.ReadFile(at)
	if !exists {
		return false
	}
	var encoded []byte
	anchors := decodeCertificates(text)
	for _, der := range anchors {
		if _, ok := state[string(der)]; !ok {
			return false
		}
		encoded = append(encoded, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	return len(anchors) == len(state) && bytes.Equal(encoded, text)
}
