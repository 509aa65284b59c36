// Package podcertificate requests and renews the certificates in the volumes of one pod (KEP-4317):
// those of the sources podCertificate of projected volumes.
//
// Facts: the pod's service account; for each source the certificate that was issued last, with its
// private key; the request for the next one; whether the signer has denied a request or failed; and
// why the newest operation failed. Plan: reads the service account, has a key made, creates a
// PodCertificateRequest, and looks in the watch of the node's requests for its answer. Events: the
// completions of these operations.
//
// A request is named by its key. So a creation whose outcome is unknown is repeated, and finds what
// it has created, where a kubelet, which leaves the name to the server, creates another request.
//
// Private keys are only here and in the volumes. After a restart the agent has new ones made, as a
// kubelet does, and until their certificates are issued the volumes stay as they are. Start reading
// at Set.Plan; answers are in answer.go, the account in account.go.
package podcertificate

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/objectcache"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// AllRequests is the watch that a pod with certificates needs: all requests that name the node.
var AllRequests = world.WatchTarget{Resource: world.ResourcePodCertificateRequests}

// The kubelet's values (pkg/kubelet/podcertificate).
const (
	jitterMax  = 5 * time.Minute  // of a renewal, and of the time until a request is given up
	lostAfter  = 10 * time.Minute // a request that is not in the watch is taken for deleted
	overdueFor = 10 * time.Minute // after the time of a renewal, an Event says that it is overdue
)

const (
	operationTimeout = time.Minute
	slowKeyTimeout   = 10 * time.Minute // of a key that waits for those of many other pods
	backoffFirst     = time.Second
	backoffMax       = time.Minute // the limit of the doubling
	// renewalPause is the least time between two certificates of one source: a signer, or a date that
	// is wrong, may have each of them due at once. A kubelet looks at them once in one to two minutes.
	renewalPause = time.Minute
)

// nameBytes is how many bytes of the hash of a key the name of its request has: two keys never have
// the same.
const nameBytes = 10

var (
	keyCall    = world.CallName(&world.MakeKey{})
	createCall = world.CallName(&world.CreateObject{})
)

// Set is the certificates of a pod.
type Set struct {
	Account      Account       `json:"account,omitzero"`
	Certificates []Certificate `json:"certificates,omitempty"` // in the order of the volumes
	// Obstacle is why nothing can be requested for the pod, as of the newest plan.
	Obstacle string `json:"obstacle,omitempty"`
}

// Certificate is the certificate of one source.
type Certificate struct {
	Volume string `json:"volume"`
	Source int    `json:"source"` // its index in the volume

	Issued  *Issued  `json:"issued,omitempty"`  // nil: none so far, or Refusal is set
	Request *Request `json:"request,omitempty"` // for the next one; nil: none is due
	// Refusal is set once a request was denied or has failed. This agent makes no further request, as
	// a kubelet: the pod has to be replaced.
	Refusal *Refusal `json:"refusal,omitempty"`

	Op        world.OpID `json:"op,omitempty"`       // in flight for the request
	Failures  int        `json:"failures,omitempty"` // consecutive
	NotBefore time.Time  `json:"notBefore"`
	Problem   string     `json:"problem,omitempty"` // why the newest operation failed
}

// Issued is a certificate that was issued, with its private key. RenewAt and NotAfter are dates.
type Issued struct {
	Request    string    `json:"request"`    // the name of its request
	PrivateKey string    `json:"privateKey"` // PEM; secret: its JSON name is one that is redacted
	Chain      string    `json:"chain"`      // PEM, the leaf first
	RenewAt    time.Time `json:"renewAt"`
	NotAfter   time.Time `json:"notAfter"`
	// An Event has said that the renewal is overdue, or that the certificate has expired.
	IsOverdueRecorded bool `json:"isOverdueRecorded,omitempty"`
	IsExpiredRecorded bool `json:"isExpiredRecorded,omitempty"`
}

// Request is the request for a certificate. Its fields become known in this order.
type Request struct {
	PrivateKey string `json:"privateKey,omitempty"` // PEM; secret
	Proof      []byte `json:"proof,omitempty"`      // world.KeyMade.Request
	Name       string `json:"name,omitempty"`       // of the object
	// Sent are the identities with which creations were sent, the newest last: a repeated one may have
	// others than the one that has succeeded.
	Sent []Identity `json:"sent,omitempty"`
	// UID is that of the object, once an answer or the watch has shown it.
	UID types.UID `json:"uid,omitempty"`
	// CreatedAt is when the agent has learned that the object was created; zero: it has not.
	CreatedAt time.Time `json:"createdAt"`
}

