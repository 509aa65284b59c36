// Package token requests and renews the service account tokens in the volumes of one pod.
//
// Facts: each token, when it was requested and when to renew it, the request in flight, and why the
// newest request failed. Plan: requests the tokens that are missing or due for renewal. Events: the
// completions of these requests. A token that cannot be renewed stays. Tokens are stored only here
// and in the volumes: after a restart the agent requests new ones, and until it has them the
// volumes stay as they are. A pod may have budget.TokensMax tokens, of which a few are requested at
// a time, so that one pod delays no other. Start reading at Set.Plan.
package token

import (
	"cmp"
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The kubelet's values.
const (
	secondsDefault = 3600
	ageMax         = 24 * time.Hour // of a token that is valid for longer
	jitterMax      = 10 * time.Second
	requestTimeout = time.Minute
	backoffFirst   = time.Second
	backoffMax     = 30 * time.Second // the limit of the doubling
)

// Set is the tokens of a pod.
type Set struct {
	Tokens []Token `json:"tokens,omitempty"` // in the order of the volumes
}

// identity is what one token has in common with all projections that it serves.
type identity struct {
	audience string
	seconds  int64
}

func identityOf(projection *v1.ServiceAccountTokenProjection) identity {
	return identity{projection.Audience, seconds(projection)}
}

// Token is one token, for one audience.
type Token struct {
	Audience string     `json:"audience,omitempty"` // empty: the API server
	Seconds  int64      `json:"seconds"`            // the requested validity
	Op       world.OpID `json:"op,omitempty"`       // the request in flight

	// Value is empty before the first token. It is secret: its JSON name is one that is redacted.
	Value   string    `json:"token,omitempty"`
	Issued  time.Time `json:"issued"` // when its request was issued
	RenewAt time.Time `json:"renewAt"`
	// Granted is for how many seconds the server has made it valid; zero: for all of Seconds.
	Granted int64 `json:"granted,omitempty"`

	Failures  int       `json:"failures,omitempty"` // consecutive
	NotBefore time.Time `json:"notBefore"`
	Problem   string    `json:"problem,omitempty"` // why the newest request failed
}

// Count returns how many tokens a pod needs. A pod that needs more than budget.TokensMax is not to
// be planned.
func Count(pod *v1.Pod) int {
	distinct := map[identity]bool{}
	forEachProjection(pod, func(projection *v1.ServiceAccountTokenProjection) {
		distinct[identityOf(projection)] = true
	})
	return len(distinct)
}

func forEachProjection(pod *v1.Pod, do func(*v1.ServiceAccountTokenProjection)) {
	for i := range pod.Spec.Volumes {
		projected := pod.Spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for k := range projected.Sources {
			if projection := projected.Sources[k].ServiceAccountToken; projection != nil {
				do(projection)
			}
		}
	}
}

// Plan requests the tokens that are missing or due, a few at a time, and returns when to plan
// again. Jitter, by a name of the token, spreads renewals that would be due at the same time.
func (s *Set) Plan(pod *v1.Pod, owner op.Owner, subject string,
	jitter func(name string, limit time.Duration) time.Duration, effects *op.Effects) time.Time {
	s.addMissing(pod)
	inFlight := 0
	for i := range s.Tokens {
		if s.Tokens[i].Op != 0 {
			inFlight++
		}
	}
	var wake time.Time
	for i := range s.Tokens {
		t := &s.Tokens[i]
		name := pod.Namespace + "/" + pod.Name + "/" + t.Audience
		due := timer.Later(t.renewalDue(jitter(name, jitterMax)), t.NotBefore)
		switch {
		case t.Op != 0:
		case effects.Now().Before(due):
			wake = timer.Soonest(wake, due)
		case inFlight < budget.TokenRequestsMax: // the others follow: each completion causes a plan
			t.Op = effects.IssueFor(string(pod.UID), owner, subject, requestTimeout, t.newRequest(pod))
			inFlight++
		}
	}
	return wake
}

func seconds(s *v1.ServiceAccountTokenProjection) int64 {
	if s.ExpirationSeconds == nil {
		return secondsDefault
	}
	return *s.ExpirationSeconds
}

// addMissing adds the tokens of a pod that do not exist yet, up to budget.TokensMax.
func (s *Set) addMissing(pod *v1.Pod) {
	exists := map[identity]bool{}
	for i := range s.Tokens {
		exists[identity{s.Tokens[i].Audience, s.Tokens[i].Seconds}] = true
	}
	forEachProjection(pod, func(projection *v1.ServiceAccountTokenProjection) {
		id := identityOf(projection)
		if !exists[id] && len(s.Tokens) < budget.TokensMax {
			exists[id] = true
			s.Tokens = append(s.Tokens, Token{Audience: id.audience, Seconds: id.seconds})
		}
	})
}

// find returns the token for a projection; nil if there is none. There are budget.TokensMax at
// most.
func (s *Set) find(projection *v1.ServiceAccountTokenProjection) *Token {
	for i := range s.Tokens {
		t := &s.Tokens[i]
		if (identity{t.Audience, t.Seconds}) == identityOf(projection) {
			return t
		}
	}
	return nil
}

// newRequest returns a request for a token that is bound to the pod.
func (t *Token) newRequest(pod *v1.Pod) *world.CreateToken {
	expirationSeconds := t.Seconds // the effect must not refer to the state
	spec := authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &expirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{
			APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID,
		},
	}
	if t.Audience != "" {
		spec.Audiences = []string{t.Audience}
	}
	return &world.CreateToken{Namespace: pod.Namespace,
		ServiceAccount: pod.Spec.ServiceAccountName, Spec: spec}
}

