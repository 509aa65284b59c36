package world

import (
	"fmt"
	"time"
)

// ErrorKind classifies a failed operation for the core. The list of kinds is closed: a port maps
// every error of its system to one of them.
type ErrorKind string

// The kinds of error. Each kind states whether the operation may have taken effect.
const (
	KindNotFound  ErrorKind = "NotFound"  // the object does not exist; no effect
	KindExists    ErrorKind = "Exists"    // the name is taken; no effect
	KindConflict  ErrorKind = "Conflict"  // the object has changed since it was read; no effect
	KindThrottled ErrorKind = "Throttled" // rate limited, a later retry is fine; no effect
	KindInvalid   ErrorKind = "Invalid"   // the request can never succeed unchanged; no effect
	KindRefused   ErrorKind = "Refused"   // not permitted; no effect
	// KindTooLarge is that of an object or a request with more bytes than the API server or its
	// store take; no effect.
	KindTooLarge ErrorKind = "TooLarge"
	// KindUnimplemented is that of a call that the other side does not have; no effect.
	KindUnimplemented ErrorKind = "Unimplemented"
	KindExhausted     ErrorKind = "Exhausted"   // no space, memory or quota left; no effect
	KindCanceled      ErrorKind = "Canceled"    // canceled before it started; no effect
	KindUnavailable   ErrorKind = "Unavailable" // the other side is unreachable; effect unknown
	KindTimeout       ErrorKind = "Timeout"     // no response in time; effect unknown
	KindInternal      ErrorKind = "Internal"    // any other error; effect unknown
)

// Error is the error of a failed operation. It is plain data, so that it can be recorded and
// replayed.
type Error struct {
	Kind    ErrorKind `json:"kind"`
	Op      string    `json:"op"`      // the operation that failed, as in "StopContainer"
	Message string    `json:"message"` // the text of the other side
	// RetryAfter is the delay before a retry that the other side requested; zero if it requested
	// none.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
}

// Error implements the error interface, as in "StopContainer: NotFound: no such container".
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Op, e.Kind, e.Message)
}

// Errorf returns an Error with a formatted message.
func Errorf(kind ErrorKind, op, format string, args ...any) *Error {
	return &Error{Kind: kind, Op: op, Message: fmt.Sprintf(format, args...)}
}

// Has reports whether e is of the given kind. A nil error has no kind.
func (e *Error) Has(kind ErrorKind) bool { return e != nil && e.Kind == kind }

// IsUnknown reports whether the error leaves open if the operation has taken effect, or will. A nil
// error does not.
func (e *Error) IsUnknown() bool {
	return e.Has(KindUnavailable) || e.Has(KindTimeout) || e.Has(KindInternal)
}