// Identity is the part of a request that follows from neither the pod nor the key.
type Identity struct {
	AccountUID types.UID `json:"accountUID"`
	NodeUID    types.UID `json:"nodeUID"`
}

// sentMax is how many identities of a request are remembered: an object that has an older one
// counts as another one.
const sentMax = 4

func (r *Request) isCreated() bool { return !r.CreatedAt.IsZero() }

// Refusal is the final answer to a request: the type of its condition, Denied or Failed.
type Refusal struct {
	Type    string `json:"type"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// Env is what the certificates of a pod depend on.
type Env struct {
	Pod      *v1.Pod
	NodeName string
	NodeUID  types.UID          // empty: the Node is not known
	Requests *objectcache.Watch // the state of AllRequests; nil if it is not watched
	Owner    op.Owner
	Subject  string // of the operations
	// Jitter returns a time below a limit, by a name of what it is for.
	Jitter func(name string, limit time.Duration) time.Duration
	// RecordWarning records an Event about the pod.
	RecordWarning func(reason, message string)
	Effects       *op.Effects
}

// IsNeeded reports whether a pod needs certificates, so that it is to be planned. The sources after
// the first budget.PodCertificatesMax get none.
func IsNeeded(pod *v1.Pod) bool {
	isNeeded := false
	forEachSource(pod, func(string, int, *v1.PodCertificateProjection) { isNeeded = true })
	return isNeeded
}

func forEachSource(pod *v1.Pod, do func(volume string, source int,
	projection *v1.PodCertificateProjection)) {
	for i := range pod.Spec.Volumes {
		projected := pod.Spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for k := range projected.Sources {
			if projection := projected.Sources[k].PodCertificate; projection != nil {
				do(pod.Spec.Volumes[i].Name, k, projection)
			}
		}
	}
}

// Plan applies the answers to requests, issues what the certificates that are missing or due need
// next, for a few at a time, and returns when to plan again. The others follow: each completion
// causes a plan. The one that has waited longest is first, so those whose operations hang leave the
// others their turns.
func (s *Set) Plan(env *Env) time.Time {
	s.Obstacle = obstacle(env)
	forEachSource(env.Pod, func(volume string, source int, _ *v1.PodCertificateProjection) {
		s.add(volume, source)
	})
	var wake time.Time
	var due []dueSource
	forEachSource(env.Pod, func(volume string, source int, projection *v1.PodCertificateProjection) {
		c := s.find(volume, source)
		if c == nil {
			return
		}
		c.applyAnswer(projection, env)
		wake = timer.Soonest(wake, c.recordAge(env))
		isDue, at := c.isDue(env)
		wake = timer.Soonest(wake, at)
		if isDue {
			due = append(due, dueSource{c, projection})
		}
	})
	slices.SortStableFunc(due, func(x, y dueSource) int { return x.NotBefore.Compare(y.NotBefore) })
	return timer.Soonest(wake, s.issue(due, env))
}

// dueSource is a certificate for which an operation is due.
type dueSource struct {
	*Certificate
	projection *v1.PodCertificateProjection
}

// issue issues the next operations of certificates, in their order, and returns when to look again
// for those that wait for the next read of the account.
func (s *Set) issue(due []dueSource, env *Env) time.Time {
	room := budget.CertificateCallsMax - s.inFlight()
	if len(due) > 0 && !s.Account.isKnown(env.Effects.Now()) {
		if room <= 0 {
			return time.Time{}
		}
		return s.Account.plan(env)
	}
	for _, c := range due[:min(len(due), max(0, room))] {
		body := c.nextOperation(s.Account.UID, c.projection, env)
		c.Op = env.Effects.Issue(env.Owner, env.Subject, timeoutOf(body), body)
	}
	return time.Time{}
}

// inFlight returns the number of operations in flight.
func (s *Set) inFlight() int {
	n := 0
	if s.Account.Op != 0 {
		n++
	}
	for i := range s.Certificates {
		if s.Certificates[i].Op != 0 {
			n++
		}
	}
	return n
}

// add adds a certificate for a source, unless there is one or there are too many.
func (s *Set) add(volume string, source int) {
	if s.find(volume, source) == nil && len(s.Certificates) < budget.PodCertificatesMax {
		s.Certificates = append(s.Certificates, Certificate{Volume: volume, Source: source})
	}
}

// find returns the certificate of a source; nil if there is none. There are
// budget.PodCertificatesMax at most.
func (s *Set) find(volume string, source int) *Certificate {
	for i := range s.Certificates {
		if c := &s.Certificates[i]; c.Volume == volume && c.Source == source {
			return c
		}
	}
	return nil
}

// isDue reports whether an operation is due, and when to look again if none is; the zero time if an
// event will tell. The first request waits until the node's requests are listed, as in a kubelet: a
// server that does not serve them, or forbids them, gets none.
func (c *Certificate) isDue(env *Env) (bool, time.Time) {
	now := env.Effects.Now()
	switch {
	case c.Op != 0, c.Refusal != nil:
		return false, time.Time{}
	case now.Before(c.NotBefore):
		return false, c.NotBefore
	case c.Issued != nil && env.Effects.Date().Before(c.Issued.RenewAt):
		return false, agentTime(c.Issued.RenewAt, env)
	case c.Request != nil && c.Request.isCreated():
		if at := c.lostAt(env); now.Before(at) {
			return false, at
		}
		return false, time.Time{}
	case env.Requests == nil || !env.Requests.Listed || env.NodeUID == "":
		return false, time.Time{}
	}
	return true, time.Time{}
}

// obstacle returns why nothing can be requested; empty if nothing is known to be in the way.
func obstacle(env *Env) string {
	switch w := env.Requests; {
	case w == nil:
		return ""
	case !w.Listed && w.Failing != nil:
		return budget.CutMessage("podcertificaterequests cannot be watched: " + w.Failing.Message)
	case w.Listed && env.NodeUID == "":
		return "the Node is not known"
	}
	return ""
}

// agentTime returns a date by the agent's clock, as long as the date is not changed.
func agentTime(date time.Time, env *Env) time.Time {
	return env.Effects.Now().Add(date.Sub(env.Effects.Date()))
}

// nextOperation returns the next operation of the request, of which nothing is in flight, for the
// UID of the account. The watch keeps the object from its first creation on.
func (c *Certificate) nextOperation(account types.UID, projection *v1.PodCertificateProjection,
	env *Env) any {
	if c.Request == nil {
		c.Request = &Request{}
	}
	r := c.Request
	if r.PrivateKey == "" {
		return &world.MakeKey{Type: projection.KeyType}
	}
	env.Requests.Await(r.fullName(env), env.Owner.Name)
	r.noteSent(Identity{AccountUID: account, NodeUID: env.NodeUID})
	return &world.CreateObject{Object: world.Object{CertificateRequest: r.object(account, projection,
		env)}}
}

func (r *Request) fullName(env *Env) string { return env.Pod.Namespace + "/" + r.Name }

// noteSent records the identity of a creation.
func (r *Request) noteSent(identity Identity) {
	r.Sent = slices.DeleteFunc(r.Sent, func(i Identity) bool { return i == identity })
	r.Sent = append(r.Sent, identity)
	r.Sent = slices.Delete(r.Sent, 0, max(0, len(r.Sent)-sentMax))
}

// endRequest forgets the request and what the watch keeps of it.
func (c *Certificate) endRequest(env *Env) {
	env.Requests.Release(c.Request.fullName(env))
	c.Request = nil
}

// timeoutOf returns how long an operation may take.
func timeoutOf(body any) time.Duration {
	if m, isKey := body.(*world.MakeKey); isKey && m.IsSlow() {
		return slowKeyTimeout
	}
	return operationTimeout
}

// object returns the request as an object of the API server. It must not refer to the state.
func (r *Request) object(account types.UID, projection *v1.PodCertificateProjection,
	env *Env) *certificatesv1beta1.PodCertificateRequest {
	pod := env.Pod
	var seconds *int32
	if most := projection.MaxExpirationSeconds; most != nil {
		seconds = new(int32)
		*seconds = *most
	}
	return &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: r.Name,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name,
				UID: pod.UID}}},
		Spec: certificatesv1beta1.PodCertificateRequestSpec{
			SignerName: projection.SignerName, PodName: pod.Name, PodUID: pod.UID,
			ServiceAccountName: pod.Spec.ServiceAccountName, ServiceAccountUID: account,
			NodeName: types.NodeName(env.NodeName), NodeUID: env.NodeUID,
			MaxExpirationSeconds: seconds, StubPKCS10Request: slices.Clone(r.Proof),
			UnverifiedUserAnnotations: maps.Clone(projection.UserAnnotations),
		},
	}
}

// HandleCompletion applies the completion of an operation.
func (s *Set) HandleCompletion(id world.OpID, r op.Record, ev world.Event) {
	if s.Account.Op == id {
		s.Account.recordResult(r, ev)
		return
	}
	for i := range s.Certificates {
		if c := &s.Certificates[i]; c.Op == id {
			c.Op = 0
			c.recordResult(r, ev)
			if r.Call == createCall && ev.Err != nil && !ev.Err.Has(world.KindExists) {
				s.Account.forget(r.IssuedAt) // it may be another one, which the server refuses
			}
			return
		}
	}
}

// recordResult applies the completion of an operation of the request.
func (c *Certificate) recordResult(record op.Record, ev world.Event) {
	r := c.Request
	switch {
	case r == nil || r.isCreated(): // its object was seen in the watch meanwhile
		return
	case record.Call == createCall && (ev.Err == nil || ev.Err.Has(world.KindExists)):
		if read, ok := ev.Body.(*world.ObjectRead); ok && read.Object.CertificateRequest != nil {
			r.UID = read.Object.CertificateRequest.UID
		}
		c.noteCreated(ev.Time) // by this creation, or by an earlier one
	case ev.Err != nil:
		c.fail(record.Call+": "+ev.Err.Message, ev.Time,
			timer.RetryDelay(ev.Err, c.Failures+1, backoffFirst, backoffMax))
	case !r.recordKey(record.Call, ev.Body):
		c.fail(record.Call+": "+incomplete, ev.Time,
			timer.Backoff(c.Failures+1, backoffFirst, backoffMax))
	}
}

// incomplete is the problem of an answer that is no failure.
const incomplete = "the answer lacks what was asked for"

// recordKey applies the answer to the making of the key, and reports false if it has none.
func (r *Request) recordKey(call string, answer any) bool {
	body, ok := answer.(*world.KeyMade)
	if !ok || call != keyCall || body.PrivateKey == "" || len(body.Request) == 0 {
		return false
	}
	sum := sha256.Sum256(body.Request)
	r.PrivateKey, r.Proof = body.PrivateKey, body.Request
	r.Name = "req-" + hex.EncodeToString(sum[:nameBytes])
	return true
}

// noteCreated records that the object of the request exists, or did.
func (c *Certificate) noteCreated(now time.Time) {
	if !c.Request.isCreated() {
		c.Request.CreatedAt = now
	}
	c.Failures, c.NotBefore, c.Problem = 0, time.Time{}, ""
}

// fail records why an operation failed, and that the next one waits.
func (c *Certificate) fail(problem string, now time.Time, wait time.Duration) {
	c.Failures++
	c.Problem = budget.CutMessage(problem)
	c.NotBefore = now.Add(wait)
}

// Find returns the private key and the chain of a source, and a version of both. Without a version
// the error is why there are none, in the kubelet's words; without an error, too, the first request
// is being made.
func (s *Set) Find(volume string, source int) (key, chain, version string, err error) {
	c := s.find(volume, source)
	switch {
	case c == nil && len(s.Certificates) == budget.PodCertificatesMax:
		return "", "", "", fmt.Errorf("the pod needs more than %d certificates",
			budget.PodCertificatesMax)
	case c == nil:
		return "", "", "", nil
	case c.Refusal != nil:
		return "", "", "", fmt.Errorf("PodCertificateRequest was permanently %s: reason=%q message=%q",
			c.Refusal.participle(), c.Refusal.Reason, c.Refusal.Message)
	case c.Issued != nil:
		return c.Issued.PrivateKey, c.Issued.Chain, c.Issued.Request, nil
	case c.Request != nil && c.Request.isCreated():
		return "", "", "", fmt.Errorf("credential bundle is not issued yet")
	}
	if problem := cmp.Or(s.Obstacle, s.Account.Problem, c.Problem); problem != "" {
		return "", "", "", fmt.Errorf("credential bundle is not issued yet: %s", problem)
	}
	return "", "", "", nil
}
