package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"seedlet.dev/core"
	"seedlet.dev/core/manifest"
	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/containerapi"
	"seedlet.dev/realworld/cri"
	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/host"
	"seedlet.dev/realworld/identity"
	"seedlet.dev/realworld/log"
	"seedlet.dev/realworld/measure"
	"seedlet.dev/realworld/network"
	"seedlet.dev/realworld/podresources"
	"seedlet.dev/realworld/runner"
	"seedlet.dev/realworld/stats"
	"seedlet.dev/realworld/tracing"
	"seedlet.dev/realworld/web"
	"seedlet.dev/world"
	"seedlet.dev/world/loop"
)

// closeTimeout is how long the ports may take to end. A call that hangs in the kernel must not
// keep the process.
const closeTimeout = 5 * time.Second

// run runs the agent until the context is done. It fails only before the agent has begun. The
// container runtime may be away, then and later.
func run(ctx context.Context, s settings) error {
	boot, err := host.Boot("/", s.rootDir)
	if err != nil {
		return err
	}
	nodeName, err := nodeName(s.hostnameOverride, boot.Hostname)
	if err != nil {
		return err
	}
	if err := log.Configure(&s.config.Logging); err != nil {
		return err
	}
	defer klog.Flush()
	klog.InfoS("starting", "version", version, "node", nodeName, "rootDir", s.rootDir,
		"staticPodPath", s.config.StaticPodPath,
		"staticPodURL", manifest.Address(s.config.StaticPodURL),
		"containerRuntimeEndpoint", s.config.ContainerRuntimeEndpoint)
	for _, warning := range s.warnings {
		klog.InfoS(warning, "severity", "warning")
	}
	every, err := watchdogInterval()
	if err != nil {
		return err
	}
	n, err := newNode(s, nodeName)
	if err != nil {
		return err
	}
	defer n.close()
	notify(daemon.SdNotifyReady)
	n.watched(ctx, every, func() { n.runner.Run(ctx, n.loop, boot) })
	notify(daemon.SdNotifyStopping)
	klog.InfoS("ended; what runs is left running", "reason", context.Cause(ctx))
	return nil
}

// watched runs the agent, and meanwhile tells systemd's watchdog how it is.
func (n *node) watched(ctx context.Context, every time.Duration, run func()) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	if every > 0 {
		work.Go(func() { feed(ctx, every, n.requests.Healthy, notify) })
	}
	run()
	cancel()
	work.Wait()
}

// nodeName is the override, or else the host name: lower case, and a name that the API allows.
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

// node is the agent with everything around it.
type node struct {
	runner   *runner.Runner
	loop     *loop.Loop
	runtime  *cri.Port
	disk     *disk.Port
	host     *host.Port
	network  *network.Port
	api      *api // nil without an API server
	requests *web.Port
	serving  *identity.Serving // nil while there is no secure port
	servers  []*web.Server
	numbers  *measure.Numbers
	tracer   *tracing.Tracer // nil if nobody traces

	containers *containerapi.API
	stats      *stats.Source

	podResources *podresources.Server // nil if it cannot be served
}

// newNode makes the ports and the loop that joins them with the core, and begins to listen.
func newNode(s settings, nodeName string) (*node, error) {
	c, ticks := s.config, clock.New()
	n := &node{runner: runner.New(ticks)}
	n.numbers = n.measured(s)
	err := n.trace(s, nodeName)
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
	n.host = host.New(host.Options{Clock: ticks, Deliver: n.runner.Deliver})
	n.network = network.New(network.Options{Clock: ticks, Deliver: n.runner.Deliver})
	n.disk = disk.New(disk.Options{
		Clock: ticks, Deliver: n.runner.Deliver,
		Warn: func(problem string) { klog.InfoS(problem, "severity", "warning") },
	})
	if s.api.kubeconfig != "" {
		if n.api, err = newAPI(s.api, c, nodeName, ticks, n.runner.Deliver); err != nil {
			n.close()
			return nil, err
		}
	}
	logs := &log.Port{}
	n.stats = n.statistics(s, nodeName)
	n.containers = n.containerAPI(s)
	n.requests = web.New(web.Options{
		Offer: n.runner.Offer, CheckLog: logs.Check, Measured: n.numbers,
		Counted: n.containers.Metrics, Routes: web.Routes{n.stats.Register},
		Loop: func() ([]world.Metric, loop.Histogram) { return n.loop.Metrics(), n.loop.Steps() },
	})
	n.loop = loop.New(loop.Options{
		Core: runner.Witness{Died: died, Core: core.New(core.Options{
			Config: c, NodeName: nodeName, RootDir: s.rootDir, ManifestPath: c.StaticPodPath,
			LinksDir: s.linksDir, API: n.api != nil, Node: s.node,
		})},
		Ports:     n.ports(logs),
		Stopwatch: ticks.Elapsed, Observe: n.observer(),
	})
	if err := n.listen(s, nodeName); err != nil {
		n.close()
		return nil, err
	}
	n.servePodResources(s)
	return n, nil
}

// ports are those that the core's effects name. Without an API server it asks nothing of one, and
// events are log lines.
func (n *node) ports(logs *log.Port) map[world.PortName]world.Port {
	ports := map[world.PortName]world.Port{
		world.PortCRI: n.runtime, world.PortFS: n.disk,
		world.PortHost: n.host, world.PortNetwork: n.network,
		world.PortRequests: n.requests, world.PortLog: logs, world.PortAPI: logs,
	}
	if n.api != nil {
		ports[world.PortAPI] = n.api.port
	}
	return ports
}

// listen opens the ports of the HTTP API that are not turned off.
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
			n.numbers.Handler(measure.ReadOnly, n.requests.ReadOnly()))
		if err != nil {
			return err
		}
		n.servers = append(n.servers, server)
	}
	if *c.EnableServer {
		return n.serveSecurely(s, nodeName)
	}
	return nil
}

// close ends the servers and the ports. What cannot end in time ends with the process.
func (n *node) close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		for _, server := range n.servers {
			complain(server.Close())
		}
		complain(n.podResources.Close())
		if n.containers != nil {
			n.containers.Close()
			n.stats.Close()
		}
		complain(n.runtime.Close())
		n.disk.Close()
		n.host.Close()
		n.network.Close()
		if n.serving != nil {
			n.serving.Close()
		}
		n.api.close()
		n.closeTracer()
	}()
	select {
	case <-closed:
	case <-time.After(closeTimeout):
		klog.InfoS("a call has not ended; leaving it", "waited", closeTimeout)
	}
}

// died notes the event at which an invariant was found broken; its panic follows. The event's
// body stays out of the log: it may hold a pod's secrets.
func died(ev world.Event) {
	var err error // of the event; a nil *world.Error is no nil error
	if ev.Err != nil {
		err = ev.Err
	}
	klog.ErrorS(err, "the agent dies of an event", "event", world.BodyName(ev.Body), "op", ev.Op,
		"time", ev.Time)
	klog.Flush()
}

// notify tells systemd how far the agent is, if systemd has started it.
func notify(state string) {
	_, err := daemon.SdNotify(false, state)
	complain(err)
}

func complain(err error) {
	if err != nil {
		klog.ErrorS(err, "cannot end or announce the agent in order")
	}
}
