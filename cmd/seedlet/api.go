package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/realworld/apiserver"
	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/world"
)

// defaultCertDir is the kubelet's directory of certificates. It does not depend on --root-dir.
const defaultCertDir = "/var/lib/kubelet/pki"

// apiFlags are the flags of the connection to the API server and of the agent's identity there.
type apiFlags struct {
	kubeconfig string // empty: standalone, without an API server
	bootstrap  string
	certDir    string
}

func (f *apiFlags) addTo(fs *pflag.FlagSet) {
	fs.StringVar(&f.kubeconfig, "kubeconfig", "",
		"kubeconfig for the API server; without one the agent runs static pods alone")
	fs.StringVar(&f.bootstrap, "bootstrap-kubeconfig", "",
		"kubeconfig to ask for a client certificate with, if --kubeconfig cannot be used; "+
			"--kubeconfig is then written")
	fs.StringVar(&f.certDir, "cert-dir", defaultCertDir,
		"directory for certificates that were asked for")
}

// absolute returns the flags with absolute paths. Relative ones are relative to the working
// directory.
func (f apiFlags) absolute() (apiFlags, error) {
	if f.bootstrap != "" && f.kubeconfig == "" {
		return f, errors.New("--bootstrap-kubeconfig: needs --kubeconfig, which is then written")
	}
	if f.certDir == "" {
		return f, errors.New("--cert-dir: must not be empty")
	}
	for _, path := range []*string{&f.kubeconfig, &f.bootstrap, &f.certDir} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return f, fmt.Errorf("the path %s: %w", *path, err)
		}
		*path = absolute
	}
	return f, nil
}

// apiConnection is the connection to the API server.
type apiConnection struct {
	identity *identity.Identity
	port     *apiserver.Port
}

// newAPI determines the agent's identity and creates the API server port. The server need not be
// reachable.
func newAPI(f apiFlags, c *kubeletconfig.KubeletConfiguration, nodeName string, ticks clock.Clock,
	trace func(http.RoundTripper) http.RoundTripper, deliver func(world.Event)) (*apiConnection,
	error) {
	who, err := identity.Load(identity.Options{
		Kubeconfig: f.kubeconfig, Bootstrap: f.bootstrap, CertDir: f.certDir, NodeName: nodeName,
		Rotate: c.RotateCertificates, UserAgent: userAgent(), Trace: trace,
		Warn: func(problem string) { klog.InfoS(problem, "severity", "warning") },
	})
	if err != nil {
		return nil, err
	}
	port, err := apiserver.New(apiserver.Options{
		Identity: who, NodeName: nodeName, ContentType: c.ContentType,
		QPS: float32(*c.KubeAPIQPS), Burst: int(c.KubeAPIBurst),
		EventQPS: float32(*c.EventRecordQPS), EventBurst: int(c.EventBurst),
		HeartbeatTimeout: heartbeatTimeout(c), Clock: ticks, Deliver: deliver,
	})
	if err != nil {
		who.Close()
		return nil, err
	}
	who.Start()
	return &apiConnection{who, port}, nil
}

// heartbeatTimeout leaves time for further attempts before the lease expires.
func heartbeatTimeout(c *kubeletconfig.KubeletConfiguration) time.Duration {
	lease := time.Duration(c.NodeLeaseDurationSeconds) * time.Second
	return min(c.NodeStatusUpdateFrequency.Duration, lease/4)
}

// userAgent returns the User-Agent header. Its first word, the name of the executable, is also the
// field manager of the fields that the agent sets.
func userAgent() string {
	return fmt.Sprintf("%s/%s (%s/%s)", filepath.Base(os.Args[0]), version, runtime.GOOS,
		runtime.GOARCH)
}

func (a *apiConnection) close() {
	if a != nil {
		a.port.Close()
		a.identity.Close()
	}
}
