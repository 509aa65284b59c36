package oracle

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/sim/truth"
	api "seedlet.dev/world"
)

// podCertificates fires when a volume holds no certificate that was issued for its source, or a key
// that is not that of the certificate, or of another type than the source asks for; when a
// certificate is not renewed in time, or too early; when an agent has two open requests for one
// source, or requests something for a pod that has ended; and when a private key is anywhere but in
// the volume.
type podCertificates struct{}

func (*podCertificates) describe() Entry {
	return Entry{"pod-certificates", "A pod has certificates that were issued for it, with their " +
		"keys, which are nowhere else. They are renewed when it is time, by one request for each " +
		"source, and not after the pod's end."}
}

const (
	// certificateBound is how long a step towards a certificate may take without a fault, also after
	// the back-off of one that has failed.
	certificateBound = 4 * time.Minute
	// slowKeyBound is how long an agent waits for an RSA key that is never made.
	slowKeyBound = 10 * time.Minute
	// renewalJitter is how much later than renewAt an agent may begin.
	renewalJitter = 5 * time.Minute
	// requestGoneBound is after what time a request that was deleted is made again.
	requestGoneBound = 15 * time.Minute
	// endNoticedBound is how long an agent may take to request no more after it has reported an end.
	endNoticedBound = 10 * time.Second
)

// keyMark is in each private key.
const keyMark = "PRIVATE KEY"

func (o *podCertificates) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ObjectCreated:
		if f.Write.Resource == api.ResourcePodCertificateRequests {
			return o.checkRequest(m, f)
		}
	case truth.ObjectUpdated:
		if m.certificates.hasKeys && f.Write.After.Pod != nil &&
			strings.Contains(f.Write.After.Pod.String(), keyMark) {
			return findingf("the object of pod %s has a private key", f.Write.Name)
		}
	case truth.EventRecorded:
		if strings.Contains(f.Message, keyMark) {
			return findingf("an Event has a private key: %s", f.Message)
		}
	case truth.PathWritten:
		return o.checkWritten(m, f.Path)
	case truth.ContainerStarted:
		if p := m.pods[f.PodUID]; p != nil && p.spec != nil {
			return o.checkVolumes(m, p, "")
		}
	}
	return nil
}

// checkRequest checks a request that was created.
func (*podCertificates) checkRequest(m *model, f *truth.Fact) *finding {
	created := f.Write.After.CertificateRequest
	p := m.pods[string(created.Spec.PodUID)]
	switch {
	case f.Write.Incarnation == 0:
		return nil
	case p == nil:
		return findingf("a certificate is requested for a pod that does not exist: %s", created.Name)
	case !p.terminalAt.IsZero() && p.externalPhase == "" &&
		f.Write.SentAt.After(p.terminalAt.Add(endNoticedBound)):
		return findingf("a certificate is requested for pod %s, which has ended", p)
	}
	for _, other := range m.certificates.ofSource[sourceOf(created)] {
		switch {
		case other.incarnation != f.Write.Incarnation:
		case other.isOpen():
			return findingf("pod %s has two open requests of signer %s: %s and %s", p,
				created.Spec.SignerName, other.name, created.Name)
		case other.leaf == nil && other.answer != "":
			return findingf("pod %s has another request, %s, after the signer has answered %s with %s",
				p, created.Name, other.name, other.answer)
		case f.Write.SentAt.Before(other.renewAt):
			return findingf("pod %s has a certificate renewed, by %s, %s before it is time", p,
				created.Name, other.renewAt.Sub(f.Write.SentAt))
		}
	}
	return nil
}

// checkWritten checks a path that was written: the volume of a certificate, or a file in which no
// key may be.
func (o *podCertificates) checkWritten(m *model, at string) *finding {
	if !m.certificates.hasKeys || m.opts.ReadFile == nil {
		return nil
	}
	if text, isFile := m.opts.ReadFile(at); isFile && bytes.Contains(text, []byte(keyMark)) {
		return findingf("the file %s has a private key", at)
	}
	uid, below := childName(m.opts.PodsDir, at)
	if p := m.pods[uid]; below && p != nil && p.spec != nil {
		return o.checkVolumes(m, p, at)
	}
	return nil
}

// checkVolumes checks what the volumes of a pod hold, or only the one at a path.
func (o *podCertificates) checkVolumes(m *model, p *pod, only string) *finding {
	if m.opts.ReadFile == nil {
		return nil
	}
	return m.visitCertificates(p, func(at string, source certificateSource,
		projection *v1.PodCertificateProjection) *finding {
		if only != "" && at != only {
			return nil
		}
		key, chain := m.installed(at, projection)
		if key == nil && (projection.KeyPath != "" || projection.CredentialBundlePath != "") {
			return findingf("%s has no key of %s", at, source.signer)
		}
		if len(chain) == 0 {
			return findingf("%s has no certificate of %s", at, source.signer)
		}
		leaf, err := x509.ParseCertificate(chain[0])
		if err != nil || m.certificates.issued(source, chain[0]) == nil {
			return findingf("%s has a certificate that %s has not issued for the pod", at, source.signer)
		}
		if signer, ok := key.(crypto.Signer); ok &&
			!signer.Public().(interface{ Equal(crypto.PublicKey) bool }).Equal(leaf.PublicKey) {
			return findingf("%s has a key of %s that is not that of the certificate", at, source.signer)
		}
		if have := keyTypeOf(leaf.PublicKey); have != projection.KeyType {
			return findingf("%s has a key of type %s of %s, not %s", at, have, source.signer,
				projection.KeyType)
		}
		return nil
	})
}

