package apiserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"seedlet.dev/world"
)

// mapped says what an error of a request means to the core.
func mapped(ctx context.Context, op string, err error) *world.Error {
	if told, ok := errors.AsType[*world.Error](err); ok {
		return told
	}
	var answer apierrors.APIStatus
	if errors.As(err, &answer) {
		status := answer.Status()
		told := world.Errorf(kindOf(status), op, "%s", status.Message)
		if status.Details != nil {
			told.RetryAfter = time.Duration(status.Details.RetryAfterSeconds) * time.Second
		}
		return told
	}
	// There was no answer.
	kind := world.KindUnavailable
	timeout, ok := errors.AsType[net.Error](err)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) || ok && timeout.Timeout() {
		kind = world.KindTimeout
	}
	return world.Errorf(kind, op, "%v", err)
}

func kindOf(s metav1.Status) world.ErrorKind {
	if s.Reason == metav1.StatusReasonInvalid && hasCause(s, "metadata.uid") {
		return world.KindConflict // a patch for another object of the name
	}
	switch s.Reason { // where the code says too little
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
		http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType,
		http.StatusUnprocessableEntity:
		return world.KindInvalid
	case http.StatusBadGateway, http.StatusServiceUnavailable:
		return world.KindUnavailable
	case http.StatusGatewayTimeout:
		return world.KindTimeout
	}
	return world.KindInternal
}

// hasCause reports whether a field is among those that something is wrong with.
func hasCause(s metav1.Status, field string) bool {
	return s.Details != nil && slices.ContainsFunc(s.Details.Causes,
		func(c metav1.StatusCause) bool { return c.Field == field })
}
