package cri

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"seedlet.dev/world"
)

// mapped says what an error of a call means to the core. What matters most is whether the call
// may have taken effect: a kind that denies it is only given where the runtime is known to refuse
// before it begins.
func mapped(op string, err error) *world.Error {
	if told, ok := errors.AsType[*world.Error](err); ok {
		return told
	}
	s, _ := status.FromError(err) // an error of another make has codes.Unknown and its own text
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
	case codes.InvalidArgument, codes.OutOfRange, codes.Unimplemented:
		return world.KindInvalid
	case codes.PermissionDenied, codes.Unauthenticated:
		return world.KindRefused
	case codes.ResourceExhausted:
		return world.KindExhausted
	case codes.DeadlineExceeded:
		return world.KindTimeout
	case codes.Unavailable, codes.Canceled:
		// Canceled is our own closing of the connection in the middle of a call, after which
		// it is as unknown as anything.
		return world.KindUnavailable
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return world.KindTimeout
	}
	// Unknown, Internal, Aborted, DataLoss, and FailedPrecondition, which containerd gives for
	// an object in another state than expected: one has to look.
	return world.KindInternal
}

// kindByMessage knows the few errors whose code says too little or the wrong thing.
func kindByMessage(op, message string) (world.ErrorKind, bool) {
	switch {
	case (op == "RunPodSandbox" || op == "CreateContainer") &&
		strings.Contains(message, " is reserved for "):
		// containerd keeps names of sandboxes and containers in a registrar, whose error has
		// no code of its own. CRI-O has the same words.
		return world.KindExists, true
	case strings.Contains(message, "server is not initialized yet"):
		// containerd 1.6 listens before its CRI service is ready, and says so without a code.
		return world.KindUnavailable, true
	case strings.Contains(message, "message larger than max"):
		// gRPC calls this ResourceExhausted on either side, although the call has been carried
		// out.
		return world.KindInternal, true
	}
	return "", false
}
