// Package cluster runs a private Kubernetes control plane for tests and for the playground: real
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, with certificates made for
// it and a bridge whose address is the one of the node and of the API server.
//
// The contract:
//
//  1. A cluster lives in one temporary directory. Everything outside it (processes, the bridge)
//     carries its path or a name made from it, and so can be found by it.
//  2. Stop removes all of it. A guard process does the same when the process that started the
//     cluster dies without stopping it.
//  3. The programs are those of tools/go.mod and metricsserver/go.mod, modules of their own, so
//     that nothing of the project can import what they are made of. Install builds them.
//
// Start reading at Start and Stop, then components.go for what runs with which arguments.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"seedlet.dev/realworld/owned"
)

// triesMax is how often a component is started when another process has taken its port.
const triesMax = 3

// Options says what cluster to start. The zero value is good.
type Options struct {
	// NodeMonitorGracePeriod is how long a node may be silent before it is called unknown; zero
	// for the controller manager's own 50 s.
	NodeMonitorGracePeriod time.Duration
	// Metrics has metrics-server serve metrics.k8s.io, from which `kubectl top` is answered.
	Metrics  bool
	Progress func(line string) // told what takes long; may be nil
}

// Cluster is a running control plane. Its methods are for one goroutine, but for Kubectl and
// Apply.
type Cluster struct {
	URL     string     // of the API server
	Address netip.Addr // of the bridge: the node's, and the API server's
	Dir     string

	options    Options
	tools      tools
	guard      *owned.Guard
	lock       *os.File // held as long as the owner lives
	ca         *authority
	client     *http.Client // in the administrator's name
	etcdClient *http.Client
	etcdURL    string
	apiAddress string // host and port of URL

	etcd, apiServer, controllerManager, scheduler, metrics *owned.Daemon

	stopped bool
}

// Start starts a cluster and waits until all components are ready and pods can be created in the
// default namespace. On an error nothing is left.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	tools, err := findTools()
	if err != nil {
		return nil, err
	}
	sweepStale(os.TempDir())
	dir, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return nil, fmt.Errorf("making the cluster's directory: %w", err)
	}
	c := &Cluster{Dir: dir, options: o, tools: tools}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

func (c *Cluster) start(ctx context.Context) (err error) {
	if c.lock, err = lockDir(c.Dir); err != nil {
		return err
	}
	if c.guard, err = owned.StartGuard(guardKind, c.Dir); err != nil {
		return err
	}
	subnet, err := owned.FreeSubnet(c.Dir)
	if err != nil {
		return err
	}
	c.Address = subnet.Addr().Next()
	if err := owned.MakeBridge(c.Dir, netip.PrefixFrom(c.Address, subnet.Bits())); err != nil {
		return err
	}
	if c.apiAddress, err = freeAddress(c.Address); err != nil {
		return err
	}
	c.URL = "https://" + c.apiAddress
	if err := c.makeIdentities(); err != nil {
		return err
	}
	if err := c.startEtcd(ctx); err != nil {
		return err
	}
	c.apiServer = c.newAPIServer()
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	return c.startClients(ctx)
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	return c.serve(ctx, &c.etcd, func() (*owned.Daemon, error) { return c.newEtcd() },
		func(ctx context.Context) error { return get(ctx, c.etcdClient, c.etcdURL+"/health") })
}

// StartAPIServer starts the API server after StopAPIServer, on the same address and data, and
// waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if c.apiServer.Running() {
		return errors.New("the API server runs already")
	}
	if err := c.apiServer.Start(); err != nil {
		return err
	}
	return c.wait(ctx, c.apiServer, func(ctx context.Context) error {
		return get(ctx, c.client, c.URL+"/readyz")
	})
}

// StopAPIServer ends the API server at once, as a crash does, in the middle of whatever it does.
func (c *Cluster) StopAPIServer() error { return c.apiServer.Kill() }

// StopClients ends the controllers and the scheduler at once.
func (c *Cluster) StopClients() error {
	return errors.Join(c.scheduler.Kill(), c.controllerManager.Kill())
}

// startClients starts those who work through the API server, side by side.
func (c *Cluster) startClients(ctx context.Context) error {
	scheduler := make(chan error)
	go func() { scheduler <- c.startClient(ctx, &c.scheduler, c.newScheduler) }()
	err := c.startClient(ctx, &c.controllerManager, c.newControllerManager)
	if err := errors.Join(err, <-scheduler); err != nil {
		return err
	}
	// Without it no pod may be created; the controller manager makes it.
	account := c.URL + "/api/v1/namespaces/default/serviceaccounts/default"
	err = c.wait(ctx, c.controllerManager, func(ctx context.Context) error {
		return get(ctx, c.client, account)
	})
	if err != nil || !c.options.Metrics {
		return err
	}
	return c.startMetrics(ctx)
}

func (c *Cluster) startClient(ctx context.Context, d **owned.Daemon,
	make func() (*owned.Daemon, string, error)) error {
	var address string
	return c.serve(ctx, d,
		func() (made *owned.Daemon, err error) { made, address, err = make(); return made, err },
		func(ctx context.Context) error { return get(ctx, c.client, "https://"+address+"/healthz") })
}

// serve makes a component, starts it and waits until it is ready. If someone takes its port
// first, another component is made, with another port.
func (c *Cluster) serve(ctx context.Context, d **owned.Daemon,
	make func() (*owned.Daemon, error), ready func(context.Context) error) error {
	for try := 1; ; try++ {
		made, err := make()
		if err != nil {
			return err
		}
		if err := made.Start(); err != nil {
			return err
		}
		*d = made
		err = c.wait(ctx, made, ready)
		if err == nil || try == triesMax || !portTaken(made) {
			return err
		}
	}
}

// Stop removes the cluster and everything it made. Calling it again does nothing.
func (c *Cluster) Stop() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	// Nothing of it will be needed, so nobody is asked; those who use others end first.
	for _, d := range []*owned.Daemon{c.metrics, c.scheduler, c.controllerManager, c.apiServer,
		c.etcd} {
		if d != nil {
			_ = d.Kill() // what then remains, the sweep reports
		}
	}
	err := sweep(c.Dir)
	if c.guard != nil {
		c.guard.Dismiss()
	}
	if c.lock != nil {
		_ = c.lock.Close() // it was never written to
	}
	if err != nil {
		return fmt.Errorf("removing the cluster at %s: %w", c.Dir, err)
	}
	return nil
}

// LogFile is where the output of a component goes, over all its lives: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler or metrics-server.
func (c *Cluster) LogFile(component string) string {
	return filepath.Join(c.Dir, component+".log")
}

// AuthorityFile holds the certificate of the authority that all others of the cluster are of.
func (c *Cluster) AuthorityFile() string { return c.pki("ca.crt") }
