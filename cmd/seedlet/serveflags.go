package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// serveFlags are the flags of the secure port. Each overrides a field of the configuration.
type serveFlags struct {
	enable, debugging, contention    bool
	port                             int32
	certFile, keyFile, minVersion    string
	cipherSuites                     []string
	rotateServer, rotate             bool
	clientCAFile                     string
	anonymous, tokens                bool
	tokensTTL, allowedTTL, deniedTTL time.Duration
	authorizationMode                string
	streamIdleTimeout                time.Duration
}

func (f *serveFlags) addTo(fs *pflag.FlagSet) {
	fs.BoolVar(&f.enable, "enable-server", true, "serve the HTTP API on the secure port")
	fs.Int32Var(&f.port, "port", 0, "secure port (default 10250)")
	fs.StringVar(&f.certFile, "tls-cert-file", "",
		"certificate of the secure port; without it and --rotate-server-certificates "+
			"it is self-signed")
	fs.StringVar(&f.keyFile, "tls-private-key-file", "", "key of --tls-cert-file")
	fs.StringVar(&f.minVersion, "tls-min-version", "", "minimum version of TLS (default VersionTLS12)")
	fs.StringSliceVar(&f.cipherSuites, "tls-cipher-suites", nil,
		"cipher suites of the secure port, up to TLS 1.2")
	fs.BoolVar(&f.rotateServer, "rotate-server-certificates", false,
		"ask the API server for the certificate of the secure port, again before it expires")
	fs.BoolVar(&f.rotate, "rotate-certificates", false,
		"ask the API server for the next client certificate before one expires")
	fs.StringVar(&f.clientCAFile, "client-ca-file", "",
		"CA bundle that verifies client certificates; empty: they do not authenticate")
	fs.BoolVar(&f.anonymous, "anonymous-auth", false,
		"accept requests without credentials, as user system:anonymous")
	fs.BoolVar(&f.tokens, "authentication-token-webhook", true,
		"authenticate bearer tokens by TokenReviews of the API server")
	fs.DurationVar(&f.tokensTTL, "authentication-token-webhook-cache-ttl", 0,
		"how long the result of a TokenReview is cached (default 2m)")
	fs.StringVar(&f.authorizationMode, "authorization-mode", "",
		"AlwaysAllow, or Webhook for SubjectAccessReviews of the API server (default Webhook)")
	fs.DurationVar(&f.allowedTTL, "authorization-webhook-cache-authorized-ttl", 0,
		"how long it is cached that a request is authorized (default 5m)")
	fs.DurationVar(&f.deniedTTL, "authorization-webhook-cache-unauthorized-ttl", 0,
		"how long it is cached that a request is not authorized (default 30s)")
	fs.BoolVar(&f.debugging, "enable-debugging-handlers", true,
		"serve logs, exec, attach, port-forward, run, configz and debug paths")
	fs.BoolVar(&f.contention, "contention-profiling", false, "profile on which locks goroutines block")
	fs.DurationVar(&f.streamIdleTimeout, "streaming-connection-idle-timeout", 0,
		"how long an exec, attach or port-forward may be idle (default 4h)")
}

// override sets the fields whose flags are on the command line.
func (f *serveFlags) override(fs *pflag.FlagSet, c *kubeletconfig.KubeletConfiguration) error {
	for flag, path := range map[string]*string{"tls-cert-file": &f.certFile,
		"tls-private-key-file": &f.keyFile, "client-ca-file": &f.clientCAFile} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path) // relative to the working directory
		if err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		*path = absolute
	}
	who, may := &c.Authentication, &c.Authorization
	set := map[string]func(){
		"anonymous-auth":               func() { who.Anonymous.Enabled = &f.anonymous },
		"authentication-token-webhook": func() { who.Webhook.Enabled = &f.tokens },
		"authentication-token-webhook-cache-ttl": func() {
			who.Webhook.CacheTTL = metav1.Duration{Duration: f.tokensTTL}
		},
		"authorization-mode": func() {
			may.Mode = kubeletconfig.KubeletAuthorizationMode(f.authorizationMode)
		},
		"authorization-webhook-cache-authorized-ttl": func() {
			may.Webhook.CacheAuthorizedTTL = metav1.Duration{Duration: f.allowedTTL}
		},
		"authorization-webhook-cache-unauthorized-ttl": func() {
			may.Webhook.CacheUnauthorizedTTL = metav1.Duration{Duration: f.deniedTTL}
		},
		"client-ca-file":             func() { who.X509.ClientCAFile = f.clientCAFile },
		"contention-profiling":       func() { c.EnableContentionProfiling = f.contention },
		"enable-debugging-handlers":  func() { c.EnableDebuggingHandlers = &f.debugging },
		"enable-server":              func() { c.EnableServer = &f.enable },
		"port":                       func() { c.Port = f.port },
		"rotate-certificates":        func() { c.RotateCertificates = f.rotate },
		"rotate-server-certificates": func() { c.ServerTLSBootstrap = f.rotateServer },
		"streaming-connection-idle-timeout": func() {
			c.StreamingConnectionIdleTimeout = metav1.Duration{Duration: f.streamIdleTimeout}
		},
		"tls-cert-file":        func() { c.TLSCertFile = f.certFile },
		"tls-cipher-suites":    func() { c.TLSCipherSuites = f.cipherSuites },
		"tls-min-version":      func() { c.TLSMinVersion = f.minVersion },
		"tls-private-key-file": func() { c.TLSPrivateKeyFile = f.keyFile },
	}
	fs.Visit(func(flag *pflag.Flag) {
		if apply, ok := set[flag.Name]; ok {
			apply()
		}
	})
	if fs.Changed("port") && f.port == 0 { // in the file zero means the default
		return fmt.Errorf("--port: must be greater than zero; --enable-server=false turns it off")
	}
	return nil
}

// servedFlags returns the flags as /flagz serves them: without values that may be secret.
func servedFlags(fs *pflag.FlagSet) map[string]string {
	shown := map[string]string{}
	fs.VisitAll(func(flag *pflag.Flag) {
		shown[flag.Name] = flag.Value.String()
		if flag.Name == "manifest-url-header" || flag.Name == "manifest-url" {
			shown[flag.Name] = "CLASSIFIED"
		}
	})
	return shown
}
