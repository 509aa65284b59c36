package disk

import (
	"context"
	"errors"
	"syscall"

	"seedlet.dev/world"
)

// toWorldError returns an error as the core knows it. A *world.Error keeps its kind.
func toWorldError(op string, err error) *world.Error {
	var worldErr *world.Error
	if errors.As(err, &worldErr) {
		return world.Errorf(worldErr.Kind, op, "%s", worldErr.Message)
	}
	return world.Errorf(kindOf(err), op, "%s", err)
}

func kindOf(err error) world.ErrorKind {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return world.KindTimeout
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		return world.KindInternal
	}
	switch errno {
	case syscall.ENOENT:
		return world.KindNotFound
	case syscall.EEXIST:
		return world.KindExists
	case syscall.ENOTDIR, syscall.EISDIR, syscall.EINVAL, syscall.ENAMETOOLONG, syscall.ELOOP,
		syscall.EXDEV:
		return world.KindInvalid
	case syscall.EACCES, syscall.EPERM, syscall.EROFS:
		return world.KindRefused
	case syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		return world.KindExhausted
	}
	return world.KindInternal
}

// partialFailure marks an error after which the operation may have taken effect in part.
func partialFailure(err error) error {
	var worldErr *world.Error
	if errors.As(err, &worldErr) {
		return world.Errorf(world.KindInternal, "", "%s", worldErr.Message)
	}
	return world.Errorf(world.KindInternal, "", "%s", err)
}