// renewalDue returns when to request the next token: at once without a token.
func (t *Token) renewalDue(jitter time.Duration) time.Time {
	if t.Value == "" {
		return time.Time{}
	}
	return t.RenewAt.Add(-jitter)
}

// renewalTime returns when a fifth of the token's lifetime is left, or when the token is a day old.
// The server may have granted less than was requested; zero is all of it. Upstream: requiresRefresh
// in pkg/kubelet/token/token_manager.go, which also counts by the clock of the server.
func (t *Token) renewalTime(granted int64) time.Time {
	lifetime := time.Duration(t.Seconds) * time.Second
	if granted > 0 && granted < t.Seconds {
		lifetime = time.Duration(granted) * time.Second
	}
	return t.Issued.Add(min(lifetime/5*4, ageMax))
}

// HandleCompletion applies the completion of a request.
func (s *Set) HandleCompletion(id world.OpID, r op.Record, ev world.Event) {
	for i := range s.Tokens {
		if s.Tokens[i].Op == id {
			s.Tokens[i].recordResult(r, ev)
			return
		}
	}
}

func (t *Token) recordResult(r op.Record, ev world.Event) {
	t.Op = 0
	created, ok := ev.Body.(*world.TokenCreated)
	if ev.Err == nil && (!ok || created.Token == "") {
		ev.Err = world.Errorf(world.KindInternal, r.Call, "the server gave no token")
	}
	if ev.Err != nil {
		t.Failures++
		t.Problem = budget.CutMessage(ev.Err.Message)
		t.NotBefore = ev.Time.Add(timer.RetryDelay(ev.Err, t.Failures, backoffFirst, backoffMax))
		return
	}
	t.Value, t.Issued, t.Granted = created.Token, r.IssuedAt, created.ExpirationSeconds
	t.RenewAt = t.renewalTime(created.ExpirationSeconds)
	t.Failures, t.NotBefore, t.Problem = 0, time.Time{}, ""
}

// Current returns the token for a projection, and until when it is valid. Without a token the
// problem is why there is none; without a problem a request for it is in flight, or to come. A
// token that is due is renewed before it is used, and used again if that fails, until it has
// expired (GetServiceAccountToken in pkg/kubelet/token).
func (s *Set) Current(projection *v1.ServiceAccountTokenProjection,
	now time.Time) (value string, expiresAt time.Time, problem string) {
	t := s.find(projection)
	if t == nil {
		_, _, problem = s.Find(projection)
		return "", time.Time{}, problem
	}
	expiresAt = t.Issued.Add(time.Duration(cmp.Or(t.Granted, t.Seconds)) * time.Second)
	switch {
	case t.Op != 0:
		return "", time.Time{}, ""
	case t.Value == "":
		return "", time.Time{}, t.Problem
	case now.Before(expiresAt):
		return t.Value, expiresAt, ""
	case t.Problem == "":
		return "", time.Time{}, ""
	}
	return "", time.Time{}, "the token has expired and refresh failed: " + t.Problem
}

// Find returns the token for a projection, and its version. Without a token the problem is why the
// newest request failed.
func (s *Set) Find(projection *v1.ServiceAccountTokenProjection) (value, version, problem string) {
	switch t := s.find(projection); {
	case t == nil && len(s.Tokens) == budget.TokensMax:
		return "", "", "the pod needs more than " + strconv.Itoa(budget.TokensMax) + " tokens"
	case t == nil:
		return "", "", ""
	case t.Value == "":
		return "", "", t.Problem
	default:
		return t.Value, strconv.FormatInt(t.Issued.UnixNano(), 10), ""
	}
}
