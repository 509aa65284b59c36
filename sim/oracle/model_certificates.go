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
	// ofSource are the requests of agents for each source, in the order of their creation. A pod has
	// at most one source of each signer.
	ofSource map[certificateSource][]*certificateRequest
	byUID    map[string]*certificateRequest
	hasKeys  bool // the machine has made a private key
	// keys are the private keys that files of volumes had, by their PEM blocks' bytes. Each is parsed
	// once.
	keys map[string]any
	// expiredAt is when an Event last said that a certificate of a pod has expired, by the pod's UID.
	expiredAt map[string]time.Time
	cost      certificateCost
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
	deletedAt   time.Time
	leaf        []byte    // of an issued one, as DER
	renewAt     time.Time // from when on it is to be renewed
	notAfter    time.Time
}

func (r *certificateRequest) isOpen() bool { return r.answer == "" && !r.isDeleted }

func (o *certificateModel) apply(f *truth.Fact) {
	switch {
	case f.Kind == truth.KeyMade:
		o.hasKeys = true
	case f.Kind == truth.EventRecorded && f.Reason == reasonExpired:
		if o.expiredAt == nil {
			o.expiredAt = map[string]time.Time{}
		}
		o.expiredAt[f.PodUID] = f.Time
	case f.Write == nil || f.Write.Resource != api.ResourcePodCertificateRequests:
	case f.Kind == truth.ObjectCreated:
		o.add(f)
	case f.Kind == truth.ObjectDeleted:
		r := o.byUID[string(f.Write.Before.CertificateRequest.UID)]
		r.isDeleted, r.deletedAt = true, f.Time
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
	if source := sourceOf(created); r.incarnation != 0 {
		o.ofSource[source] = append(o.ofSource[source], r)
	}
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
	if at := after.Status.NotAfter; at != nil {
		r.notAfter = at.Time
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
// of an agent that was started since then cannot be set up. A request that was deleted before its
// answer is made again later.
func (p *pod) lacksCertificate(now time.Time) bool {
	return p.model.visitCertificates(p, func(_ string, source certificateSource,
		_ *v1.PodCertificateProjection) *finding {
		newest := p.model.certificates.newest(source)
		switch {
		case newest == nil, newest.leaf != nil:
		case !newest.isDeleted, newest.answer != "", now.Sub(newest.deletedAt) < certificateBound:
			return &finding{}
		}
		return nil
	}) != nil
}

// isForCertificate reports whether a call is on the way to a request for a certificate.
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

// checkCertificateCall judges a call that is on the way to a request for a certificate, and reports
// false for any other one.
func (s *Set) checkCertificateCall(now time.Time, request any) bool {
	m := s.model
	if !m.isForCertificate(request) {
		return false
	}
	if f := m.certificates.checkCost(m, now, request); f != nil {
		s.report(&economy{}, f, now)
	}
	return true
}

// certificateCost is what the agent has asked for since no fault can have caused it.
type certificateCost struct {
	keys, creations int
	reads           map[string][]time.Time // by account, in the last accountPeriod
	needs           map[string]int         // the most that countCertificates has returned, by account
}

// accountPeriod is that of the reads of the service account for the requests of one pod, less what
// the one before may have waited for its lane.
const accountPeriod = time.Minute - time.Second

// checkCost counts a call that is on the way to a request, and returns a finding if there are more
// than are needed: a key is for one request, a request is created once, and a pod reads its account
// once for all that are due. That it is time for a request is judged by the oracle
// pod-certificates.
func (o *certificateModel) checkCost(m *model, now time.Time, request any) *finding {
	isQuiet := now.Sub(later(later(m.healedAt, m.agentStartedAt), m.lastFault(now))) > callBound
	if !isQuiet || o.cost.reads == nil {
		o.cost = certificateCost{reads: map[string][]time.Time{}, needs: map[string]int{}}
	}
	if !isQuiet {
		return nil
	}
	switch r := request.(type) {
	case *api.MakeKey:
		o.cost.keys++
		if most := o.cost.creations + o.needs(m, ""); o.cost.keys > most {
			return findingf("%d keys were asked for, and %d are needed at most", o.cost.keys, most)
		}
	case *api.CreateObject:
		created := r.Object.CertificateRequest
		o.cost.creations++
		for _, other := range o.ofSource[sourceOf(created)] {
			if other.name == created.Name && now.Sub(other.createdAt) > quietBound {
				return findingf("the request %s is created again", created.Name)
			}
		}
	case *api.GetObject:
		return o.checkRead(m, now, r.Namespace+"/"+r.Name)
	}
	return nil
}

// checkRead counts a read of an account. An agent that pulls images with tokens reads it for them,
// too.
func (o *certificateModel) checkRead(m *model, now time.Time, account string) *finding {
	if m.opts.UserAnnotation != "" {
		return nil
	}
	reads := append(o.cost.reads[account], now)
	for now.Sub(reads[0]) >= accountPeriod {
		reads = reads[1:]
	}
	o.cost.reads[account] = reads
	if most := o.needs(m, account); len(reads) > most {
		return findingf("the account %s was read %d times in %v, for %d pods", account, len(reads),
			accountPeriod, most)
	}
	return nil
}

// needs returns the most that countCertificates has returned since the calls are counted: a pod may
// have gone meanwhile.
func (o *certificateModel) needs(m *model, account string) int {
	o.cost.needs[account] = max(o.cost.needs[account], m.countCertificates(account))
	return o.cost.needs[account]
}

// countCertificates returns how many pods with sources podCertificate have an account, and for the
// account "" how many such sources there are.
func (m *model) countCertificates(account string) (n int) {
	for _, p := range m.podsInOrder {
		if p.spec == nil || account != "" &&
			p.spec.Namespace+"/"+p.spec.Spec.ServiceAccountName != account {
			continue
		}
		ofPod := 0
		m.visitCertificates(p, func(string, certificateSource, *v1.PodCertificateProjection) *finding {
			ofPod++
			return nil
		})
		if account != "" {
			ofPod = min(ofPod, 1)
		}
		n += ofPod
	}
	return n
}

// decodeBundle returns the private key and the certificates of a file, in the format of a
// credential bundle; nil for each that it lacks.
func (o *certificateModel) decodeBundle(text []byte) (key any, chain [][]byte) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		switch block.Type {
		case "PRIVATE KEY":
			key = o.parseKey(block.Bytes)
		case "CERTIFICATE":
			chain = append(chain, block.Bytes)
		}
	}
	return key, chain
}

// parseKey returns the private key of a PEM block; nil if it has none.
func (o *certificateModel) parseKey(block []byte) any {
	if key, ok := o.keys[string(block)]; ok {
		return key
	}
	key, err := x509.ParsePKCS8PrivateKey(block)
	if err != nil {
		return nil
	}
	if o.keys == nil {
		o.keys = map[string]any{}
	}
	o.keys[string(block)] = key
	return key
}
