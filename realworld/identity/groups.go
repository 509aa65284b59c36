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

// Groups are the typed clients of the API groups that the agent uses. The set of all groups
// (kubernetes.Clientset) would be a large part of the program, in memory too. What is asked of
// another group panics: it is a bug.
type Groups struct {
	kubernetes.Interface // nil; client-go's functions want one

	core                *core.CoreV1Client
	authentication      *authentication.AuthenticationV1Client
	authorization       *authorization.AuthorizationV1Client
	certificates        *certificatesv1.CertificatesV1Client
	certificatesV1beta1 *certificatesv1beta1.CertificatesV1beta1Client
}

// NewGroups makes clients that share one HTTP client. Each group has the configuration's QPS to
// itself.
func NewGroups(config *rest.Config, client *http.Client) (*Groups, error) {
	var g Groups
	var err error
	made := func(group string, failed error) {
		if failed != nil && err == nil {
			err = fmt.Errorf("making a client for %s: %w", group, failed)
		}
	}
	var failed error
	g.core, failed = core.NewForConfigAndClient(config, client)
	made("core/v1", failed)
	g.authentication, failed = authentication.NewForConfigAndClient(config, client)
	made("authentication.k8s.io/v1", failed)
	g.authorization, failed = authorization.NewForConfigAndClient(config, client)
	made("authorization.k8s.io/v1", failed)
	g.certificates, failed = certificatesv1.NewForConfigAndClient(config, client)
	made("certificates.k8s.io/v1", failed)
	g.certificatesV1beta1, failed = certificatesv1beta1.NewForConfigAndClient(config, client)
	made("certificates.k8s.io/v1beta1", failed)
	if err != nil {
		return nil, err
	}
	return &g, nil
}

// CoreV1 has the Node.
func (g *Groups) CoreV1() core.CoreV1Interface { return g.core }

// AuthenticationV1 has reviews of tokens.
func (g *Groups) AuthenticationV1() authentication.AuthenticationV1Interface {
	return g.authentication
}

// AuthorizationV1 has reviews of access.
func (g *Groups) AuthorizationV1() authorization.AuthorizationV1Interface { return g.authorization }

// CertificatesV1 has requests for certificates.
func (g *Groups) CertificatesV1() certificatesv1.CertificatesV1Interface { return g.certificates }

// CertificatesV1beta1 has them on servers older than 1.19, which client-go looks for.
func (g *Groups) CertificatesV1beta1() certificatesv1beta1.CertificatesV1beta1Interface {
	return g.certificatesV1beta1
}
