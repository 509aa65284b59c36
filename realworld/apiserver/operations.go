package apiserver

import (
	"context"
	"fmt"
	"reflect"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"seedlet.dev/world"
)

// target is the object that an operation is on.
type target struct {
	resource        world.Resource
	namespace, name string
}

// operate does what an effect asks for. On an error the returned body means nothing.
func (w *way) operate(ctx context.Context, request any) (any, error) {
	op := world.Call(request)
	switch m := request.(type) {
	case *world.GetObject:
		return w.store(ctx, op, "GET", target{m.Resource, m.Namespace, m.Name}, nil)
	case *world.CreateObject:
		return w.send(ctx, op, "POST", m.Object)
	case *world.UpdateObject:
		return w.send(ctx, op, "PUT", m.Object)
	case *world.PatchObject:
		return w.store(ctx, op, "PATCH", target{m.Resource, m.Namespace, m.Name},
			func(r *rest.Request) {
				if m.Status {
					r.SubResource("status")
				}
				r.SetHeader("Content-Type", string(types.StrategicMergePatchType))
				r.Body([]byte(m.Patch))
			})
	case *world.DeleteObject:
		return w.remove(ctx, op, m)
	case *world.CreateToken:
		return w.token(ctx, op, m)
	default:
		panic(fmt.Sprintf("apiserver: cannot carry out %T", request))
	}
}

// send makes or replaces an object.
func (w *way) send(ctx context.Context, op, verb string, object world.Object) (any, error) {
	r, meta := object.Get()
	switch {
	case meta == nil:
		return nil, world.Errorf(world.KindInvalid, op, "no object")
	case verb == "POST" && meta.GetResourceVersion() != "": // the server calls that its own fault
		return nil, world.Errorf(world.KindInvalid, op, "a new object has no resource version")
	}
	return w.store(ctx, op, verb, target{r, meta.GetNamespace(), meta.GetName()},
		func(r *rest.Request) { r.Body(meta.(runtime.Object)) })
}

// store makes a request that is answered by an object.
func (w *way) store(ctx context.Context, op, verb string, on target,
	add func(*rest.Request)) (any, error) {
	result, err := w.do(ctx, op, verb, on, add)
	if err != nil {
		return nil, err
	}
	answer, err := answerOf(op, result, resources[on.resource].object())
	if err != nil {
		return nil, err
	}
	object, err := objectOf(answer)
	if err != nil {
		return nil, world.Errorf(world.KindInternal, op, "the answer: %v", err)
	}
	return &world.ObjectRead{Object: object}, nil
}

// answerOf reads an answer, which is to be of the same type as the example. Whatever else is
// between here and the server must not be taken for it: an empty object is a list of nothing.
func answerOf(op string, result rest.Result, example runtime.Object) (runtime.Object, error) {
	answer, err := result.Get()
	if err != nil {
		return nil, world.Errorf(world.KindInternal, op, "the answer: %v", err)
	}
	if reflect.TypeOf(answer) != reflect.TypeOf(example) {
		return nil, world.Errorf(world.KindInternal, op, "the answer is a %T, not a %T", answer,
			example)
	}
	return answer, nil
}

func (w *way) remove(ctx context.Context, op string, m *world.DeleteObject) (any, error) {
	options := &metav1.DeleteOptions{GracePeriodSeconds: m.GracePeriodSeconds}
	if uid := types.UID(m.UID); uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	_, err := w.do(ctx, op, "DELETE", target{m.Resource, m.Namespace, m.Name},
		func(r *rest.Request) { r.Body(options) })
	return &world.Done{}, err
}

// do makes a request, once, and returns its answer if it is no error.
func (w *way) do(ctx context.Context, op, verb string, on target,
	add func(*rest.Request)) (rest.Result, error) {
	if err := checkName(op, on.resource, on.namespace, on.name); err != nil {
		return rest.Result{}, err
	}
	known := resources[on.resource]
	request := w.clients[known.version].Verb(verb).MaxRetries(0).
		NamespaceIfScoped(on.namespace, known.namespaced).Resource(string(on.resource))
	if verb != "POST" {
		request.Name(on.name)
	}
	if add != nil {
		add(request)
	}
	return w.doOnce(ctx, op, request)
}

func (w *way) doOnce(ctx context.Context, op string, request *rest.Request) (rest.Result, error) {
	if err := request.Error(); err != nil {
		return rest.Result{}, world.Errorf(world.KindInvalid, op, "%v", err)
	}
	if err := w.wait(ctx, op); err != nil {
		return rest.Result{}, err
	}
	result := request.Do(ctx)
	return result, result.Error()
}

// token asks for a token of a service account.
func (w *way) token(ctx context.Context, op string, m *world.CreateToken) (any, error) {
	if m.Namespace == "" || m.ServiceAccount == "" {
		return nil, world.Errorf(world.KindInvalid, op, "no service account")
	}
	request := w.clients[v1.SchemeGroupVersion].Post().MaxRetries(0).
		Namespace(m.Namespace).Resource("serviceaccounts").Name(m.ServiceAccount).
		SubResource("token").Body(&authenticationv1.TokenRequest{Spec: m.Spec})
	result, err := w.doOnce(ctx, op, request)
	if err != nil {
		return nil, err
	}
	answered, err := answerOf(op, result, &authenticationv1.TokenRequest{})
	if err != nil {
		return nil, err
	}
	answer := answered.(*authenticationv1.TokenRequest)
	if answer.Status.Token == "" {
		return nil, world.Errorf(world.KindInternal, op, "the answer has no token")
	}
	return &world.TokenCreated{
		Token: answer.Status.Token, Expires: answer.Status.ExpirationTimestamp.UTC(),
	}, nil
}
