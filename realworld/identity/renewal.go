package identity

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"slices"
	"time"
)

const (
	// The bounds of the pause after a certificate was signed. The pause doubles while the next
	// certificate is due as soon as one is there, which no request changes: the date of the machine
	// is wrong, or the signer leaves out names, or signs what the agent refuses. Each request costs
	// the API server an object and the agent its connections. The shortest pause lets certificates
	// of ten minutes be renewed in time.
	pauseMin = time.Minute
	pauseMax = time.Hour
)

// renewal is when the next certificate is requested: when it is due, but not during the pause after
// the last one was obtained or refused.
type renewal struct {
	due      time.Time     // by the date of the machine
	earliest time.Time     // the end of the pause, by the monotonic clock
	pause    time.Duration // the last one
}

// obtained begins the pause after a certificate was obtained or refused. dueAgain is whether the
// next one is due already, as after a refusal.
func (r *renewal) obtained(dueAgain bool) {
	r.pause = max(pauseMin, min(2*r.pause, pauseMax))
	if !dueAgain {
		r.pause = pauseMin
	}
	r.earliest = time.Now().Add(r.pause)
}

func (r *renewal) isDue() bool { return !time.Now().Before(r.due) }

func (r *renewal) isPaused() bool { return time.Until(r.earliest) > 0 }

// wait returns how long it is until the next request; at most 0 for at once.
func (r *renewal) wait() time.Duration { return max(time.Until(r.due), time.Until(r.earliest)) }

// satisfies reports whether a certificate is for the subject, the names and the addresses of a
// request. A signer may add others (certSatisfiesTemplateLocked of client-go).
func satisfies(c *x509.Certificate, template *x509.CertificateRequest) bool {
	for _, ip := range template.IPAddresses {
		if !slices.ContainsFunc(c.IPAddresses, ip.Equal) {
			return false
		}
	}
	return hasSubject(c, template.Subject) && containsAll(c.DNSNames, template.DNSNames)
}

func hasSubject(c *x509.Certificate, subject pkix.Name) bool {
	return c.Subject.CommonName == subject.CommonName &&
		containsAll(c.Subject.Organization, subject.Organization)
}

func containsAll(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}
