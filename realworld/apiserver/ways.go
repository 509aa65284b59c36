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

// way is a way to the server: a connection, and a limit to what goes over it in a second.
type way struct {
	conn    *identity.Connection
	clients map[schema.GroupVersion]rest.Interface
	limit   flowcontrol.RateLimiter
}

// ways are all there are. Those of objects, statuses and events share one connection.
type ways struct{ objects, statuses, events, heartbeats *way }

func newWays(opts Options) (*ways, error) {
	shared, err := newWay(opts)
	if err != nil {
		return nil, err
	}
	heartbeats, err := newWay(opts)
	if err != nil {
		shared.conn.Close()
		return nil, err
	}
	return &ways{
		objects:    shared.limited(opts.QPS, opts.Burst),
		statuses:   shared.limited(opts.QPS, opts.Burst),
		events:     shared.limited(opts.EventQPS, opts.EventBurst),
		heartbeats: heartbeats.limited(0, 0),
	}, nil
}

// newWay makes a way with a connection of its own, and no limit yet.
func newWay(opts Options) (*way, error) {
	conn, err := opts.Identity.Connect()
	if err != nil {
		return nil, err
	}
	w := &way{conn: conn, clients: map[schema.GroupVersion]rest.Interface{}}
	for _, r := range resources {
		if w.clients[r.version] != nil {
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
		config.QPS = -1 // the limit is the way's own: see wait
		client, err := rest.RESTClientForConfigAndClient(config, conn.Client)
		if err != nil {
			conn.Close()
			return nil, err
		}
		w.clients[r.version] = client
	}
	return w, nil
}

// limited is the same way with a limit; zero is none.
func (w way) limited(qps float32, burst int) *way {
	w.limit = flowcontrol.NewFakeAlwaysRateLimiter()
	if qps > 0 {
		w.limit = flowcontrol.NewTokenBucketRateLimiter(qps, max(burst, 1))
	}
	return &w
}

// wait waits until the limit lets a request through. It fails at once if that will not be before
// the deadline.
func (w *way) wait(ctx context.Context, op string) error {
	if err := w.limit.Wait(ctx); err != nil {
		return world.Errorf(world.KindCanceled, op, "waited for the limit of requests: %v", err)
	}
	return nil
}

// of is the way that an operation takes.
func (w *ways) of(request any) *way {
	on, ok := request.(world.OnObjects)
	if !ok {
		return w.objects
	}
	switch on.Of() {
	case world.ResourceNodes, world.ResourceLeases:
		return w.heartbeats
	}
	if patch, ok := request.(*world.PatchObject); ok && patch.Status {
		return w.statuses
	}
	return w.objects
}

// reconnect closes all connections; the next request makes a new one.
func (w *ways) reconnect() {
	w.heartbeats.conn.CloseAll()
	w.objects.conn.CloseAll()
}

func (w *ways) close() {
	w.heartbeats.conn.Close()
	w.objects.conn.Close()
}
