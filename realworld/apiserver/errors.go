package apiserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// toWorldError converts an error of a request to the core's error type.
func toWorldError(ctx context.Context, op string, err error) *world.Error {
	if worldErr, ok := errors.AsType[*world.Error](err); ok {
		return worldErr
	}
	var statusErr apierrors.APIStatus
	if errors.As(err, &statusErr) {
		status := statusErr.Status()
		worldErr := world.Errorf(kindOf(status), op, "%s", status.Message)
		if status.Details != nil {
			worldErr.RetryAfter = time.Duration(status.Details.RetryAfterSeconds) * time.Second
		}
		return worldErr
	}
	// There was no response.
	kind := world.KindUnavailable
	timeout, ok := errors.AsType[net.Error](err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || ok && timeout.Timeout() {
		kind = world.KindTimeout
	}
	return world.Errorf(kind, op, "%v", err)
}

func kindOf(s metav1.Status) world.ErrorKind {
	if s.Reason == metav1.StatusReasonInvalid && hasCause(s, "metadata.uid") {
		return world.KindConflict // the patch was for another object of this name
	}
	switch s.Reason { // where the code is ambiguous
	case metav1.StatusReasonAlreadyExists:
		return world.KindExists
	case metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout:
		return world.KindTimeout
	}
	switch s.Code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return world.KindRefused
	case http.StatusNotFound, http.StatusGone:
		return world.KindNotFound
	case http.StatusConflict:
		return world.KindConflict
	case http.StatusTooManyRequests:
		return world.KindThrottled
	case http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return world.KindInvalid
	case http.StatusRequestEntityTooLarge:
		return world.KindTooLarge
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return world.KindUnavailable
	case http.StatusGatewayTimeout:
		return world.KindTimeout
	}
	if slices.ContainsFunc(storeRefusals, func(text string) bool {
		return strings.Contains(s.Message, text)
	}) {
		return world.KindTooLarge
	}
	return world.KindInternal
}

// storeRefusals are the texts of etcd's server, and of its client, about an object that is too
// large. The API server passes them on as errors of its own (ErrGRPCRequestTooLarge in
// etcd/api/v3rpc/rpctypes, the limit on sent messages in etcd/client/v3, 2 MiB).
var storeRefusals = []string{"etcdserver: request is too large",
	"trying to send message larger than max"}

// hasCause reports whether a field is among the causes of an error.
func hasCause(s metav1.Status, field string) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes,
		func(c metav1.StatusCause) bool { return c.Field == field })
}
