// Package cluster runs a private Kubernetes control plane for tests and for the playground: real
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler, with certificates of its own,
// and a bridge that has the address of the node and of the API server.
//
// The contract:
//
//  1. A cluster has one temporary directory. Everything outside it (processes, the bridge) has the
//     directory's path or a name derived from it, and can be found by it.
//  2. Stop removes all of it. A guard process does the same if the process that started the
//     cluster dies without stopping it.
//  3. The programs are those of tools, metricsserver and sidecars, modules of their own, so
//     that the project cannot import their dependencies. Install builds them.
//
// Start reading at Start and Stop, then components.go for the programs and their arguments.
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

	"seedlet.dev/realworld/cleanup"
)

// startTriesMax is how often a component is started if another process has taken its port.
const startTriesMax = 3

// Options configure a cluster. The zero value is valid.
type Options struct {
	// NodeMonitorGracePeriod is how long a node may be silent before its status is unknown; zero
	// for the controller manager's default of 50 s.
	NodeMonitorGracePeriod time.Duration
	// Metrics makes metrics-server serve metrics.k8s.io, which `kubectl top` needs.
	Metrics  bool
	Progress func(line string) // receives the progress of long steps; may be nil
}

// Cluster is a running control plane. Its methods are for one goroutine, except Kubectl and Apply.
type Cluster struct {
	URL     string     // of the API server
	Address netip.Addr // of the bridge: the address of the node and of the API server
	Dir     string

	options    Options
	tools      tools
	guard      *cleanup.Guard
	lock       *os.File // held as long as the owner lives
	ca         *authority
	client     *http.Client // with the administrator's certificate
	etcdClient *http.Client
	etcdURL    string
	apiAddress string // host and port of URL

	etcd, apiServer, controllerManager, scheduler, metrics *cleanup.Daemon

	stopped bool
}

// Start starts a cluster and waits until all components are ready and pods can be created in the
// default namespace. On an error nothing remains.
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
	if c.guard, err = cleanup.StartGuard(guardKind, c.Dir); err != nil {
		return err
	}
	subnet, err := cleanup.FreeSubnet(c.Dir)
	if err != nil {
		return err
	}
	c.Address = subnet.Addr().Next()
	if err := cleanup.MakeBridge(c.Dir, netip.PrefixFrom(c.Address, subnet.Bits())); err != nil {
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
	return c.startComponent(ctx, &c.etcd, func() (*cleanup.Daemon, error) { return c.newEtcd() },
		func(ctx context.Context) error { return get(ctx, c.etcdClient, c.etcdURL+"/health") })
}

// StartAPIServer starts the API server after StopAPIServer, on the same address and data, and waits
// until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	if c.apiServer.Running() {
		return errors.New("the API server runs already")
	}
	if err := c.apiServer.Start(); err != nil {
		return err
	}
	return c.waitReady(ctx, c.apiServer, func(ctx context.Context) error {
		return get(ctx, c.client, c.URL+"/readyz")
	})
}

// StopAPIServer kills the API server, as in a crash.
func (c *Cluster) StopAPIServer() error { return c.apiServer.Kill() }

// StopClients kills the controllers and the scheduler.
func (c *Cluster) StopClients() error {
	return errors.Join(c.scheduler.Kill(), c.controllerManager.Kill())
}

// startClients starts the clients of the API server concurrently.
func (c *Cluster) startClients(ctx context.Context) error {
	scheduler := make(chan error)
	go func() { scheduler <- c.startClient(ctx, &c.scheduler, c.newScheduler) }()
	err := c.startClient(ctx, &c.controllerManager, c.newControllerManager)
	if err := errors.Join(err, <-scheduler); err != nil {
		return err
	}
	// Pods need this service account, which the controller manager creates.
	account := c.URL + "/api/v1/namespaces/default/serviceaccounts/default"
	err = c.waitReady(ctx, c.controllerManager, func(ctx context.Context) error {
		return get(ctx, c.client, account)
	})
	if err != nil || !c.options.Metrics {
		return err
	}
	return c.startMetrics(ctx)
}

func (c *Cluster) startClient(ctx context.Context, d **cleanup.Daemon,
	create func() (*cleanup.Daemon, string, error)) error {
	var address string
	return c.startComponent(ctx, d,
		func() (component *cleanup.Daemon, err error) {
			component, address, err = create()
			return component, err
		},
		func(ctx context.Context) error { return get(ctx, c.client, "https://"+address+"/healthz") })
}

// startComponent creates a component, starts it and waits until it is ready. If another process
// takes its port first, the component is created again, with another port.
func (c *Cluster) startComponent(ctx context.Context, d **cleanup.Daemon,
	create func() (*cleanup.Daemon, error), ready func(context.Context) error) error {
	for try := 1; ; try++ {
		component, err := create()
		if err != nil {
			return err
		}
		if err := component.Start(); err != nil {
			return err
		}
		*d = component
		err = c.waitReady(ctx, component, ready)
		if err == nil || try == startTriesMax || !isPortTaken(component) {
			return err
		}
	}
}

// Stop removes the cluster with all of its resources. A second Stop does nothing.
func (c *Cluster) Stop() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	// The state is no longer needed, so the processes are killed, clients before their servers.
	for _, d := range []*cleanup.Daemon{c.metrics, c.scheduler, c.controllerManager, c.apiServer,
		c.etcd} {
		if d != nil {
			_ = d.Kill() // if this fails, the sweep reports the process
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

// LogFile returns the file with the output of all runs of a component: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler or metrics-server.
func (c *Cluster) LogFile(component string) string {
	return filepath.Join(c.Dir, component+".log")
}

// AuthorityFile returns the file with the cluster's root certificate.
func (c *Cluster) AuthorityFile() string { return c.pkiFile("ca.crt") }
