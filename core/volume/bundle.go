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

	"seedlet.dev/core/object"
	"seedlet.dev/world"
)

// Trust anchors from the bundles of the cluster (KEP-3257). All bundles are watched, while a pod
// wants some of them: which are a signer's is for labels to say, and they change.

// AllBundles is what is watched for a volume that HasBundles.
var AllBundles = world.Watched{Resource: world.ResourceTrustBundles}

// HasBundles says whether a volume holds trust anchors from the cluster's bundles.
func HasBundles(v *v1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources,
		func(s v1.VolumeProjection) bool { return s.ClusterTrustBundle != nil })
}

// bundles are what is taken for a source: one bundle by its name, or those of a signer that have
// the labels. A server that does not have the resource has no bundles.
func (p *Pod) bundles(s *v1.ClusterTrustBundleProjection) part {
	if p.Objects == nil {
		return part{err: errors.New("no API server is configured")}
	}
	w := p.Objects.Watch(AllBundles)
	switch {
	case w == nil || !w.Listed && w.Failing == nil:
		return part{} // it soon will be known
	case w.Listed:
	case w.Failing.Has(world.KindNotFound):
		return part{absent: true, err: errors.New("the API server does not serve " +
			"clustertrustbundles of certificates.k8s.io/v1beta1")}
	case w.Failing.Has(world.KindRefused):
		return part{err: fmt.Errorf("clustertrustbundles cannot be listed: %s", w.Failing.Message)}
	default:
		return part{err: errors.New("failed to sync clustertrustbundle cache: timed out waiting " +
			"for the condition")}
	}
	chosen, err := choose(s, w)
	switch {
	case err != nil:
		return part{err: err}
	case len(chosen) == 0 && s.Name != nil:
		return part{absent: true,
			err: fmt.Errorf("clustertrustbundle.certificates.k8s.io %q not found", *s.Name)}
	case len(chosen) == 0:
		return part{absent: true, err: errors.New("combination of signerName and labelSelector " +
			"matched zero ClusterTrustBundles")}
	}
	var is part
	for i := range chosen {
		is.version += object.Version(&chosen[i]) + ","
		is.bundles = append(is.bundles, chosen[i].TrustBundle.Spec.TrustBundle)
	}
	return is
}

// choose finds the bundles that a source names.
func choose(s *v1.ClusterTrustBundleProjection, w *object.Watch) ([]world.Object, error) {
	if s.Name != nil {
		if is, there := w.Objects["/"+*s.Name]; there {
			return []world.Object{is}, nil
		}
		return nil, nil
	}
	if s.SignerName == nil {
		return nil, errors.New("ClusterTrustBundle projection requires either name or signerName " +
			"to be set")
	}
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector) // none selects nothing
	if err != nil {
		return nil, fmt.Errorf("labelSelector: %w", err)
	}
	var chosen []world.Object
	for _, name := range w.Names() {
		is := w.Objects[name]
		if is.TrustBundle.Spec.SignerName == *s.SignerName &&
			selector.Matches(labels.Set(is.TrustBundle.Labels)) {
			chosen = append(chosen, is)
		}
	}
	return chosen, nil
}

// anchors are the certificates of bundles, each once and nothing else. Nobody is to depend on their
// order, so it is another one in each pod; but in one pod it stays.
func anchors(bundles []string, uid types.UID) []byte {
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
	return []byte(b.String())
}
