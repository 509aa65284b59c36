package oracle

import (
	"crypto/x509"
	"encoding/pem"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// certificateModel is what the API server has had of requests for certificates of pods.
type certificateModel struct {
	// ofSource are the requests of each source, in the order of their creation. A pod has at most one
	// source of each signer.
	ofSource map[certificateSource][]*certificateRequest
	byUID    map[string]*certificateRequest
	hasKeys  bool // the machine has made a private key
}

// certificateSource is a source podCertificate of a pod.
type certificateSource struct{ podUID, signer string }

// certificateRequest is a request that was created.
type certificateRequest struct {
	name        string
	incarnation int // of the agent
	createdAt   time.Time
	answer      string // the type of its condition; empty: it is open
	answeredAt  time.Time
	isDeleted   bool
	leaf        []byte    // of an issued one, as DER
	renewAt     time.Time // from when on it is to be renewed
}

func (r *certificateRequest) isOpen() bool { return r.answer == "" && !r.isDeleted }

func (o *certificateModel) apply(f *truth.Fact) {
	switch {
	case f.Kind == truth.KeyMade:
		o.hasKeys = true
	case f.Write == nil || f.Write.Resource != api.ResourcePodCertificateRequests:
	case f.Kind == truth.ObjectCreated:
		o.add(f)
	case f.Kind == truth.ObjectDeleted:
		o.byUID[string(f.Write.Before.CertificateRequest.UID)].isDeleted = true
	default:
		after := f.Write.After.CertificateRequest
		o.byUID[string(after.UID)].applyAnswer(after, f.Time)
	}
}

func (o *certificateModel) add(f *truth.Fact) {
	if o.byUID == nil {
		o.byUID = map[string]*certificateRequest{}
		o.ofSource = map[certificateSource][]*certificateRequest{}
	}
	created := f.Write.After.CertificateRequest
	r := &certificateRequest{name: created.Name, incarnation: f.Write.Incarnation, createdAt: f.Time}
	source := sourceOf(created)
	o.ofSource[source] = append(o.ofSource[source], r)
	o.byUID[string(created.UID)] = r
}

func sourceOf(r *certificatesv1beta1.PodCertificateRequest) certificateSource {
	return certificateSource{string(r.Spec.PodUID), r.Spec.SignerName}
}

func (r *certificateRequest) applyAnswer(after *certificatesv1beta1.PodCertificateRequest,
	now time.Time) {
	if r.answer != "" || len(after.Status.Conditions) == 0 {
		return
	}
	r.answer, r.answeredAt = after.Status.Conditions[0].Type, now
	if block, _ := pem.Decode([]byte(after.Status.CertificateChain)); block != nil {
		r.leaf = block.Bytes
	}
	if at := after.Status.BeginRefreshAt; at != nil {
		r.renewAt = at.Time
	}
}

// newest returns the newest request of a source; nil if there is none.
func (o *certificateModel) newest(source certificateSource) *certificateRequest {
	all := o.ofSource[source]
	if len(all) == 0 {
		return nil
	}
	return all[len(all)-1]
}

// visitCertificates visits the sources podCertificate of the volumes that containers of a pod use,
// with the volume's path, until the visitor returns a finding.
func (m *model) visitCertificates(p *pod, visit func(at string, source certificateSource,
	projection *v1.PodCertificateProjection) *finding) *finding {
	for i := range p.spec.Spec.Volumes {
		v := &p.spec.Spec.Volumes[i]
		if v.Projected == nil || !usesVolume(p.spec, v.Name) {
			continue
		}
		for _, s := range v.Projected.Sources {
			if s.PodCertificate == nil {
				continue
			}
			source := certificateSource{p.uid, s.PodCertificate.SignerName}
			at := volumePath(m.opts.PodsDir+"/"+p.uid, v)
			if problem := visit(at, source, s.PodCertificate); problem != nil {
				return problem
			}
		}
	}
	return nil
}

// lacksCertificate reports whether the pod waits for a signer, or was refused by one: the volumes
// of an agent that was started since then cannot be set up.
func (p *pod) lacksCertificate() bool {
	return p.model.visitCertificates(p, func(_ string, source certificateSource,
		_ *v1.PodCertificateProjection) *finding {
		newest := p.model.certificates.newest(source)
		if newest != nil && (newest.isOpen() || newest.answer != "" && newest.leaf == nil) {
			return &finding{}
		}
		return nil
	}) != nil
}

// isForCertificate reports whether a call is on the way to a request for a certificate: the oracle
// pod-certificates judges whether it is time.
func (m *model) isForCertificate(request any) bool {
	switch r := request.(type) {
	case *api.MakeKey:
		return true
	case *api.GetObject:
		return m.certificates.hasKeys && r.Resource == api.ResourceServiceAccounts
	case *api.CreateObject:
		return r.Object.CertificateRequest != nil
	}
	return false
}

// decodeBundle returns the private key and the certificates of a file, in the format of a
// credential bundle; nil for each that it lacks.
func decodeBundle(text []byte) (key any, chain [][]byte) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "PRIVATE KEY":
			key, _ = x509.ParsePKCS8PrivateKey(block.Bytes)
		case "CERTIFICATE":
			chain = append(chain, block.Bytes)
		}
	}
	return key, chain
}
