package access

import (
	"context"
	"crypto/x509"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/anonymous"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// newAuthenticator returns an authenticator that tries the client's certificate first, then its
// token, as the kubelet does. It is composed of the parts of k8s.io/apiserver with few
// dependencies: the factory there would add gRPC gateways and policies, 8 MiB of unused code.
func (a *Access) newAuthenticator(opts *Options) authenticator.Request {
	var authenticators []authenticator.Request
	if a.authorities != nil {
		authenticators = append(authenticators, requestx509.NewDynamic(a.verifyOptions,
			requestx509.CommonNameUserConversion))
	}
	webhook := opts.Authentication.Webhook
	switch {
	case !*webhook.Enabled:
	case opts.Reviewer == nil:
		opts.Warn("authentication.webhook.enabled: true needs an API server (--kubeconfig); " +
			"until then no token is accepted at the HTTP API")
	default:
		tokens := newTokens(&tokenReview{opts.Reviewer.AuthenticationV1()}, a.tokenReviews,
			webhook.CacheTTL.Duration)
		authenticators = append(authenticators, bearertoken.New(tokens),
			websocket.NewProtocolAuthenticator(tokens))
	}
	authenticated := group.NewAuthenticatedGroupAdder(union.New(authenticators...))
	if *opts.Authentication.Anonymous.Enabled {
		// Invalid credentials are refused although a request without any is accepted.
		return union.NewFailOnError(authenticated, anonymous.NewAuthenticator(nil))
	}
	return authenticated
}

func (a *Access) verifyOptions() (x509.VerifyOptions, bool) {
	options := requestx509.DefaultVerifyOptions()
	options.Roots = a.authorities.Current()
	return options, true
}

// tokenReview is an authenticator.Token that sends TokenReviews to the API server. The decision
// that a token is invalid is a *rejectedError; any other error means that there is no decision.
type tokenReview struct {
	client authenticationclient.AuthenticationV1Interface
}

// AuthenticateToken implements authenticator.Token.
func (t *tokenReview) AuthenticateToken(ctx context.Context, token string) (
	*authenticator.Response, bool, error) {
	var review *authenticationv1.TokenReview
	err := retry(ctx, func() (err error) {
		review, err = t.client.TokenReviews().Create(ctx, &authenticationv1.TokenReview{
			Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("asking whose token it is: %w", err)
	}
	status := &review.Status
	if !status.Authenticated {
		return nil, false, &rejectedError{status.Error}
	}
	extra := map[string][]string{}
	for key, values := range status.User.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: status.User.Username,
		UID: status.User.UID, Groups: status.User.Groups, Extra: extra}}, true, nil
}

// retry repeats a request after a transient error. The backoff is that of all Kubernetes
// components.
func retry(ctx context.Context, request func() error) error {
	var err error
	backoffErr := wait.ExponentialBackoffWithContext(ctx,
		wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5},
		func(context.Context) (bool, error) {
			err = request()
			return !isTransient(err), nil
		})
	if err == nil {
		err = backoffErr
	}
	return err
}

func isTransient(err error) bool {
	_, delayed := apierrors.SuggestsClientDelay(err)
	return err != nil && (delayed || apierrors.IsInternalError(err) ||
		apierrors.IsTooManyRequests(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsHTTP2ConnectionLost(err))
}

var _ authenticator.Token = (*tokenReview)(nil)
