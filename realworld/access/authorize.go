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
	// decisionsMax bounds the answers that are remembered.
	decisionsMax = 1024
	// questionBytesMax bounds one of them: who has more to say of themselves is asked about
	// each time.
	questionBytesMax = 8 << 10
)

// authorizer says whether somebody may do something with the Node.
type authorizer interface {
	allows(ctx context.Context, who user.Info, what act) (bool, error)
}

func newAuthorizer(opts *Options) authorizer {
	config := opts.Authorization
	switch {
	case config.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow:
		return everything{}
	case opts.Reviewer == nil:
		opts.Warn("authorization.mode: Webhook needs an API server (--kubeconfig); until then " +
			"nobody may call the HTTP API")
		return nothing{}
	}
	return &accessReview{
		client:     opts.Reviewer.AuthorizationV1(),
		allowedTTL: config.Webhook.CacheAuthorizedTTL.Duration,
		deniedTTL:  config.Webhook.CacheUnauthorizedTTL.Duration,
		remembered: cache.NewLRUExpireCache(decisionsMax),
	}
}

// everything is an authorizer that allows all.
type everything struct{}

func (everything) allows(context.Context, user.Info, act) (bool, error) { return true, nil }

// nothing is an authorizer that allows none.
type nothing struct{}

func (nothing) allows(context.Context, user.Info, act) (bool, error) { return false, nil }

// accessReview is an authorizer that asks the API server, and remembers what it has said. It is
// not that of k8s.io/apiserver, which has an interpreter for CEL with it.
type accessReview struct {
	client                authorizationclient.AuthorizationV1Interface
	allowedTTL, deniedTTL time.Duration
	remembered            *cache.LRUExpireCache // bool, by question
}

func (a *accessReview) allows(ctx context.Context, who user.Info, what act) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: what.verb, Version: "v1", Resource: "nodes", Name: what.node,
			Subresource: what.subresource,
		},
	}
	for key, values := range who.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
	question, err := json.Marshal(spec)
	if err != nil {
		return false, fmt.Errorf("asking what they may do: %w", err)
	}
	if answer, ok := a.remembered.Get(string(question)); ok {
		return answer.(bool), nil
	}
	var review *authorizationv1.SubjectAccessReview
	err = retry(ctx, func() (err error) {
		review, err = a.client.SubjectAccessReviews().Create(ctx,
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return false, fmt.Errorf("asking what they may do: %w", err)
	}
	allowed := review.Status.Allowed && !review.Status.Denied
	if len(question) <= questionBytesMax {
		ttl := a.deniedTTL
		if allowed {
			ttl = a.allowedTTL
		}
		a.remembered.Add(string(question), allowed, ttl)
	}
	return allowed, nil
}
