package node

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// certificateRun is the node's certificates, as observed one second after the other.
type certificateRun struct {
	t     *testing.T
	state Certificates
	now   time.Time
}

// observe observes certificates that expire some seconds after t0, and returns the Events.
func (r *certificateRun) observe(seconds int, client, serving int) []string {
	r.t.Helper()
	effects, table := &op.Effects{}, &op.Table{}
	effects.Reset(table, t0.Add(time.Duration(seconds)*time.Second))
	var inUse []world.Certificate
	for usage, end := range map[world.CertificateUsage]int{
		world.ClientCertificate: client, world.ServingCertificate: serving} {
		if end != 0 {
			inUse = append(inUse, world.Certificate{Usage: usage,
				NotAfter: t0.Add(time.Duration(end) * time.Second)})
		}
	}
	r.state.Observe(inUse, effects)
	r.state.Plan("n1", effects)
	var events []string
	for _, e := range effects.List() {
		if recorded, is := e.Body.(*world.RecordEvent); is {
			events = append(events, recorded.Type+" "+recorded.Reason+" "+recorded.Regarding.Kind+" "+
				recorded.Regarding.Name+": "+recorded.Message)
		}
	}
	return events
}

// Each certificate that expires in use has one Event. That of a client certificate is recorded once
// the API server can accept it.
func TestEventsOfExpiredCertificates(t *testing.T) {
	const prefix = "Warning CertificateExpired Node n1: The node's "
	r := &certificateRun{t: t}
	for _, c := range []struct {
		seconds, client, serving int
		want                     []string
	}{
		{0, 10, 20, nil},
		{10, 10, 20, nil}, // the last second in which it is valid
		{11, 10, 20, nil}, // nothing can be recorded without a client certificate
		{21, 10, 20, []string{prefix + "serving certificate expired at 2026-01-01T00:00:20Z"}},
		{22, 10, 20, nil},
		{23, 0, 20, nil}, // none in use
		{24, 60, 20, []string{prefix + "client certificate expired at 2026-01-01T00:00:10Z"}},
		{25, 60, 90, nil},
		{61, 60, 90, nil},
		{62, 120, 90, []string{prefix + "client certificate expired at 2026-01-01T00:01:00Z"}},
		{30, 120, 90, nil}, // the date was set back
		{62, 120, 90, nil},
		{91, 120, 90, []string{prefix + "serving certificate expired at 2026-01-01T00:01:30Z"}},
	} {
		if d := cmp.Diff(c.want, r.observe(c.seconds, c.client, c.serving)); d != "" {
			t.Errorf("after %d s: %s", c.seconds, d)
		}
	}
}
