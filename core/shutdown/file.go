package shutdown

import (
	"encoding/json"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// FileName is the name of the kubelet's state file, in its root directory.
const FileName = "graceful_node_shutdown_state"

const (
	fileTimeout    = 10 * time.Second
	fileBytesMax   = 4096
	filePermission = 0o644
	failuresMax    = 3 // of reads or writes in a row, after which the file counts as read or written
)

// File is the state file: when the last shutdown started and ended.
type File struct {
	Path    string  `json:"path"`
	Loaded  bool    `json:"loaded,omitempty"`
	Content Content `json:"content"`
	// Abandoned is set if no end of the last shutdown was recorded and it is not under way any more:
	// the machine went down, or the agent was killed. The file then keeps its start without an end, as
	// the kubelet's does, whose metrics show that.
	Abandoned bool    `json:"abandoned,omitempty"`
	Stored    Content `json:"stored"` // what is on the disk, as far as it is known
	// Writing is the content of the write in flight.
	Writing  Content    `json:"writing"`
	Op       world.OpID `json:"op,omitempty"`
	Failures int        `json:"failures,omitempty"`
}

// Content is the content of the file (state in pkg/kubelet/nodeshutdown/storage.go).
type Content struct {
	StartTime time.Time `json:"startTime"`
	EndTime   time.Time `json:"endTime"`
}

// isUnfinished reports whether a shutdown has started, and neither ended nor been abandoned.
func (f *File) isUnfinished() bool {
	return f.Loaded && !f.Abandoned && !f.Content.StartTime.IsZero() && f.Content.EndTime.IsZero()
}

// begin records that a shutdown begins.
func (f *File) begin(effects *op.Effects) {
	f.Loaded, f.Abandoned, f.Failures = true, false, 0
	f.Content = Content{StartTime: effects.Date()}
}

// finish records that the shutdown has ended, and reports whether that is on the disk.
func (f *File) finish(effects *op.Effects) bool {
	if f.Content.EndTime.IsZero() && !f.Content.StartTime.IsZero() {
		f.Content.EndTime, f.Failures = effects.Date(), 0
		f.plan(effects)
	}
	return f.Op == 0 && (f.Stored == f.Content || f.Failures >= failuresMax)
}

// plan reads the file, then keeps it up to date.
func (f *File) plan(effects *op.Effects) {
	switch {
	case f.Op != 0:
	case !f.Loaded:
		f.Op = effects.Issue(Owner, f.Path, fileTimeout,
			&world.ReadFiles{Path: f.Path, FilesMax: 1, BytesMax: fileBytesMax})
	case f.Content != f.Stored && f.Failures < failuresMax:
		data, err := json.Marshal(f.Content)
		if err != nil {
			panic("shutdown: two times cannot be marshalled: " + err.Error())
		}
		f.Writing = f.Content
		f.Op = effects.Issue(Owner, f.Path, fileTimeout,
			&world.WriteFile{Path: f.Path, Data: data, Mode: filePermission})
	}
}

func (f *File) handleCompletion(r op.Record, ev world.Event, effects *op.Effects) {
	f.Op = 0
	failed := ev.Err
	read, isRead := ev.Body.(*world.FilesRead)
	switch {
	case r.Call == "ReadFiles" && failed == nil && isRead && len(read.Files) == 1:
		if failed = read.Files[0].Err; failed == nil {
			f.load(read.Files[0].Data, effects)
		}
	case r.Call == "WriteFile" && failed == nil:
		f.Stored = f.Writing
	}
	if r.Call == "ReadFiles" && (failed == nil || failed.Has(world.KindNotFound)) {
		f.Loaded, failed = true, nil
	}
	if failed == nil {
		f.Failures = 0
		return
	}
	f.Failures++
	if f.Failures == 1 {
		effects.Log(world.LevelError, "Failed to load or store graceful shutdown state", "path", f.Path,
			"err", failed.Error())
	}
	if r.Call == "ReadFiles" && f.Failures >= failuresMax {
		f.Loaded, f.Failures = true, 0
	}
}

// load takes the content of the file, unless a shutdown has started meanwhile. A damaged one counts
// as empty.
func (f *File) load(data []byte, effects *op.Effects) {
	var c Content
	if err := json.Unmarshal(data, &c); err != nil {
		effects.Log(world.LevelError, "Failed to load graceful shutdown state", "path", f.Path,
			"err", err.Error())
		return
	}
	if f.Stored = c; !f.Loaded {
		f.Content = c
	}
}
