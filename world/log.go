package world

// The log port. Log lines are effects, so that every run of one seed writes the same lines.

// Level is the severity of a log line.
type Level int

// The levels. Levels above LevelInfo correspond to klog's verbosity.
const (
	LevelError   Level = -2
	LevelWarning Level = -1
	LevelInfo    Level = 0
	LevelDebug   Level = 2 // each change of a pod
	LevelTrace   Level = 4 // each operation
)

// Log is one log line for operators. It is one-way.
type Log struct {
	Level   Level  `json:"level"`
	Message string `json:"message"`
	// Fields alternate keys and values. A value is a string, a number or a boolean.
	Fields []any `json:"fields,omitempty"`
}
