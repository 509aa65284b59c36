package access

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

const (
	// decisionsMax bounds the number of cached decisions.
	decisionsMax = 1024
	// decisionKeyBytesMax bounds the key of a cached decision. A user with longer attributes gets a
	// new review for each request.
	decisionKeyBytesMax = 8 << 10
)

// authorizer reports whether a user has a right on the Node.
type authorizer interface {
	allows(ctx context.Context, caller user.Info, attrs attributes) (bool, error)
}

func (a *Access) newAuthorizer(opts *Options) authorizer {
	config := opts.Authorization
	switch {
	case config.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
		return alwaysAllow{}
	case opts.Reviewer == nil:
		opts.Warn("authorization.mode: Webhook needs an API server (--kubeconfig); until then " +
			"all requests to the HTTP API are refused")
		return alwaysDeny{}
	}
	return &accessReview{
		client:     opts.Reviewer.AuthorizationV1(),
		gate:       a.accessReviews,
		allowedTTL: config.Webhook.CacheAuthorizedTTL.Duration,
		deniedTTL:  config.Webhook.CacheUnauthorizedTTL.Duration,
		decisions:  cache.NewLRUExpireCache(decisionsMax),
	}
}

// alwaysAllow is an authorizer that allows every request.
type alwaysAllow struct{}

func (alwaysAllow) allows(context.Context, user.Info, attributes) (bool, error) { return true, nil }

// alwaysDeny is an authorizer that allows no request.
type alwaysDeny struct{}

func (alwaysDeny) allows(context.Context, user.Info, attributes) (bool, error) { return false, nil }

// accessReview is an authorizer that sends SubjectAccessReviews to the API server and caches the
// decisions. The number of reviews in flight is bounded; a cached decision needs no review. The one
// of k8s.io/apiserver is not used because it depends on a CEL interpreter.
type accessReview struct {
	client                authorizationclient.AuthorizationV1Interface
	gate                  *gate
	allowedTTL, deniedTTL time.Duration
	decisions             *cache.LRUExpireCache // bool, by the review's spec in JSON
}

func (a *accessReview) allows(ctx context.Context, caller user.Info, attrs attributes) (
	bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: caller.GetName(), UID: caller.GetUID(), Groups: caller.GetGroups(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: attrs.verb, Version: "v1", Resource: "nodes", Name: attrs.node,
			Subresource: attrs.subresource,
		},
	}
	for key, values := range caller.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
	key, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("asking what they may do: %w", err)
	}
	if decision, ok := a.decisions.Get(string(key)); ok {
		return decision.(bool), nil
	}
	address := addressOf(ctx)
	if err := a.gate.acquire(ctx, address); err != nil {
		return false, err
	}
	defer a.gate.release(address)
	if decision, ok := a.decisions.Get(string(key)); ok { // another request was first
		return decision.(bool), nil
	}
	ctx, end := detach(ctx)
	defer end()
	allowed, err := a.review(ctx, spec)
	if err != nil {
		return false, fmt.Errorf("asking what they may do: %w", err)
	}
	if len(key) <= decisionKeyBytesMax {
		ttl := a.deniedTTL
		if allowed {
			ttl = a.allowedTTL
		}
		a.decisions.Add(string(key), allowed, ttl)
	}
	return allowed, nil
}

// review sends a SubjectAccessReview to the API server and returns its decision.
func (a *accessReview) review(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (
	bool, error) {
	var review *authorizationv1.SubjectAccessReview
	err := retry(ctx, func() (err error) {
		review, err = a.client.SubjectAccessReviews().Create(ctx,
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}
