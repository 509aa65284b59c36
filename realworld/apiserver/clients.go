package apiserver

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"seedlet.dev/realworld/identity"
	"seedlet.dev/world"
)

// client is a client of the API server: a connection with a rate limit.
type client struct {
	conn    *identity.Connection
	rest    map[schema.GroupVersion]rest.Interface
	limiter flowcontrol.RateLimiter
}

// clients are the clients of a port. Those of objects, statuses and events share one connection.
type clients struct{ objects, statuses, events, heartbeats *client }

func newClients(opts Options) (*clients, error) {
	shared, err := newClient(opts)
	if err != nil {
		return nil, err
	}
	heartbeats, err := newClient(opts)
	if err != nil {
		shared.conn.Close()
		return nil, err
	}
	return &clients{
		objects:    shared.withLimit(opts.QPS, opts.Burst),
		statuses:   shared.withLimit(opts.QPS, opts.Burst),
		events:     shared.withLimit(opts.EventQPS, opts.EventBurst),
		heartbeats: heartbeats.withLimit(0, 0),
	}, nil
}

// newClient returns a client with a connection of its own, and no rate limit yet.
func newClient(opts Options) (*client, error) {
	conn, err := opts.Identity.Connect()
	if err != nil {
		return nil, err
	}
	c := &client{conn: conn, rest: map[schema.GroupVersion]rest.Interface{}}
	for _, r := range resources {
		if c.rest[r.version] != nil {
			continue
		}
		config := opts.Identity.Config()
		config.GroupVersion = &r.version
		config.APIPath = "/apis"
		if r.version.Group == "" {
			config.APIPath = "/api"
		}
		config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
		config.ContentType = opts.ContentType
		if config.ContentType == runtime.ContentTypeProtobuf {
			config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
		}
		config.QPS = -1 // waitForLimit has the rate limit
		client, err := rest.RESTClientForConfigAndClient(config, conn.Client)
		if err != nil {
			conn.Close()
			return nil, err
		}
		c.rest[r.version] = client
	}
	return c, nil
}

// withLimit returns a copy of the client with a rate limit; zero is no limit.
func (c client) withLimit(qps float32, burst int) *client {
	c.limiter = flowcontrol.NewFakeAlwaysRateLimiter()
	if qps > 0 {
		c.limiter = flowcontrol.NewTokenBucketRateLimiter(qps, max(burst, 1))
	}
	return &c
}

// waitForLimit blocks until the rate limit permits a request. It fails at once if that would be
// after the deadline.
func (c *client) waitForLimit(ctx context.Context, op string) error {
	if err := c.limiter.Wait(ctx); err != nil {
		return world.Errorf(world.KindCanceled, op, "waited for the limit of requests: %v", err)
	}
	return nil
}

// forRequest returns the client that an operation uses.
func (c *clients) forRequest(request any) *client {
	resource, ok := request.(world.ObjectOperation)
	if !ok {
		return c.objects
	}
	switch resource.TargetResource() {
	case world.ResourceNodes, world.ResourceLeases:
		return c.heartbeats
	}
	if patch, ok := request.(*world.PatchObject); ok && patch.Status {
		return c.statuses
	}
	return c.objects
}

// reconnect closes all connections; the next request opens a new one.
func (c *clients) reconnect() {
	c.heartbeats.conn.CloseAll()
	c.objects.conn.CloseAll()
}

func (c *clients) close() {
	c.heartbeats.conn.Close()
	c.objects.conn.Close()
}
