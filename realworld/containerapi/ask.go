package containerapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"seedlet.dev/world"
)

// uidBytesMax bounds a pod's UID. That of a static pod is a hash, all others are 36 bytes.
const uidBytesMax = 128

// failure is an error with the HTTP status that tells of it.
type failure struct {
	code    int
	message string
}

func (f *failure) Error() string { return f.message }

func failed(code int, format string, args ...any) *failure {
	return &failure{code, fmt.Sprintf(format, args...)}
}

// refuse answers a request that is not served.
func refuse(w http.ResponseWriter, code int, format string, args ...any) {
	answerFailure(w, failed(code, format, args...))
}

// answerFailure answers with an error: with its own status, the one that suits what the runtime
// says, or 500.
func answerFailure(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if f, ok := errors.AsType[*failure](err); ok {
		code = f.code
	} else {
		switch status.Code(err) {
		case codes.NotFound:
			code = http.StatusNotFound
		case codes.ResourceExhausted:
			code = http.StatusTooManyRequests
		}
	}
	if code == http.StatusServiceUnavailable || code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, err.Error(), code)
}

// names are whom a request means.
type names struct{ namespace, pod, uid, container string }

// named reads the names off the path of a request. What no pod or container can be called is not
// asked for.
func named(r *http.Request) (names, error) {
	n := names{r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"),
		r.PathValue("container")}
	if why := validation.IsDNS1123Label(n.namespace); len(why) > 0 {
		return n, failed(http.StatusBadRequest, "namespace: %s", why[0])
	}
	if why := validation.IsDNS1123Subdomain(n.pod); len(why) > 0 {
		return n, failed(http.StatusBadRequest, "pod name: %s", why[0])
	}
	if len(n.uid) > uidBytesMax || strings.ContainsAny(n.uid, "/\x00") {
		return n, failed(http.StatusBadRequest, "uid: is not that of a pod")
	}
	if n.container == "" {
		return n, nil
	}
	if why := validation.IsDNS1123Label(n.container); len(why) > 0 {
		return n, failed(http.StatusBadRequest, "container name: %s", why[0])
	}
	return n, nil
}

// find asks the core whom a request means.
func (a *API) find(ctx context.Context, n names) (*world.ContainerAnswer, error) {
	answer, err := a.opts.Ask(ctx, world.ContainerRequest{
		Namespace: n.namespace, Pod: n.pod, UID: n.uid, Container: n.container,
	})
	switch {
	case err != nil:
		return nil, failed(http.StatusServiceUnavailable, "%v", err)
	case answer.Err.Has(world.KindNotFound):
		return nil, failed(http.StatusNotFound, "%s", answer.Err.Message)
	case answer.Err != nil:
		return nil, failed(http.StatusInternalServerError, "%s", answer.Err.Message)
	}
	return answer, nil
}

// findRunning is find for what can only be asked of a container that runs.
func (a *API) findRunning(ctx context.Context, n names) (*world.ContainerAnswer, error) {
	answer, err := a.find(ctx, n)
	if err != nil {
		return nil, err
	}
	if answer.ContainerID == "" || hasEnded(answer.Status, answer.ContainerID) {
		return nil, failed(http.StatusInternalServerError, "container not found (%q)", n.container)
	}
	return answer, nil
}

// hasEnded reports whether a status tells of the end of a container.
func hasEnded(s *v1.ContainerStatus, id string) bool {
	if s == nil {
		return false
	}
	for _, state := range []v1.ContainerState{s.State, s.LastTerminationState} {
		if state.Terminated != nil && strings.HasSuffix(state.Terminated.ContainerID, "://"+id) {
			return true
		}
	}
	return false
}
