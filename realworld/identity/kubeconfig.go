package identity

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"seedlet.dev/realworld/certfile"
	"seedlet.dev/realworld/regularfile"
	"seedlet.dev/realworld/replacefile"
)

// dirMode is the mode of the directories of the agent's kubeconfig and certificates, if it makes
// them.
const dirMode = 0o755

// kubeconfig is the server and the user of a kubeconfig's current context.
type kubeconfig struct {
	source      string // for errors: the flag and the path
	user        string // its name in the file
	config      *rest.Config
	certificate *tls.Certificate // the user's, with its leaf; or nil
	certPEM     []byte
	keyPEM      []byte
}

// readKubeconfig reads a kubeconfig and validates the fields that would otherwise fail requests
// later.
func readKubeconfig(flag, path string) (*kubeconfig, error) {
	file := flag + " " + path
	if _, err := readFile(path); err != nil { // client-go would wait for a pipe
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	rules := clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	raw, err := rules.Load() // relative paths become absolute
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	context, err := currentContext(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	k := &kubeconfig{source: file, user: context.AuthInfo}
	if err := k.readCertificate(raw.AuthInfos[context.AuthInfo]); err != nil {
		return nil, fmt.Errorf("%s: users[%s].%w", file, context.AuthInfo, err)
	}
	k.config, err = clientcmd.NewNonInteractiveClientConfig(*raw, raw.CurrentContext,
		&clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return k, nil
}

// currentContext returns the current context, if it and its cluster and user are valid.
func currentContext(raw *api.Config) (*api.Context, error) {
	if raw.CurrentContext == "" {
		return nil, fmt.Errorf("current-context: is not set")
	}
	context := raw.Contexts[raw.CurrentContext]
	if context == nil {
		return nil, fmt.Errorf("current-context: there is no context %q", raw.CurrentContext)
	}
	cluster := raw.Clusters[context.Cluster]
	if cluster == nil {
		return nil, fmt.Errorf("contexts[%s].cluster: there is no cluster %q", raw.CurrentContext,
			context.Cluster)
	}
	if err := validateCluster(cluster); err != nil {
		return nil, fmt.Errorf("clusters[%s].%w", context.Cluster, err)
	}
	user := raw.AuthInfos[context.AuthInfo]
	if user == nil {
		return nil, fmt.Errorf("contexts[%s].user: there is no user %q", raw.CurrentContext,
			context.AuthInfo)
	}
	if user.TokenFile != "" {
		if _, err := readFile(user.TokenFile); err != nil {
			return nil, fmt.Errorf("users[%s].tokenFile: %w", context.AuthInfo, err)
		}
	}
	return context, nil
}

// validateCluster checks the URL and the authority of a server. Its errors begin with the field.
func validateCluster(c *api.Cluster) error {
	server, err := url.Parse(c.Server)
	switch {
	case err != nil:
		return fmt.Errorf("server: %w", err)
	case server.Host == "" || server.Scheme != "https" && server.Scheme != "http":
		return fmt.Errorf("server: %q is no URL of a server", c.Server)
	}
	authority, field := c.CertificateAuthorityData, "certificate-authority-data"
	if len(authority) == 0 && c.CertificateAuthority != "" {
		field = "certificate-authority"
		if authority, err = readFile(c.CertificateAuthority); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
	if len(authority) > 0 && !x509.NewCertPool().AppendCertsFromPEM(authority) {
		return fmt.Errorf("%s: holds no certificate", field)
	}
	return nil
}

// readCertificate reads a user's certificate and key. Its errors begin with the field.
func (k *kubeconfig) readCertificate(user *api.AuthInfo) error {
	var err error
	k.certPEM, err = dataOrFile(user.ClientCertificateData, user.ClientCertificate)
	if err != nil {
		return fmt.Errorf("client-certificate: %w", err)
	}
	k.keyPEM, err = dataOrFile(user.ClientKeyData, user.ClientKey)
	if err != nil {
		return fmt.Errorf("client-key: %w", err)
	}
	if len(k.certPEM) == 0 && len(k.keyPEM) == 0 {
		return nil
	}
	cert, err := tls.X509KeyPair(k.certPEM, k.keyPEM)
	if err != nil {
		return fmt.Errorf("client-certificate and client-key: %w", err)
	}
	k.certificate = &cert
	return nil
}

// readFile reads a kubeconfig, or a file that it names.
func readFile(path string) ([]byte, error) { return regularfile.Read(path, certfile.BytesMax) }

func dataOrFile(data []byte, file string) ([]byte, error) {
	if len(data) > 0 || file == "" {
		return data, nil
	}
	return readFile(file)
}

// checkExpiry returns an error if the user's certificate has expired.
func (k *kubeconfig) checkExpiry(now time.Time) error {
	if k.certificate == nil || now.Before(k.certificate.Leaf.NotAfter) {
		return nil
	}
	return fmt.Errorf("%s: users[%s].client-certificate: has expired at %s", k.source, k.user,
		k.certificate.Leaf.NotAfter.UTC().Format(time.RFC3339))
}

// The names in a kubeconfig that is written after a bootstrap are the kubelet's.
const (
	clusterName = "default-cluster"
	userName    = "default-auth"
	contextName = "default-context"
)

// writeKubeconfig writes a kubeconfig for a server with the certificate in a file, atomically.
func writeKubeconfig(path string, server *rest.Config, pem string) error {
	cluster := &api.Cluster{
		Server: server.Host, InsecureSkipTLSVerify: server.Insecure,
		TLSServerName:            server.ServerName,
		CertificateAuthority:     server.CAFile,
		CertificateAuthorityData: server.CAData,
		DisableCompression:       server.DisableCompression,
	}
	if server.Proxy != nil {
		if proxy, err := server.Proxy(nil); err == nil && proxy != nil {
			cluster.ProxyURL = proxy.String()
		}
	}
	data, err := clientcmd.Write(api.Config{
		Clusters:  map[string]*api.Cluster{clusterName: cluster},
		AuthInfos: map[string]*api.AuthInfo{userName: {ClientCertificate: pem, ClientKey: pem}},
		Contexts: map[string]*api.Context{
			contextName: {Cluster: clusterName, AuthInfo: userName, Namespace: "default"},
		},
		CurrentContext: contextName,
	})
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := replacefile.WriteThrough(path, data, dirMode); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
