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
	// A node has few watches, so it can try again sooner than client-go's 30 s; a reflector adds
	// up to as much again, so that not all nodes come at once.
	retryMinDefault = 800 * time.Millisecond
	retryMaxDefault = 15 * time.Second
	// listTimeout is how long a list may take, which has no deadline from elsewhere.
	listTimeout = time.Minute
	// retryAfterMax bounds how long a server can keep a watch from trying again.
	retryAfterMax = time.Minute
)

// watch is one watch: what a reflector of client-go takes for a server, and for a store. The one
// sees how requests fail, the other what there is, and both tell it.
//
// The reflector knows the protocol: streaming lists where the server has them, pages, bookmarks,
// versions that are too old or too new. Three things are done differently here. It never lists
// what a server's cache may have been keeping for a while. A watch that cannot be opened is
// always followed by a list, so that the core knows that it sees again. And a server that says
// when to come again is heeded.
type watch struct {
	about   world.WatchObjects
	node    string
	way     *way
	deliver func(world.Event)
	ctx     context.Context // done when the watch is ended
	failing world.ErrorKind // the kind that was told last; empty since the last list
}

func (p *Port) watch(m *world.WatchObjects) {
	known, ok := resources[m.Resource]
	if !ok || p.watches[m.Watch] != nil {
		panic(fmt.Sprintf("apiserver: watch %d of %q is of no resource, or there already",
			m.Watch, m.Resource))
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.watches[m.Watch] = cancel
	p.flights.Go(func(closed context.Context) {
		defer context.AfterFunc(closed, cancel)()
		// What goes wrong is told to the core, which logs it once.
		silent := logr.Discard()
		ctx := klog.NewContext(ctx, silent)
		w := &watch{
			about: *m, node: p.opts.NodeName, way: p.ways.objects, deliver: p.opts.Deliver, ctx: ctx,
		}
		retry := p.retry()
		server := &cache.ListWatch{ListWithContextFunc: w.list, WatchFuncWithContext: w.open}
		cache.NewReflectorWithOptions(server, known.object(), w, cache.ReflectorOptions{
			Name: string(m.Resource), Logger: &silent, Backoff: &retry,
		}).RunWithContext(ctx)
	})
}

// retry is how long a watch waits before it tries again.
func (p *Port) retry() wait.Backoff {
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

// request is a request for what the watch is about.
func (w *watch) request(opts *metav1.ListOptions) *rest.Request {
	var terms []fields.Selector
	if w.about.Resource == world.ResourcePods {
		terms = append(terms, fields.OneTermEqualSelector("spec.nodeName", w.node))
	}
	if w.about.Name != "" { // a node may see no others, so a list must say so too
		terms = append(terms, fields.OneTermEqualSelector("metadata.name", w.about.Name))
	}
	opts.FieldSelector = fields.AndSelectors(terms...).String()
	known := resources[w.about.Resource]
	return w.way.clients[known.version].Get().MaxRetries(0).
		NamespaceIfScoped(w.about.Namespace, known.namespaced).
		Resource(string(w.about.Resource)).VersionedParams(opts, scheme.ParameterCodec)
}

// list is the server for the reflector.
func (w *watch) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	if opts.ResourceVersion == "0" { // whatever the server's cache has
		opts.ResourceVersion = ""
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	if err := w.way.wait(ctx, "WatchObjects"); err != nil {
		return nil, w.failed(ctx, err)
	}
	result := w.request(&opts).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, w.failed(ctx, err)
	}
	list, err := answerOf("WatchObjects", result, resources[w.about.Resource].list())
	if err != nil {
		return nil, w.failed(ctx, err)
	}
	return list, nil
}

// open is the server for the reflector.
func (w *watch) open(ctx context.Context, opts metav1.ListOptions) (apiwatch.Interface, error) {
	opts.Watch = true
	stream, err := w.request(&opts).Watch(ctx)
	switch {
	case err == nil:
		return stream, nil
	case opts.SendInitialEvents != nil:
		return nil, w.opaque(ctx, err) // the reflector lists next, and that will tell
	}
	return nil, w.failed(ctx, err)
}

// failed tells that the watch is failing, unless the core knows, or it only has to list again.
func (w *watch) failed(ctx context.Context, err error) error {
	if stale(err) || w.ctx.Err() != nil {
		return err
	}
	told := mapped(ctx, "WatchObjects", err)
	if told.Kind != w.failing {
		w.failing = told.Kind
		w.deliver(world.Event{Body: &world.WatchFailing{Watch: w.about.Watch, Err: told}})
	}
	return w.opaque(ctx, err)
}

// opaque is an error that the reflector knows nothing of, so that it comes back with a list. Where
// the server has said when to come again, that is waited for.
func (w *watch) opaque(ctx context.Context, err error) error {
	if stale(err) {
		return err
	}
	told := mapped(ctx, "WatchObjects", err)
	if told.RetryAfter > 0 {
		select {
		case <-w.ctx.Done():
		case <-time.After(min(told.RetryAfter, retryAfterMax)):
		}
	}
	return told
}

// stale reports whether the server only does not know the version that it was asked from.
func stale(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// Replace is the store for the reflector.
func (w *watch) Replace(items []any, _ string) error {
	listed := &world.ObjectsListed{Watch: w.about.Watch, Objects: []world.Object{}}
	for _, item := range items {
		object, err := objectOf(item.(runtime.Object))
		if err != nil {
			return err
		}
		listed.Objects = append(listed.Objects, object)
	}
	slices.SortFunc(listed.Objects, func(a, b world.Object) int {
		_, am := a.Get()
		_, bm := b.Get()
		return cmp.Or(cmp.Compare(am.GetNamespace(), bm.GetNamespace()),
			cmp.Compare(am.GetName(), bm.GetName()))
	})
	w.failing = ""
	w.tell(listed)
	return nil
}

// Add is the store for the reflector.
func (w *watch) Add(item any) error { return w.changed(item) }

// Update is the store for the reflector.
func (w *watch) Update(item any) error { return w.changed(item) }

func (w *watch) changed(item any) error {
	object, err := objectOf(item.(runtime.Object))
	if err == nil {
		w.tell(&world.ObjectChanged{Watch: w.about.Watch, Object: object})
	}
	return err
}

// Delete is the store for the reflector.
func (w *watch) Delete(item any) error {
	object, err := objectOf(item.(runtime.Object))
	if err == nil {
		w.tell(&world.ObjectGone{Watch: w.about.Watch, Object: object})
	}
	return err
}

// Resync is the store for the reflector, which is never asked to.
func (w *watch) Resync() error { return nil }

// tell waits until there is room for the event: nothing may be left out. Meanwhile the server
// waits too, and in the end it closes the watch, which leads to a list.
func (w *watch) tell(body any) {
	if w.ctx.Err() == nil {
		w.deliver(world.Event{Body: body})
	}
}