// keyTypeOf returns the type of a public key, as the API names it.
func keyTypeOf(key any) string {
	switch k := key.(type) {
	case ed25519.PublicKey:
		return "ED25519"
	case *ecdsa.PublicKey:
		return fmt.Sprint("ECDSAP", k.Curve.Params().BitSize)
	case *rsa.PublicKey:
		return fmt.Sprint("RSA", k.N.BitLen())
	}
	return fmt.Sprintf("%T", key)
}

// installed returns what a volume holds of a source: from the bundle, or from its two files.
func (m *model) installed(at string, s *v1.PodCertificateProjection) (key any, chain [][]byte) {
	if s.CredentialBundlePath != "" {
		text, _ := m.opts.ReadFile(at + "/" + s.CredentialBundlePath)
		return decodeBundle(text)
	}
	keyText, _ := m.opts.ReadFile(at + "/" + s.KeyPath)
	chainText, _ := m.opts.ReadFile(at + "/" + s.CertificateChainPath)
	key, _ = decodeBundle(keyText)
	_, chain = decodeBundle(chainText)
	if block, rest := pem.Decode(chainText); block == nil || len(rest) > 0 && len(chain) < 2 {
		chain = nil
	}
	return key, chain
}

// issued returns the request of a source that was answered with a certificate; nil if there is
// none.
func (o *certificateModel) issued(source certificateSource, leaf []byte) *certificateRequest {
	for _, r := range o.ofSource[source] {
		if r.leaf != nil && bytes.Equal(r.leaf, leaf) {
			return r
		}
	}
	return nil
}

// checkServed checks that running pods have their certificates renewed.
func (o *podCertificates) checkServed(m *model, now time.Time, _ []*v1.Pod) *finding {
	if m.opts.ReadFile == nil || m.agentDown {
		return nil
	}
	for _, p := range m.podsInOrder {
		if p.spec == nil || p.liveContainers == 0 || p.spec.DeletionTimestamp != nil {
			continue
		}
		problem := m.visitCertificates(p, func(at string, source certificateSource,
			projection *v1.PodCertificateProjection) *finding {
			_, chain := m.installed(at, projection)
			if len(chain) == 0 {
				return nil // checkVolumes has found that
			}
			have := m.certificates.issued(source, chain[0])
			finding := m.findOutdated(p, source, have, now)
			if finding != nil && strings.HasPrefix(projection.KeyType, "RSA") &&
				m.faultPossible("MakeKey", now.Add(-certificateBound-slowKeyBound), now) {
				return nil
			}
			return finding
		})
		if problem != nil {
			return problem
		}
	}
	return nil
}

// findOutdated returns a finding if a source should have a newer certificate than the one of a
// request, which is installed.
func (m *model) findOutdated(p *pod, source certificateSource, have *certificateRequest,
	now time.Time) *finding {
	newest := m.certificates.newest(source)
	if have == nil || newest.isOpen() {
		return nil
	}
	var since time.Time // the agent could do the next step
	what := "the renewed certificate is not installed"
	switch {
	case newest == have:
		since, what = have.renewAt.Add(renewalJitter), "the certificate is not renewed"
	case newest.leaf != nil: // a volume is written when all its sources have their certificates
		answeredAt, waits := m.answersOf(p)
		if waits {
			return nil
		}
		since = answeredAt
	case newest.isDeleted && newest.answer == "":
		since, what = newest.createdAt.Add(requestGoneBound), "the deleted request is not made again"
	default:
		return nil // refused
	}
	since = later(since, later(m.agentStartedAt, p.desiredAt))
	if now.Sub(since) <= certificateBound ||
		m.anyFaultPossible(now.Add(-certificateBound), now, certificateCalls...) {
		return nil
	}
	return findingf("pod %s, signer %s: %s since %s", p, source.signer, what,
		since.Format(time.TimeOnly))
}

// answersOf returns when the newest request of any source of a pod was issued, or that one of them
// is not.
func (m *model) answersOf(p *pod) (last time.Time, waits bool) {
	m.visitCertificates(p, func(_ string, source certificateSource,
		_ *v1.PodCertificateProjection) *finding {
		newest := m.certificates.newest(source)
		if waits = waits || newest == nil || newest.leaf == nil; !waits {
			last = later(last, newest.answeredAt)
		}
		return nil
	})
	return last, waits
}

// certificateCalls are the calls that bring a certificate into a volume.
var certificateCalls = []string{"GetObject", "MakeKey", "CreateObject", "WatchObjects",
	"ObjectChanged", "MakeDir", "MountMemory", "WriteDir", "ListPodSandbox", "ListContainers",
	"CreateToken"}
