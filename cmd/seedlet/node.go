package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"seedlet.dev/core"
	"seedlet.dev/core/manifest"
	nodeobject "seedlet.dev/core/node"
	"seedlet.dev/core/userns"
	"seedlet.dev/realworld/access"
	"seedlet.dev/realworld/breaker"
	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/containerapi"
	"seedlet.dev/realworld/credentials"
	"seedlet.dev/realworld/cri"
	"seedlet.dev/realworld/csi"
	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/host"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/realworld/iptables"
	"seedlet.dev/realworld/log"
	"seedlet.dev/realworld/network"
	"seedlet.dev/realworld/plugins"
	"seedlet.dev/realworld/podresources"
	"seedlet.dev/realworld/portmetrics"
	"seedlet.dev/realworld/runner"
	"seedlet.dev/realworld/scsi"
	"seedlet.dev/realworld/stats"
	"seedlet.dev/realworld/tracing"
	"seedlet.dev/realworld/web"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// closeTimeout bounds how long the ports may take to close. A call that hangs in the kernel must
// not keep the process alive.
const closeTimeout = 5 * time.Second

// run runs the agent until the context is done. It returns an error only if the agent cannot start.
// The container runtime need not be reachable.
func run(ctx context.Context, s settings) error {
	if err := log.Configure(&s.config.Logging, s.config.FeatureGates); err != nil {
		return err
	}
	defer log.Flush()
	logWarnings(s.fileWarnings)
	ctx, err := s.lock.acquire(ctx)
	if err != nil {
		return err
	}
	boot, err := host.Boot("/", s.rootDir, s.machine.ids)
	if err != nil {
		return err
	}
	if err := checkMachine(s.config, &boot.Machine, cgroupMounts); err != nil {
		return err
	}
	if err := checkReservedCPUs(s.config, host.OnlineCPUs("/")); err != nil {
		return err
	}
	panics := openBreaker(s.rootDir)
	boot.SetAside = panics.SetAside(time.Now())
	nodeName, err := nodeName(s.hostnameOverride, boot.Hostname)
	if err != nil {
		return err
	}
	reserved := nodeobject.SettingsFromConfig(s.config, nodeName, s.node)
	if err := reserved.CheckReserved(boot); err != nil {
		return err
	}
	boot.NameAddresses, _ = host.LookUpName(ctx, s.node.NameToResolve(nodeName))
	klog.InfoS("starting", "version", version, "node", nodeName, "rootDir", s.rootDir,
		"staticPodPath", s.config.StaticPodPath,
		"staticPodURL", manifest.RedactURL(s.config.StaticPodURL),
		"containerRuntimeEndpoint", s.config.ContainerRuntimeEndpoint)
	logWarnings(append(s.warnings, machineWarnings(s.config, &boot.Machine)...))
	setUpProcess(s.config)
	every, err := watchdogInterval()
	if err != nil {
		return err
	}
	if err := setUpMachine(s); err != nil {
		return err
	}
	if s.ids, err = podIDs(ctx, s.config); err != nil {
		return err
	}
	layout := userns.LayoutFromConfig(s.config, s.ids)
	logWarnings(host.OverlappingIDs("/", layout.First, layout.Length()))
	n, err := newNode(s, nodeName, panics)
	if err != nil {
		return err
	}
	defer n.close()
	logError(notify(daemon.SdNotifyReady))
	go dropStartPages(ctx)
	n.watched(ctx, every, func() { n.runner.Run(ctx, n.loop, boot) })
	logError(notify(daemon.SdNotifyStopping))
	klog.InfoS("shut down; pods keep running", "reason", context.Cause(ctx))
	return nil
}

func logWarnings(warnings []string) {
	for _, warning := range warnings {
		klog.InfoS(warning, "severity", "warning")
	}
}

// watched runs the agent and feeds systemd's watchdog meanwhile.
func (n *node) watched(ctx context.Context, every time.Duration, run func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	if every > 0 {
		work.Go(func() { feedWatchdog(ctx, every, n.requests.Healthy, notify) })
	}
	run()
	cancel()
	work.Wait()
}

// nodeName returns the override or the host name, in lower case. It fails if the API does not allow
// the name.
func nodeName(override, hostname string) (string, error) {
	source, name := "--hostname-override", strings.TrimSpace(override)
	if name == "" {
		source, name = "the machine's host name", strings.TrimSpace(hostname)
	}
	name = strings.ToLower(name)
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return "", fmt.Errorf("%s: %q cannot name a node: %s", source, name, problems[0])
	}
	return name, nil
}

// node is the agent with its ports and servers.
type node struct {
	runner   *runner.Runner
	loop     *loop.Loop
	runtime  *cri.Port
	disk     *disk.Port
	host     *host.Port
	network  *network.Port
	plugins  *plugins.Port
	csi      *csi.Port
	scsi     *scsi.Port
	images   *credentials.Port // credentials for them
	api      *apiConnection    // nil without an API server
	requests *web.Port
	access   *access.Access    // nil while there is no secure port
	serving  *identity.Serving // nil while there is no secure port
	servers  []*web.Server
	metrics  *portmetrics.Metrics
	tracer   *tracing.Tracer // nil if tracing is off
	iptables *iptables.Rules // nil if they are not to be made
	oomWatch *host.OOMWatch  // nil if the kernel's log cannot be read

	containers *containerapi.API
	stats      *stats.Source

	podResources *podresources.Server // nil if it cannot be served
}

