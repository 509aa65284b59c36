package access

import (
	"context"
	"crypto/x509"
	"errors"
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
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
)

// newAuthenticator asks for a certificate first, then for a token, as the kubelet does. It is put
// together from the parts of k8s.io/apiserver that need little; its factory brings gRPC gateways
// and policies with it, 8 MiB that nobody uses.
func (a *Access) newAuthenticator(opts *Options) authenticator.Request {
	var ways []authenticator.Request
	if a.authorities != nil {
		ways = append(ways, requestx509.NewDynamic(a.verifyOptions,
			requestx509.CommonNameUserConversion))
	}
	webhook := opts.Authentication.Webhook
	switch {
	case !*webhook.Enabled:
	case opts.Reviewer == nil:
		opts.Warn("authentication.webhook.enabled: true needs an API server (--kubeconfig); " +
			"until then no token is accepted at the HTTP API")
	default:
		ttl := webhook.CacheTTL.Duration
		tokens := cache.New(&tokenReview{opts.Reviewer.AuthenticationV1()}, false, ttl, ttl)
		ways = append(ways, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	}
	who := group.NewAuthenticatedGroupAdder(union.New(ways...))
	if *opts.Authentication.Anonymous.Enabled {
		// What was shown and is not good is refused even so.
		return union.NewFailOnError(who, anonymous.NewAuthenticator(nil))
	}
	return who
}

func (a *Access) verifyOptions() (x509.VerifyOptions, bool) {
	options := requestx509.DefaultVerifyOptions()
	options.Roots = a.authorities.Now()
	return options, true
}

// tokenReview is an authenticator.Token that asks the API server.
type tokenReview struct {
	client authenticationclient.AuthenticationV1Interface
}

// AuthenticateToken implements authenticator.Token.
func (t *tokenReview) AuthenticateToken(ctx context.Context, token string) (
	*authenticator.Response, bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
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
		if status.Error != "" {
			return nil, false, errors.New(status.Error)
		}
		return nil, false, nil
	}
	extra := map[string][]string{}
	for key, values := range status.User.Extra {
		extra[key] = values
	}
	return &authenticator.Response{User: &user.DefaultInfo{Name: status.User.Username,
		UID: status.User.UID, Groups: status.User.Groups, Extra: extra}}, true, nil
}

// retry asks again where a server says, or its connection seems, to be busy for a moment. The
// times are those of all Kubernetes components.
func retry(ctx context.Context, ask func() error) error {
	var err error
	waited := wait.ExponentialBackoffWithContext(ctx,
		wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5},
		func(context.Context) (bool, error) {
			err = ask()
			return !momentary(err), nil
		})
	if err == nil {
		err = waited
	}
	return err
}

func momentary(err error) bool {
	_, delayed := apierrors.SuggestsClientDelay(err)
	return err != nil && (delayed || apierrors.IsInternalError(err) ||
		apierrors.IsTooManyRequests(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsHTTP2ConnectionLost(err))
}

var _ authenticator.Token = (*tokenReview)(nil)
