package web

import (
	"crypto/tls"
	"fmt"

	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// TLSConfig returns the TLS configuration of the secure port. certificate is called at each
// handshake. Errors name the configuration field.
func TLSConfig(c *kubeletconfig.KubeletConfiguration,
	certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) (*tls.Config, error) {
	version, err := cliflag.TLSVersion(c.TLSMinVersion)
	if err != nil {
		return nil, fmt.Errorf("tlsMinVersion: %w", err)
	}
	suites, err := cliflag.TLSCipherSuites(c.TLSCipherSuites)
	if err != nil {
		return nil, fmt.Errorf("tlsCipherSuites: %w", err)
	}
	curves, err := cliflag.TLSCurvePreferences(c.TLSCurvePreferences)
	if err != nil {
		return nil, fmt.Errorf("tlsCurvePreferences: %w", err)
	}
	return &tls.Config{MinVersion: version, CipherSuites: suites, CurvePreferences: curves,
		NextProtos: []string{"h2", "http/1.1"}, GetCertificate: certificate}, nil
}
