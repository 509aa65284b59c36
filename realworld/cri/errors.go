package cri

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"seedlet.dev/world"
)

// toWorldError converts an error of a call to the core's error type. The kind must be right about
// whether the call may have taken effect: a kind that excludes it is only returned where the
// runtime is known to reject the call before it acts.
func toWorldError(op string, err error) *world.Error {
	if worldErr, ok := errors.AsType[*world.Error](err); ok {
		return worldErr
	}
	s, _ := status.FromError(err) // an error of another type yields codes.Unknown and its own text
	return world.Errorf(kindOf(op, s.Code(), s.Message(), err), op, "%s", s.Message())
}

func kindOf(op string, code codes.Code, message string, err error) world.ErrorKind {
	if kind, ok := kindByMessage(op, message); ok {
		return kind
	}
	switch code {
	case codes.NotFound:
		return world.KindNotFound
	case codes.AlreadyExists:
		return world.KindExists
	case codes.InvalidArgument, codes.OutOfRange:
		return world.KindInvalid
	case codes.Unimplemented:
		return world.KindUnimplemented
	case codes.PermissionDenied, codes.Unauthenticated:
		return world.KindRefused
	case codes.ResourceExhausted:
		return world.KindExhausted
	case codes.DeadlineExceeded:
		return world.KindTimeout
	case codes.Unavailable, codes.Canceled:
		// Canceled means that the core canceled the call, or that the port closed the connection
		// during it, so the outcome is as unknown as if the runtime had gone.
		return world.KindUnavailable
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return world.KindTimeout
	}
	// Unknown, Internal, Aborted, DataLoss, and FailedPrecondition, which containerd returns for an
	// object in an unexpected state: the outcome is unknown until the next relist.
	return world.KindInternal
}

// kindByMessage returns the kind of the few errors whose code is ambiguous or wrong.
func kindByMessage(op, message string) (world.ErrorKind, bool) {
	switch {
	case (op == "RunPodSandbox" || op == "CreateContainer") &&
		strings.Contains(message, " is reserved for "):
		// containerd reserves the names of sandboxes and containers in a registrar, whose error has
		// no code. CRI-O has the same message.
		return world.KindExists, true
	case strings.Contains(message, "server is not initialized yet"):
		// containerd 1.6 listens before its CRI service is ready, and then returns this error
		// without a code.
		return world.KindUnavailable, true
	case strings.Contains(message, messageTooLong):
		// gRPC returns ResourceExhausted on either side, although the call has been executed.
		return world.KindInternal, true
	}
	return "", false
}
