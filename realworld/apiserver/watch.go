package apiserver

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"seedlet.dev/world"
)

const (
	// A node has few watches, so it can retry sooner than client-go's 30 s. The reflector adds a
	// jitter of up to 100%, so that the nodes do not retry at the same time.
	retryMinDefault = 800 * time.Millisecond
	retryMaxDefault = 15 * time.Second
	// listTimeout bounds a list, because the reflector sets no deadline.
	listTimeout = time.Minute
	// retryAfterMax bounds the delay that a server can demand before a retry.
	retryAfterMax = time.Minute
)

// watch is one watch. It is both the server and the store of a client-go reflector: as the server
// it observes failing requests, as the store it receives the objects, and it delivers both to the
// core.
//
// The reflector implements the protocol: streaming lists where the server has them, pages,
// bookmarks, and resource versions that are too old or too new. Three things differ here. A list is
// never served from a possibly outdated cache of the server. A watch that cannot be opened is
// always followed by a list, so that the core knows when the watch works again. And a Retry-After
// of the server is obeyed.
type watch struct {
	spec         world.WatchObjects
	node         string
	client       *client
	deliver      func(world.Event)
	ctx          context.Context // done when the watch is ended
	reportedKind world.ErrorKind // the kind that was reported last; empty after a list
}

func (p *Port) startWatch(m *world.WatchObjects) {
	info, ok := resources[m.Resource]
	if !ok || p.watches[m.Watch] != nil {
		panic(fmt.Sprintf("apiserver: watch %d of %q is of no resource, or there already",
			m.Watch, m.Resource))
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.watches[m.Watch] = cancel
	p.operations.Go(func(closed context.Context) {
		defer context.AfterFunc(closed, cancel)()
		// The core receives failures as events, and logs each once.
		silent := logr.Discard()
		ctx := klog.NewContext(ctx, silent)
		w := &watch{
			spec: *m, node: p.opts.NodeName, client: p.clients.objects, deliver: p.opts.Deliver, ctx: ctx,
		}
		backoff := p.watchBackoff()
		lister := &cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.openStream}
		cache.NewReflectorWithOptions(lister, info.newObject(), w, cache.ReflectorOptions{
			Name: string(m.Resource), Logger: &silent, Backoff: &backoff,
		}).RunWithContext(ctx)
	})
}

// watchBackoff returns the backoff between the attempts of a failing watch.
func (p *Port) watchBackoff() wait.Backoff {
	b := wait.Backoff{
		Duration: p.opts.RetryMin, Cap: p.opts.RetryMax, Factor: 2, Jitter: 1, Steps: 32,
	}
	if b.Duration == 0 {
		b.Duration = retryMinDefault
	}
	if b.Cap == 0 {
		b.Cap = retryMaxDefault
	}
	return b
}

// request returns a request for the watched objects.
func (w *watch) request(opts *metav1.ListOptions) *rest.Request {
	var terms []fields.Selector
	switch w.spec.Resource {
	case world.ResourcePods, world.ResourcePodCertificateRequests:
		terms = append(terms, fields.OneTermEqualSelector("spec.nodeName", w.node))
	}
	if w.spec.Name != "" { // a node may read no others, so a list must have the selector too
		terms = append(terms, fields.OneTermEqualSelector("metadata.name", w.spec.Name))
	}
	opts.FieldSelector = fields.AndSelectors(terms...).String()
	info := resources[w.spec.Resource]
	return w.client.rest[info.version].Get().MaxRetries(0).
		NamespaceIfScoped(w.spec.Namespace, info.namespaced).
		Resource(string(w.spec.Resource)).VersionedParams(opts, scheme.ParameterCodec)
}

