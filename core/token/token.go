// Package token keeps the tokens of service accounts that the volumes of one pod hold.
//
// It keeps: each token, when it was asked for and when it is to be renewed, the request in flight,
// and why the newest one failed. It plans: which tokens to ask for (Set.Plan). It takes: the
// answers. A token that cannot be renewed stays. Tokens are kept nowhere but here and in the
// volumes: an agent that has just started asks for new ones, and until it has them the volumes are
// left alone. Start reading at Set.Plan.
package token

import (
	"strconv"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The kubelet's numbers.
const (
	secondsDefault = 3600
	ageMax         = 24 * time.Hour // of a token that is valid for longer
	jitterMax      = 10 * time.Second
	timeout        = time.Minute
	failureFirst   = time.Second
	failureMax     = 30 * time.Second // the bound to which it doubles
)

// Set is the tokens of a pod.
type Set struct {
	Tokens []Token `json:"tokens,omitempty"` // in the order in which the volumes name them
}

// Token is one token, for one audience.
type Token struct {
	Audience string     `json:"audience,omitempty"` // empty: the API server's
	Seconds  int64      `json:"seconds"`            // for which it is to be valid
	Op       world.OpID `json:"op,omitempty"`       // a request in flight

	Token   string    `json:"token,omitempty"` // empty before the first; secret
	Asked   time.Time `json:"asked"`           // when it was asked for
	Expires time.Time `json:"expires"`         // by the server's clock
	RenewAt time.Time `json:"renewAt"`

	Failures  int       `json:"failures,omitempty"` // in a row
	NotBefore time.Time `json:"notBefore"`
	Problem   string    `json:"problem,omitempty"` // why the newest request failed
}

// Plan asks for the tokens that are missing or due, and says when to be called again. Jitter
// spreads what would be renewed at one instant, by a name for the token.
func (s *Set) Plan(pod *v1.Pod, owner op.Owner, subject string,
	jitter func(name string, most time.Duration) time.Duration, out *op.Out) time.Time {
	var wake time.Time
	for i := range pod.Spec.Volumes {
		projected := pod.Spec.Volumes[i].Projected
		if projected == nil {
			continue
		}
		for k := range projected.Sources {
			wanted := projected.Sources[k].ServiceAccountToken
			if wanted == nil {
				continue
			}
			t := s.token(wanted)
			name := pod.Namespace + "/" + pod.Name + "/" + t.Audience
			due := timer.Later(t.due(jitter(name, jitterMax)), t.NotBefore)
			switch {
			case t.Op != 0:
			case out.Now().Before(due):
				wake = timer.Soonest(wake, due)
			default:
				t.Op = out.Ask(owner, subject, timeout, t.request(pod))
			}
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

// token is the one that a volume wants.
func (s *Set) token(wanted *v1.ServiceAccountTokenProjection) *Token {
	for i := range s.Tokens {
		t := &s.Tokens[i]
		if t.Audience == wanted.Audience && t.Seconds == seconds(wanted) {
			return t
		}
	}
	s.Tokens = append(s.Tokens, Token{Audience: wanted.Audience, Seconds: seconds(wanted)})
	return &s.Tokens[len(s.Tokens)-1]
}

// request asks for a token that is valid only as long as the pod exists.
func (t *Token) request(pod *v1.Pod) *world.CreateToken {
	life := t.Seconds // the effect keeps no part of the state
	spec := authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &life,
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

// due is when to ask for the next one: at once, if there is none.
func (t *Token) due(jitter time.Duration) time.Time {
	if t.Token == "" {
		return time.Time{}
	}
	return t.RenewAt.Add(-jitter)
}

// renewAt is when a fifth of its life is left, or when it is a day old. Life is counted by the
// agent's own clock; the server's says only if it is to be shorter than was asked for.
func (t *Token) renewAt() time.Time {
	life := time.Duration(t.Seconds) * time.Second
	if granted := t.Expires.Sub(t.Asked); granted > 0 && granted < life {
		life = granted
	}
	return t.Asked.Add(min(life/5*4, ageMax))
}

// Answered takes the answer to a request.
func (s *Set) Answered(id world.OpID, r op.Record, ev world.Event) {
	for i := range s.Tokens {
		if s.Tokens[i].Op == id {
			s.Tokens[i].answered(r, ev)
			return
		}
	}
}

func (t *Token) answered(r op.Record, ev world.Event) {
	t.Op = 0
	made, ok := ev.Body.(*world.TokenCreated)
	if ev.Err == nil && (!ok || made.Token == "") {
		ev.Err = world.Errorf(world.KindInternal, r.Call, "the server gave no token")
	}
	if ev.Err != nil {
		t.Failures++
		t.Problem = ev.Err.Message
		t.NotBefore = ev.Time.Add(timer.Retry(ev.Err, t.Failures, failureFirst, failureMax))
		return
	}
	t.Token, t.Asked, t.Expires = made.Token, r.Began, made.Expires
	t.RenewAt = t.renewAt()
	t.Failures, t.NotBefore, t.Problem = 0, time.Time{}, ""
}

// Find is the token that a volume wants, and its version. Without a token there is a problem if it
// could not be had so far.
func (s *Set) Find(wanted *v1.ServiceAccountTokenProjection) (value, version, problem string) {
	for i := range s.Tokens {
		t := &s.Tokens[i]
		if t.Audience != wanted.Audience || t.Seconds != seconds(wanted) {
			continue
		}
		if t.Token == "" {
			return "", "", t.Problem
		}
		return t.Token, strconv.FormatInt(t.Asked.UnixNano(), 10), ""
	}
	return "", "", ""
}
