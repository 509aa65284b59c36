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

// target is the object of an operation.
type target struct {
	resource        world.Resource
	namespace, name string
}

// execute carries out an effect. If it returns an error, its body is meaningless.
func (c *client) execute(ctx context.Context, request any) (any, error) {
	op := world.CallName(request)
	switch m := request.(type) {
	case *world.GetObject:
		return c.requestObject(ctx, op, "GET", target{m.Resource, m.Namespace, m.Name}, nil)
	case *world.CreateObject:
		return c.writeObject(ctx, op, "POST", m.Object)
	case *world.UpdateObject:
		return c.writeObject(ctx, op, "PUT", m.Object)
	case *world.PatchObject:
		return c.requestObject(ctx, op, "PATCH", target{m.Resource, m.Namespace, m.Name},
			func(r *rest.Request) {
				if m.Status {
					r.SubResource("status")
				}
				r.SetHeader("Content-Type", string(types.StrategicMergePatchType))
				r.Body([]byte(m.Patch))
			})
	case *world.DeleteObject:
		return c.deleteObject(ctx, op, m)
	case *world.CreateToken:
		return c.createToken(ctx, op, m)
	default:
		panic(fmt.Sprintf("apiserver: cannot carry out %T", request))
	}
}

// writeObject creates or replaces an object.
func (c *client) writeObject(ctx context.Context, op, verb string,
	object world.Object) (any, error) {
	r, meta := object.Meta()
	switch {
	case meta == nil:
		return nil, world.Errorf(world.KindInvalid, op, "no object")
	case verb == "POST" && meta.GetResourceVersion() != "": // the server responds with a 500
		return nil, world.Errorf(world.KindInvalid, op, "a new object has no resource version")
	}
	return c.requestObject(ctx, op, verb, target{r, meta.GetNamespace(), meta.GetName()},
		func(r *rest.Request) { r.Body(meta.(runtime.Object)) })
}

// requestObject sends a request whose response is an object.
func (c *client) requestObject(ctx context.Context, op, verb string, target target,
	add func(*rest.Request)) (any, error) {
	result, err := c.doRequest(ctx, op, verb, target, add)
	if err != nil {
		return nil, err
	}
	decoded, err := decodeResponse(op, result, resources[target.resource].newObject())
	if err != nil {
		return nil, err
	}
	object, err := objectOf(decoded)
	if err != nil {
		return nil, world.Errorf(world.KindInternal, op, "the answer: %v", err)
	}
	return &world.ObjectRead{Object: object}, nil
}

// decodeResponse decodes a response, which must have the type of the example. A proxy in between
// may respond instead of the server, and its response must be rejected: an empty JSON object would
// decode as an empty list.
func decodeResponse(op string, result rest.Result, example runtime.Object) (runtime.Object, error) {
	decoded, err := result.Get()
	if err != nil {
		return nil, world.Errorf(world.KindInternal, op, "the answer: %v", err)
	}
	if reflect.TypeOf(decoded) != reflect.TypeOf(example) {
		return nil, world.Errorf(world.KindInternal, op, "the answer is a %T, not a %T", decoded,
			example)
	}
	return decoded, nil
}

func (c *client) deleteObject(ctx context.Context, op string, m *world.DeleteObject) (any, error) {
	options := &metav1.DeleteOptions{GracePeriodSeconds: m.GracePeriodSeconds}
	if uid := types.UID(m.UID); uid != "" {
		options.Preconditions = &metav1.Preconditions{UID: &uid}
	}
	_, err := c.doRequest(ctx, op, "DELETE", target{m.Resource, m.Namespace, m.Name},
		func(r *rest.Request) { r.Body(options) })
	return &world.Done{}, err
}

// doRequest sends a request, once, and returns its response unless that is an error.
func (c *client) doRequest(ctx context.Context, op, verb string, target target,
	add func(*rest.Request)) (rest.Result, error) {
	if err := checkName(op, target.resource, target.namespace, target.name); err != nil {
		return rest.Result{}, err
	}
	info := resources[target.resource]
	request := c.rest[info.version].Verb(verb).MaxRetries(0).
		NamespaceIfScoped(target.namespace, info.namespaced).Resource(string(target.resource))
	if verb != "POST" {
		request.Name(target.name)
	}
	if add != nil {
		add(request)
	}
	return c.sendOnce(ctx, op, request)
}

func (c *client) sendOnce(ctx context.Context, op string,
	request *rest.Request) (rest.Result, error) {
	if err := request.Error(); err != nil {
		return rest.Result{}, world.Errorf(world.KindInvalid, op, "%v", err)
	}
	if err := c.waitForLimit(ctx, op); err != nil {
		return rest.Result{}, err
	}
	result := request.Do(ctx)
	return result, result.Error()
}

// createToken requests a service account token.
func (c *client) createToken(ctx context.Context, op string, m *world.CreateToken) (any, error) {
	if m.Namespace == "" || m.ServiceAccount == "" {
		return nil, world.Errorf(world.KindInvalid, op, "no service account")
	}
	request := c.rest[v1.SchemeGroupVersion].Post().MaxRetries(0).
		Namespace(m.Namespace).Resource("serviceaccounts").Name(m.ServiceAccount).
		SubResource("token").Body(&authenticationv1.TokenRequest{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(m.UID)}, Spec: m.Spec})
	result, err := c.sendOnce(ctx, op, request)
	if err != nil {
		return nil, err
	}
	decoded, err := decodeResponse(op, result, &authenticationv1.TokenRequest{})
	if err != nil {
		return nil, err
	}
	tokenRequest := decoded.(*authenticationv1.TokenRequest)
	if tokenRequest.Status.Token == "" {
		return nil, world.Errorf(world.KindInternal, op, "the answer has no token")
	}
	created := &world.TokenCreated{Token: tokenRequest.Status.Token}
	if granted := tokenRequest.Spec.ExpirationSeconds; granted != nil {
		created.ExpirationSeconds = *granted
	}
	return created, nil
}