// newNode creates the ports and the loop that connects them with the core, and starts to listen.
func newNode(s settings, nodeName string, panics *breaker.Breaker) (*node, error) {
	c, ticks := s.config, clock.New()
	n := &node{runner: runner.New(ticks)}
	n.metrics = n.newMetrics(s)
	err := n.startTracing(s, nodeName)
	if err != nil {
		return nil, err
	}
	n.runtime, err = cri.New(cri.Options{
		RuntimeEndpoint: c.ContainerRuntimeEndpoint, ImageEndpoint: c.ImageServiceEndpoint,
		Clock: ticks, Deliver: n.runner.Deliver, Offer: n.runner.Offer,
		Dial: n.runtimeOptions(), Trace: n.operationContext(),
	})
	if err != nil {
		return nil, err
	}
	n.host = host.New(host.Options{Clock: ticks, Deliver: n.runner.Deliver, RootDir: s.rootDir,
		IDs: s.machine.ids, Certificates: n.certificates})
	n.network = network.New(network.Options{Clock: ticks, Deliver: n.runner.Deliver})
	warn := func(problem string) { klog.InfoS(problem, "severity", "warning") }
	n.disk = disk.New(disk.Options{Clock: ticks, Deliver: n.runner.Deliver, Warn: warn})
	n.plugins = plugins.New(plugins.Options{Clock: ticks, Deliver: n.runner.Deliver, Warn: warn,
		Dir: filepath.Join(s.rootDir, "plugins_registry")})
	n.csi = csi.New(csi.Options{Clock: ticks, Deliver: n.runner.Deliver,
		Intercept: n.metrics.CSICalls})
	n.scsi = scsi.New(scsi.Options{Clock: ticks, Deliver: n.runner.Deliver})
	n.images = credentials.New(credentials.Options{Clock: ticks, Deliver: n.runner.Deliver})
	if s.api.kubeconfig != "" {
		if n.api, err = newAPI(s.api, c, nodeName, ticks, n.traceRequests(),
			n.runner.Deliver); err != nil {
			n.close()
			return nil, err
		}
	}
	logs := &log.Port{}
	n.stats = n.newStats(s, nodeName)
	n.containers = n.newContainerAPI(s)
	n.requests = web.New(web.Options{
		Offer: n.runner.OfferRequest, CheckLog: logs.Check, Gatherer: n.metrics,
		ServerMetrics: n.serverMetrics, Routes: web.Routes{n.stats.Register},
		Loop: func() ([]world.Metric, loop.Histogram) {
			return n.loop.Metrics(), n.loop.StepDurations()
		},
		LoopCheck: func() world.Check { return n.loop.Check() },
	})
	n.loop = loop.New(loop.Options{
		Core: withBreaker(core.New(core.Options{
			Config: c, NodeName: nodeName, RootDir: s.rootDir, ManifestPath: c.StaticPodPath,
			LinksDir: s.linksDir, HasAPIServer: n.api != nil, Node: s.node, IDs: s.ids,
			Credentials: s.credentials,
		}), panics),
		Ports:     n.ports(logs),
		Stopwatch: ticks.Elapsed, Observe: n.observer(),
	})
	if err := n.listen(s, nodeName); err != nil {
		n.close()
		return nil, err
	}
	n.servePodResources(s)
	n.iptables = keepIPTables(c)
	n.oomWatch = watchOOM(n.runner.Offer)
	return n, nil
}

// ports returns the ports by the names in the core's effects. Without an API server the core issues
// no request to one, and its events are written to the log.
func (n *node) ports(logs *log.Port) map[world.PortName]world.Port {
	ports := map[world.PortName]world.Port{
		world.PortCRI: n.runtime, world.PortFS: n.disk,
		world.PortHost: n.host, world.PortNetwork: n.network, world.PortPlugins: n.plugins,
		world.PortCSI: n.csi, world.PortSCSI: n.scsi,
		world.PortCredentials: n.images,
		world.PortRequests:    n.requests, world.PortLog: logs, world.PortAPI: logs,
	}
	if n.api != nil {
		ports[world.PortAPI] = n.api.port
	}
	return ports
}

// listen opens the enabled ports of the HTTP API.
func (n *node) listen(s settings, nodeName string) error {
	c := s.config
	if port := int(*c.HealthzPort); port != 0 {
		server, err := web.Listen("healthz", c.HealthzBindAddress, port, n.requests.Health())
		if err != nil {
			return err
		}
		n.servers = append(n.servers, server)
	}
	if port := int(c.ReadOnlyPort); port != 0 {
		server, err := web.Listen("read-only", c.Address, port,
			n.traceReadOnly(n.metrics.Handler(portmetrics.ReadOnly, n.requests.ReadOnly())))
		if err != nil {
			return err
		}
		n.servers = append(n.servers, server)
	}
	if *c.EnableServer {
		return n.serveSecurePort(s, nodeName)
	}
	return nil
}

// close closes the servers and the ports. It returns after closeTimeout at the latest: a call that
// has not ended then ends with the process.
func (n *node) close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, server := range n.servers {
			logError(server.Close())
		}
		logError(n.podResources.Close())
		if n.containers != nil {
			n.containers.Close()
			n.stats.Close()
		}
		logError(n.runtime.Close())
		n.disk.Close()
		n.host.Close()
		n.network.Close()
		n.plugins.Close()
		n.csi.Close()
		n.images.Close()
		n.scsi.Close()
		n.iptables.Close()
		logError(n.oomWatch.Close())
		if n.serving != nil {
			n.serving.Close()
		}
		n.api.close()
		n.closeTracer()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
		klog.InfoS("a call in flight did not end before the shutdown", "timeout", closeTimeout)
	}
}

// notify sends a state to systemd (sd_notify), if systemd has started the agent.
func notify(state string) error {
	_, err := daemon.SdNotify(false, state)
	return err
}

func logError(err error) {
	if err != nil {
		klog.ErrorS(err, "notifying systemd or closing a server failed")
	}
}
