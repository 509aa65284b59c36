package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"seedlet.dev/core"
	"seedlet.dev/core/manifest"
	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/cri"
	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/host"
	"seedlet.dev/realworld/log"
	"seedlet.dev/realworld/measure"
	"seedlet.dev/realworld/network"
	"seedlet.dev/realworld/podresources"
	"seedlet.dev/realworld/runner"
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
	n, err := newNode(s, nodeName)
	if err != nil {
		return err
	}
	defer n.close()
	notify(daemon.SdNotifyReady)
	n.runner.Run(ctx, n.loop, boot)
	notify(daemon.SdNotifyStopping)
	klog.InfoS("ended; what runs is left running", "reason", context.Cause(ctx))
	return nil
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
	runner  *runner.Runner
	loop    *loop.Loop
	runtime *cri.Port
	disk    *disk.Port
	host    *host.Port
	network *network.Port
	api     *api // nil without an API server
	servers []*web.Server
	numbers *measure.Numbers
	tracer  *tracing.Tracer // nil if nobody traces

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
	requests := web.New(web.Options{
		Offer: n.runner.Offer, CheckLog: logs.Check, Measured: n.numbers,
		Loop: func() ([]world.Metric, loop.Histogram) { return n.loop.Metrics(), n.loop.Steps() },
	})
	n.loop = loop.New(loop.Options{
		Core: runner.Witness{Died: died, Core: core.New(core.Options{
			Config: c, NodeName: nodeName, RootDir: s.rootDir, ManifestPath: c.StaticPodPath,
			LinksDir: s.linksDir, API: n.api != nil, Node: s.node,
		})},
		Ports:     n.ports(requests, logs),
		Stopwatch: ticks.Elapsed, Observe: n.observer(),
	})
	if err := n.listen(s, requests); err != nil {
		n.close()
		return nil, err
	}
	n.servePodResources(s, requests)
	return n, nil
}

// ports are those that the core's effects name. Without an API server it asks nothing of one, and
// events are log lines.
func (n *node) ports(requests *web.Port, logs *log.Port) map[world.PortName]world.Port {
	ports := map[world.PortName]world.Port{
		world.PortCRI: n.runtime, world.PortFS: n.disk,
		world.PortHost: n.host, world.PortNetwork: n.network,
		world.PortRequests: requests, world.PortLog: logs, world.PortAPI: logs,
	}
	if n.api != nil {
		ports[world.PortAPI] = n.api.port
	}
	return ports
}

// listen opens the ports of the HTTP API that are not turned off.
func (n *node) listen(s settings, requests *web.Port) error {
	c := s.config
	if port := int(*c.HealthzPort); port != 0 {
		server, err := web.Listen("healthz", c.HealthzBindAddress, port, requests.Health())
		if err != nil {
			return err
		}
		n.servers = append(n.servers, server)
	}
	if port := int(c.ReadOnlyPort); port != 0 {
		server, err := web.Listen("read-only", c.Address, port,
			n.numbers.Handler(measure.ReadOnly, requests.ReadOnly()))
		if err != nil {
			return err
		}
		n.servers = append(n.servers, server)
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
		complain(n.runtime.Close())
		n.disk.Close()
		n.host.Close()
		n.network.Close()
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
