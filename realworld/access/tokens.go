package access

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/authenticator"
)

const (
	// acceptedTokensMax bounds the cached tokens that the API server accepted.
	acceptedTokensMax = 4096
	// rejectedTokensMax bounds the cached tokens that the API server rejected. They have a cache of
	// their own, so that bad tokens never displace good ones.
	rejectedTokensMax = 4096
	// rejectedTTLMax bounds how long a rejected token is cached. A token may be rejected because
	// the API server cannot verify it for a moment.
	rejectedTTLMax = 10 * time.Second
)

// tokens is an authenticator.Token that caches the decisions of another one, and bounds the number
// of its calls in flight. The cache of k8s.io/apiserver is not used: it has no bound on its
// entries, it caches no rejection with a reason, which the API server gives for most bad tokens,
// and it hides from its authenticator which request a call is for.
type tokens struct {
	reviews     authenticator.Token
	gate        *gate
	acceptedTTL time.Duration
	rejectedTTL time.Duration
	accepted    *cache.LRUExpireCache // *authenticator.Response, by the token's key
	rejected    *cache.LRUExpireCache // *rejectedError, by the token's key
	secret      []byte                // of the keys, so that they reveal nothing about tokens
}

func newTokens(reviews authenticator.Token, g *gate, ttl time.Duration) *tokens {
	secret := make([]byte, sha256.Size)
	_, _ = rand.Read(secret) // never fails
	return &tokens{reviews: reviews, gate: g, acceptedTTL: ttl,
		rejectedTTL: min(ttl, rejectedTTLMax), secret: secret,
		accepted: cache.NewLRUExpireCache(acceptedTokensMax),
		rejected: cache.NewLRUExpireCache(rejectedTokensMax)}
}

// AuthenticateToken implements authenticator.Token.
func (t *tokens) AuthenticateToken(ctx context.Context, token string) (
	*authenticator.Response, bool, error) {
	key := t.key(token)
	if d, isCached := t.lookUp(key); isCached {
		return d.response, d.response != nil, d.err
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	address := addressOf(ctx)
	if err := t.gate.acquire(ctx, address); err != nil {
		return nil, false, err
	}
	defer t.gate.release(address)
	if d, isCached := t.lookUp(key); isCached { // another request with the token was first
		return d.response, d.response != nil, d.err
	}
	ctx, end := detach(ctx)
	defer end()
	response, ok, err := t.reviews.AuthenticateToken(ctx, token)
	if ok {
		t.accepted.Add(key, response, t.acceptedTTL)
	} else if rejection, isRejected := errors.AsType[*rejectedError](err); isRejected {
		t.rejected.Add(key, rejection, t.rejectedTTL)
	}
	return response, ok, err
}

// tokenDecision is what the API server said about a token: whose it is, or why it is rejected.
type tokenDecision struct {
	response *authenticator.Response
	err      error
}

// lookUp returns the cached decision about a token.
func (t *tokens) lookUp(key string) (tokenDecision, bool) {
	if response, ok := t.accepted.Get(key); ok {
		return tokenDecision{response: response.(*authenticator.Response)}, true
	}
	if rejection, ok := t.rejected.Get(key); ok {
		return tokenDecision{err: rejection.(*rejectedError)}, true
	}
	return tokenDecision{}, false
}

// key returns the key of a token in the caches.
func (t *tokens) key(token string) string {
	h := hmac.New(sha256.New, t.secret)
	h.Write([]byte(token)) // never fails
	return string(h.Sum(nil))
}

// rejectedError is the API server's decision that a token is invalid.
type rejectedError struct{ reason string }

func (r *rejectedError) Error() string {
	if r.reason == "" {
		return "the API server rejects the token"
	}
	return r.reason
}

var _ authenticator.Token = (*tokens)(nil)
