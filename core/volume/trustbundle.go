package volume

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/objectcache"
	"seedlet.dev/world"
)

// Trust anchors from ClusterTrustBundles (KEP-3257). All bundles are watched while a pod uses any:
// labels decide which bundles of a signer are selected, and labels change.

// AllTrustBundles is the watch that a volume with trust bundles needs.
var AllTrustBundles = world.WatchTarget{Resource: world.ResourceTrustBundles}

// HasTrustBundles reports whether a volume projects trust bundles.
func HasTrustBundles(v *v1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources,
		func(s v1.VolumeProjection) bool { return s.ClusterTrustBundle != nil })
}

// trustBundles returns the bundles of a projection: one bundle by name, or those of a signer with
// matching labels. A server without the resource has no bundles.
func (p *Pod) trustBundles(s *v1.ClusterTrustBundleProjection) sourceContent {
	if p.Objects == nil {
		return sourceContent{err: errors.New("no API server is configured")}
	}
	w := p.Objects.Watch(AllTrustBundles)
	switch {
	case w == nil || !w.Listed && w.Failing == nil:
		return sourceContent{} // unknown before the first list
	case w.Listed:
	case w.Failing.Has(world.KindNotFound):
		return sourceContent{absent: true, err: errors.New("the API server does not serve " +
			"clustertrustbundles of certificates.k8s.io/v1beta1")}
	case w.Failing.Has(world.KindRefused):
		return sourceContent{
			err: fmt.Errorf("clustertrustbundles cannot be listed: %s", w.Failing.Message)}
	default:
		return sourceContent{err: errors.New("failed to sync clustertrustbundle cache: timed out " +
			"waiting for the condition")}
	}
	selected, err := selectBundles(s, w)
	switch {
	case err != nil:
		return sourceContent{err: err}
	case len(selected) == 0 && s.Name != nil:
		return sourceContent{absent: true,
			err: fmt.Errorf("clustertrustbundle.certificates.k8s.io %q not found", *s.Name)}
	case len(selected) == 0:
		return sourceContent{absent: true, err: errors.New("combination of signerName and " +
			"labelSelector matched zero ClusterTrustBundles")}
	}
	var content sourceContent
	for i := range selected {
		content.version += objectcache.Version(&selected[i]) + ","
		content.bundles = append(content.bundles, selected[i].TrustBundle.Spec.TrustBundle)
	}
	return content
}

// selectBundles returns the bundles that a projection selects.
func selectBundles(s *v1.ClusterTrustBundleProjection,
	w *objectcache.Watch) ([]world.Object, error) {
	if s.Name != nil {
		if bundle, exists := w.Objects["/"+*s.Name]; exists {
			return []world.Object{bundle}, nil
		}
		return nil, nil
	}
	if s.SignerName == nil {
		return nil, errors.New("ClusterTrustBundle projection requires either name or signerName " +
			"to be set")
	}
	// A missing selector selects nothing.
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	var selected []world.Object
	for _, name := range w.Names() {
		bundle := w.Objects[name]
		if bundle.TrustBundle.Spec.SignerName == *s.SignerName &&
			selector.Matches(labels.Set(bundle.TrustBundle.Labels)) {
			selected = append(selected, bundle)
		}
	}
	return selected, nil
}

// trustAnchorsOf returns the certificates of the bundles of a projection. They are decoded once for
// all volumes: each of 256 sources may select the same bundles of 1 MiB.
func (p *Pod) trustAnchorsOf(content sourceContent) string {
	if len(content.bundles) == 0 {
		return ""
	}
	anchors, known := p.anchors[content.version]
	if !known {
		if p.anchors == nil {
			p.anchors = map[string]string{}
		}
		anchors = trustAnchors(content.bundles, p.Spec.UID)
		p.anchors[content.version] = anchors
	}
	return anchors
}

// trustAnchors returns the certificates of bundles, each once and nothing else. Programs must not
// depend on the order of certificates, so the order differs between pods, but is stable within one
// pod.
func trustAnchors(bundles []string, uid types.UID) string {
	type anchor struct {
		rank [sha256.Size]byte
		der  []byte
	}
	var all []anchor
	for _, text := range bundles {
		for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == "CERTIFICATE" {
				all = append(all, anchor{sha256.Sum256(slices.Concat([]byte(uid), block.Bytes)),
					block.Bytes})
			}
		}
	}
	slices.SortFunc(all, func(x, y anchor) int {
		return cmp.Or(bytes.Compare(x.rank[:], y.rank[:]), bytes.Compare(x.der, y.der))
	})
	all = slices.CompactFunc(all, func(x, y anchor) bool { return bytes.Equal(x.der, y.der) })
	var b strings.Builder
	for _, a := range all {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der}))
	}
	return b.String()
}
