package identity

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/kubernetes"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorization "k8s.io/client-go/kubernetes/typed/authorization/v1"
	certificatesv1 "k8s.io/client-go/kubernetes/typed/certificates/v1"
	certificatesv1beta1 "k8s.io/client-go/kubernetes/typed/certificates/v1beta1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// Groups are the typed clients of the API groups that the agent uses. All groups
// (kubernetes.Clientset) would be a large part of the binary, and of memory. A call to another
// group panics: it is a bug.
type Groups struct {
	kubernetes.Interface // nil; client-go's functions require the interface

	core                *core.CoreV1Client
	authentication      *authentication.AuthenticationV1Client
	authorization       *authorization.AuthorizationV1Client
	certificates        *certificatesv1.CertificatesV1Client
	certificatesV1beta1 *certificatesv1beta1.CertificatesV1beta1Client
}

// NewGroups returns clients that share one HTTP client. Each group has a rate limit of its
// own, with the configuration's QPS.
func NewGroups(config *rest.Config, client *http.Client) (*Groups, error) {
	var g Groups
	var err error
	check := func(group string, groupErr error) {
		if groupErr != nil && err == nil {
			err = fmt.Errorf("making a client for %s: %w", group, groupErr)
		}
	}
	var groupErr error
	g.core, groupErr = core.NewForConfigAndClient(config, client)
	check("core/v1", groupErr)
	g.authentication, groupErr = authentication.NewForConfigAndClient(config, client)
	check("authentication.k8s.io/v1", groupErr)
	g.authorization, groupErr = authorization.NewForConfigAndClient(config, client)
	check("authorization.k8s.io/v1", groupErr)
	g.certificates, groupErr = certificatesv1.NewForConfigAndClient(config, client)
	check("certificates.k8s.io/v1", groupErr)
	g.certificatesV1beta1, groupErr = certificatesv1beta1.NewForConfigAndClient(config, client)
	check("certificates.k8s.io/v1beta1", groupErr)
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// CoreV1 has Nodes.
func (g *Groups) CoreV1() core.CoreV1Interface { return g.core }

// AuthenticationV1 has TokenReviews.
func (g *Groups) AuthenticationV1() authentication.AuthenticationV1Interface {
	return g.authentication
}

// AuthorizationV1 has SubjectAccessReviews.
func (g *Groups) AuthorizationV1() authorization.AuthorizationV1Interface { return g.authorization }

// CertificatesV1 has CertificateSigningRequests.
func (g *Groups) CertificatesV1() certificatesv1.CertificatesV1Interface { return g.certificates }

// CertificatesV1beta1 has those of servers older than 1.19, for which client-go falls back to it.
func (g *Groups) CertificatesV1beta1() certificatesv1beta1.CertificatesV1beta1Interface {
	return g.certificatesV1beta1
}
