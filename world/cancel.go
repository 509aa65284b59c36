package world

// CancelOperation has an operation canceled whose result the core no longer needs, because it
// requests something else instead, as a shorter stop, or undoes it next. The loop carries it out,
// and no completion follows for itself. An operation that waits is dropped. One that has started is
// canceled by its port if that can, and goes on otherwise; it keeps its slot until its completion.
// An operation that has completed or never existed is ignored.
type CancelOperation struct {
	Operation OpID `json:"operation"`
}

// Canceler is a port that can cancel the operations that it carries out. A canceled operation is
// completed soon, like any other by exactly one event: its effect is unknown.
type Canceler interface {
	Cancel(OpID)
}
