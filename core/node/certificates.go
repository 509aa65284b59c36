package node

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// CertificatesOwner is the key of the Events about the node's certificates.
var CertificatesOwner = timer.Key{Component: "certificates"}

// Certificates is what is known of the node's own certificates. A kubelet has no Event for them,
// only for those of pods (pkg/kubelet/podcertificate), whose reason this one has.
type Certificates struct {
	// InUse are the certificates of the newest observation.
	InUse []world.Certificate `json:"inUse,omitempty"`
	// Expired are certificates that were in use when they had expired: the newest of each usage.
	Expired []ExpiredCertificate `json:"expired,omitempty"`
}

// ExpiredCertificate is a certificate that has expired while it was in use.
type ExpiredCertificate struct {
	world.Certificate
	IsRecorded bool `json:"isRecorded,omitempty"` // in an Event
}

// Observe records which certificates are in use, and logs those that have expired since the last
// observation. A date that is set back makes a certificate valid again; its Event is not repeated.
func (c *Certificates) Observe(inUse []world.Certificate, effects *op.Effects) {
	c.InUse = inUse
	for _, used := range inUse {
		if !effects.Date().After(used.NotAfter) {
			continue
		}
		at := slices.IndexFunc(c.Expired, func(e ExpiredCertificate) bool {
			return e.Usage == used.Usage
		})
		switch {
		case at < 0:
			c.Expired = append(c.Expired, ExpiredCertificate{Certificate: used})
		case c.Expired[at].NotAfter.Equal(used.NotAfter):
			continue
		default:
			c.Expired[at] = ExpiredCertificate{Certificate: used}
		}
		effects.Log(world.LevelWarning, "A certificate of the node has expired", "usage", used.Usage,
			"notAfter", used.NotAfter.UTC().Format(time.RFC3339))
	}
}

// Plan records an Event for each certificate that has expired. That of a client certificate waits
// for its successor: the API server accepts no Event before, and the port gives up after minutes.
func (c *Certificates) Plan(name string, effects *op.Effects) {
	for i := range c.Expired {
		e := &c.Expired[i]
		if e.IsRecorded || e.Usage == world.ClientCertificate && !c.hasValid(e.Usage, effects) {
			continue
		}
		e.IsRecorded = true
		effects.RecordEvent(Reference(name), v1.EventTypeWarning, "CertificateExpired",
			"The node's %s certificate expired at %s", e.Usage,
			e.NotAfter.UTC().Format(time.RFC3339))
	}
}

// hasValid reports whether a certificate of a usage that is valid now is in use.
func (c *Certificates) hasValid(usage world.CertificateUsage, effects *op.Effects) bool {
	return slices.ContainsFunc(c.InUse, func(used world.Certificate) bool {
		return used.Usage == usage && !effects.Date().After(used.NotAfter)
	})
}
