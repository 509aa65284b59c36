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

// uidBytesMax bounds a pod's UID. The UID of a static pod is a hash, all others have 36 bytes.
const uidBytesMax = 128

// httpError is an error with its HTTP status code.
type httpError struct {
	code    int
	message string
}

func (f *httpError) Error() string { return f.message }

func httpErrorf(code int, format string, args ...any) *httpError {
	return &httpError{code, fmt.Sprintf(format, args...)}
}

// writeErrorf responds with an error.
func writeErrorf(w http.ResponseWriter, code int, format string, args ...any) {
	writeError(w, httpErrorf(code, format, args...))
}

// writeError responds with an error. The code is that of an httpError, the one that corresponds to
// the runtime's gRPC code, or 500.
func writeError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	if f, ok := errors.AsType[*httpError](err); ok {
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

// target has the names in a request's path: of a pod, and maybe of a container.
type target struct{ namespace, pod, uid, container string }

// noContainer is the kubelet's text for a container in which no command can run.
func (t target) noContainer() string { return fmt.Sprintf("container not found (%q)", t.container) }

// parseTarget returns the names in a request's path. Names that no pod or container can have are an
// error.
func parseTarget(r *http.Request) (target, error) {
	names := target{r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("uid"),
		r.PathValue("container")}
	if why := validation.IsDNS1123Label(names.namespace); len(why) > 0 {
		return names, httpErrorf(http.StatusBadRequest, "namespace: %s", why[0])
	}
	if why := validation.IsDNS1123Subdomain(names.pod); len(why) > 0 {
		return names, httpErrorf(http.StatusBadRequest, "pod name: %s", why[0])
	}
	if len(names.uid) > uidBytesMax || strings.ContainsAny(names.uid, "/\x00") {
		return names, httpErrorf(http.StatusBadRequest, "uid: is not that of a pod")
	}
	if names.container == "" {
		return names, nil
	}
	if why := validation.IsDNS1123Label(names.container); len(why) > 0 {
		return names, httpErrorf(http.StatusBadRequest, "container name: %s", why[0])
	}
	return names, nil
}

// missingError is the error of a name that stands for nothing, with the text for logs. The kubelet
// has other texts on other paths, which clients may look for.
type missingError struct {
	*httpError
	container bool // a pod of that name exists, and has no such container
	otherUID  bool // a pod of that name exists, and has another UID
}

func (e *missingError) Unwrap() error { return e.httpError }

// rewordMissingPod replaces the error of a pod that does not exist with the text of all paths but
// that of logs.
func rewordMissingPod(err error) error {
	missing, ok := errors.AsType[*missingError](err)
	switch {
	case ok && missing.otherUID:
		return httpErrorf(http.StatusNotFound, "pod not found")
	case ok && !missing.container:
		return httpErrorf(http.StatusNotFound, "pod does not exist")
	}
	return err
}

// rewordMissingContainer replaces the error of a container that does not exist. A pod of another
// UID does not have it.
func rewordMissingContainer(err, otherwise error) error {
	missing, ok := errors.AsType[*missingError](err)
	if ok && (missing.container || missing.otherUID) {
		return otherwise
	}
	return rewordMissingPod(err)
}

// resolve resolves the names of a request in the core.
func (a *API) resolve(ctx context.Context, names target) (*world.ContainerAnswer, error) {
	response, err := a.opts.Resolve(ctx, world.ContainerRequest{
		Namespace: names.namespace, Pod: names.pod, UID: names.uid, Container: names.container,
	})
	switch {
	case err != nil:
		return nil, httpErrorf(http.StatusServiceUnavailable, "%v", err)
	case response.Err.Has(world.KindNotFound):
		missing := &missingError{httpError: httpErrorf(http.StatusNotFound, "%s", response.Err.Message),
			container: response.UID != ""}
		if !missing.container && names.uid != "" {
			_, err := a.resolve(ctx, target{namespace: names.namespace, pod: names.pod})
			missing.otherUID = err == nil
		}
		return nil, missing
	case response.Err != nil:
		return nil, httpErrorf(http.StatusInternalServerError, "%s", response.Err.Message)
	}
	return response, nil
}

// resolveRunning is resolve for requests that need a running container; missing is the text for
// none.
func (a *API) resolveRunning(ctx context.Context, names target, missing string) (
	*world.ContainerAnswer, error) {
	notFound := httpErrorf(http.StatusInternalServerError, "%s", missing)
	response, err := a.resolve(ctx, names)
	if err != nil {
		return nil, rewordMissingContainer(err, notFound)
	}
	if response.ContainerID == "" || hasEnded(response.Status, response.ContainerID) {
		return nil, notFound
	}
	return response, nil
}

// hasEnded reports whether a status has the termination of a container.
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
