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
// certificate is not renewed in time, or too early, or expires and no Event says so, or one says so
// and it has not; when an agent has two open requests for one source, or requests something for a
// pod that has ended; and when a private key is anywhere but in the volume.
type podCertificates struct{}

func (*podCertificates) describe() Entry {
	return Entry{"pod-certificates", "A pod has certificates that were issued for it, with their " +
		"keys, which are nowhere else. They are renewed when it is time, by one request for each " +
		"source, and not after the pod's end. An Event says that one has expired."}
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
	// expiryBound is how long after a certificate has expired an Event says so.
	expiryBound = time.Minute
	// endNoticedBound is how long an agent may take to request no more after it has reported an end.
	endNoticedBound = 10 * time.Second
)

// reasonExpired is the reason of the Event about a certificate that has expired.
const reasonExpired = "CertificateExpired"

// keyMark is in each private key.
const keyMark = "PRIVATE KEY"

func (o *podCertificates) checkFact(m *model, f *truth.Fact) *finding {
	switch f.Kind {
	case truth.ObjectCreated:
		if f.Write.Resource == api.ResourcePodCertificateRequests {
			return o.checkRequest(m, f)
		}
	case truth.ObjectUpdated:
		if pod := f.Write.After.Pod; m.certificates.hasKeys && pod != nil {
			if text, err := pod.Marshal(); err != nil {
				return findingf("encoding the object of pod %s: %v", f.Write.Name, err)
			} else if bytes.Contains(text, []byte(keyMark)) {
				return findingf("the object of pod %s has a private key", f.Write.Name)
			}
		}
	case truth.EventRecorded:
		if strings.Contains(f.Message, keyMark) {
			return findingf("an Event has a private key: %s", f.Message)
		}
		return m.findWrongExpiry(f)
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
		case m.latestDate(f.Write.SentAt).Before(other.renewAt):
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
		return m.certificates.decodeBundle(text)
	}
	keyText, _ := m.opts.ReadFile(at + "/" + s.KeyPath)
	chainText, _ := m.opts.ReadFile(at + "/" + s.CertificateChainPath)
	key, _ = m.certificates.decodeBundle(keyText)
	_, chain = m.certificates.decodeBundle(chainText)
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
			problem := m.findOutdated(p, source, have, now)
			if problem != nil && strings.HasPrefix(projection.KeyType, "RSA") &&
				m.faultPossible("MakeKey", now.Add(-certificateBound-slowKeyBound), now) {
				problem = nil
			}
			if problem != nil {
				return problem
			}
			return m.findUnreported(p, source, have, now)
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
		since, what = have.renewAt.Add(renewalJitter-m.dateOffset(now)), "the certificate is not renewed"
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
	if now.Sub(since) <= certificateBound || m.isDateNew(now) ||
		m.anyFaultPossible(now.Add(-certificateBound), now, certificateCalls...) {
		return nil
	}
	return findingf("pod %s, signer %s: %s since %s", p, source.signer, what,
		since.Format(time.TimeOnly))
}

// isDateNew reports whether the date was changed within certificateBound.
func (m *model) isDateNew(now time.Time) bool {
	if m.opts.DateOffset == nil {
		return false
	}
	for age := time.Duration(0); age <= certificateBound; age += time.Second {
		if m.dateOffset(now.Add(-age)) != m.dateOffset(now) {
			return true
		}
	}
	return false
}

// latestDate returns the latest date that the agent may go by at a time, or has gone by not long
// before that.
func (m *model) latestDate(at time.Time) time.Time {
	latest := at.Add(m.dateOffset(at))
	if m.opts.DateOffset == nil {
		return latest
	}
	for age := time.Duration(0); age <= dateWatchBound; age += time.Second {
		latest = later(latest, at.Add(m.dateOffset(at.Add(-age))))
	}
	return latest
}

// findWrongExpiry returns that an Event says that a certificate of a pod has expired, and none has.
func (m *model) findWrongExpiry(f *truth.Fact) *finding {
	p := m.pods[f.PodUID]
	if f.Reason != reasonExpired || p == nil || p.spec == nil {
		return nil
	}
	date, expired := m.latestDate(f.Time), false
	m.visitCertificates(p, func(_ string, source certificateSource,
		_ *v1.PodCertificateProjection) *finding {
		for _, r := range m.certificates.ofSource[source] {
			expired = expired || r.leaf != nil && date.After(r.notAfter)
		}
		return nil
	})
	if expired {
		return nil
	}
	return findingf("an Event says that a certificate of pod %s has expired, and none has", p)
}

// findUnreported returns that the certificate of a request, which is installed for a source and has
// not been replaced, has expired, and no Event has said so. An agent that was started since then
// does not know the certificate.
func (m *model) findUnreported(p *pod, source certificateSource, have *certificateRequest,
	now time.Time) *finding {
	if have == nil || have.notAfter.IsZero() {
		return nil
	}
	newest := m.certificates.newest(source)
	expired := have.notAfter.Add(-m.dateOffset(now))
	switch {
	case now.Sub(expired) <= expiryBound, newest != have && newest.answer != "",
		!m.certificates.expiredAt[p.uid].Before(expired), m.isDateNew(now),
		!m.agentUpSince(have.createdAt),
		m.anyFaultPossible(expired.Add(-reconnectBound), now, "CreateObject", "PatchObject"):
		return nil
	}
	return findingf("the certificate of pod %s, signer %s, has expired at %s, and no Event says so", p,
		source.signer, expired.Format(time.TimeOnly))
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