// list is the list function of the reflector's cache.ListWatch.
func (w *watch) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.ResourceVersion == "0" { // would be served from the server's cache, however old
		opts.ResourceVersion = ""
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := w.client.waitForLimit(ctx, "WatchObjects"); err != nil {
		return nil, w.reportFailure(ctx, err)
	}
	result := w.request(&opts).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, w.reportFailure(ctx, err)
	}
	list, err := decodeResponse("WatchObjects", result, resources[w.spec.Resource].newList())
	if err != nil {
		return nil, w.reportFailure(ctx, err)
	}
	return list, nil
}

// openStream is the watch function of the reflector's cache.ListWatch.
func (w *watch) openStream(ctx context.Context, opts metav1.ListOptions) (
	apiwatch.Interface, error) {
	opts.Watch = true
	stream, err := w.request(&opts).Watch(ctx)
	switch {
	case err == nil:
		return stream, nil
	case opts.SendInitialEvents != nil:
		return nil, w.retryError(ctx, err) // the reflector lists next, which reports the failure
	}
	return nil, w.reportFailure(ctx, err)
}

// reportFailure delivers a WatchFailing, unless an error of the same kind was the last one reported
// since a list, or the error only requires a new list.
func (w *watch) reportFailure(ctx context.Context, err error) error {
	if isStaleVersion(err) || w.ctx.Err() != nil {
		return err
	}
	worldErr := toWorldError(ctx, "WatchObjects", err)
	if worldErr.Kind != w.reportedKind {
		w.reportedKind = worldErr.Kind
		w.deliver(world.Event{Body: &world.WatchFailing{Watch: w.spec.Watch, Err: worldErr}})
	}
	return w.retryError(ctx, err)
}

// retryError returns an error of a type that the reflector does not know, so that it retries with a
// list. It first waits for the server's Retry-After, if any.
func (w *watch) retryError(ctx context.Context, err error) error {
	if isStaleVersion(err) {
		return err
	}
	worldErr := toWorldError(ctx, "WatchObjects", err)
	if worldErr.RetryAfter > 0 {
		select {
		case <-w.ctx.Done():
		case <-time.After(min(worldErr.RetryAfter, retryAfterMax)):
		}
	}
	return worldErr
}

// isStaleVersion reports whether the only problem is that the server does not have the requested
// resource version, so that a new list helps.
func isStaleVersion(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// Replace implements cache.ReflectorStore.
func (w *watch) Replace(items []any, _ string) error {
	listed := &world.ObjectsListed{Watch: w.spec.Watch, Objects: []world.Object{}}
	for _, item := range items {
		object, err := objectOf(item.(runtime.Object))
		if err != nil {
			return err
		}
		listed.Objects = append(listed.Objects, object)
	}
	slices.SortFunc(listed.Objects, func(a, b world.Object) int {
		_, am := a.Meta()
		_, bm := b.Meta()
		return cmp.Or(cmp.Compare(am.GetNamespace(), bm.GetNamespace()),
			cmp.Compare(am.GetName(), bm.GetName()))
	})
	w.reportedKind = ""
	w.send(listed)
	return nil
}

// Add implements cache.ReflectorStore.
func (w *watch) Add(item any) error { return w.sendChange(item) }

// Update implements cache.ReflectorStore.
func (w *watch) Update(item any) error { return w.sendChange(item) }

func (w *watch) sendChange(item any) error {
	object, err := objectOf(item.(runtime.Object))
	if err == nil {
		w.send(&world.ObjectChanged{Watch: w.spec.Watch, Object: object})
	}
	return err
}

// Delete implements cache.ReflectorStore.
func (w *watch) Delete(item any) error {
	object, err := objectOf(item.(runtime.Object))
	if err == nil {
		w.send(&world.ObjectGone{Watch: w.spec.Watch, Object: object})
	}
	return err
}

// Resync implements cache.ReflectorStore; it is never called.
func (w *watch) Resync() error { return nil }

// send delivers an event, and blocks until there is room for it, because no event may be dropped.
// Meanwhile the server's stream is not read, and in the end the server closes it, which leads to a
// list.
func (w *watch) send(body any) {
	if w.ctx.Err() == nil {
		w.deliver(world.Event{Body: body})
	}
}
