package world

// The log port. Log lines are effects, so that they are the same in every run.

// Level is how much a log line matters.
type Level int

// The levels. Debug lines are numbered upwards from LevelInfo, as klog's verbosity is.
const (
	LevelError   Level = -2
	LevelWarning Level = -1
	LevelInfo    Level = 0
	LevelDebug   Level = 2 // each change of a pod
	LevelTrace   Level = 4 // each operation
)

// Log is one line for the operator. It is a statement.
type Log struct {
	Level   Level  `json:"level"`
	Message string `json:"message"`
	Fields  []any  `json:"fields,omitempty"` // key, value, key, value; strings, numbers, booleans
}
