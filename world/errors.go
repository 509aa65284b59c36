package world

import (
	"fmt"
	"time"
)

// ErrorKind is what a failed operation means to the core. The list is closed: a port maps
// whatever its system says to one of these.
type ErrorKind string

// The kinds of error. Whether the operation may have taken effect is part of the meaning.
const (
	KindNotFound    ErrorKind = "NotFound"    // the object does not exist; no effect
	KindExists      ErrorKind = "Exists"      // the name is taken; no effect
	KindConflict    ErrorKind = "Conflict"    // it is not what was expected any more; no effect
	KindThrottled   ErrorKind = "Throttled"   // too much is asked now, later is fine; no effect
	KindInvalid     ErrorKind = "Invalid"     // the request can never succeed as it is; no effect
	KindRefused     ErrorKind = "Refused"     // not permitted; no effect
	KindExhausted   ErrorKind = "Exhausted"   // no space, memory or quota; no effect
	KindCanceled    ErrorKind = "Canceled"    // given up before it began; no effect
	KindUnavailable ErrorKind = "Unavailable" // the other side cannot be reached; effect unknown
	KindTimeout     ErrorKind = "Timeout"     // no answer in time; effect unknown
	KindInternal    ErrorKind = "Internal"    // anything else; effect unknown
)

// Error is why an operation failed. It is data, so that it can be recorded and replayed.
type Error struct {
	Kind    ErrorKind `json:"kind"`
	Op      string    `json:"op"`      // what was tried, as in "StopContainer"
	Message string    `json:"message"` // the other side's own words
	// RetryAfter is how long to wait before the same is asked again, if the other side said so.
	RetryAfter time.Duration `json:"retryAfter,omitempty"`
}

// Error makes *Error an error: "StopContainer: NotFound: no such container".
func (e *Error) Error() string {
	return fmt.Sprintf("%s: %s: %s", e.Op, e.Kind, e.Message)
}

// Errorf makes an Error.
func Errorf(kind ErrorKind, op, format string, args ...any) *Error {
	return &Error{Kind: kind, Op: op, Message: fmt.Sprintf(format, args...)}
}

// Has reports whether e is of the given kind; a nil error is of none.
func (e *Error) Has(kind ErrorKind) bool { return e != nil && e.Kind == kind }
