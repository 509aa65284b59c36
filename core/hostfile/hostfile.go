// Package hostfile reads files of the node that pods get a copy or a part of: resolv.conf and
// hosts.
//
// Facts: the content of a file when it was read last. Plan: a read at boot, and one every period. A
// file that does not exist counts as empty; one that cannot be read keeps its last content. Start
// reading at File.Plan.
package hostfile

import (
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Component is the component of the keys of files; the name is the path.
const Component = "hostfile"

const (
	readPeriod  = time.Minute
	retryDelay  = 10 * time.Second
	readTimeout = time.Minute
	bytesMax    = 1 << 20
)

// File is one file of the node.
type File struct {
	Path      string     `json:"path,omitempty"` // empty: there is no such file
	Text      string     `json:"text,omitempty"`
	Loaded    bool       `json:"loaded,omitempty"` // the file has been read, or does not exist
	Op        world.OpID `json:"op,omitempty"`
	NextAt    time.Time  `json:"nextAt"`
	LastError string     `json:"lastError,omitempty"` // of the last read
}

// Key returns the owner of the file's operations.
func (f *File) Key() timer.Key { return timer.Key{Component: Component, Name: f.Path} }

// Plan reads the file if due, and returns when to plan again.
func (f *File) Plan(effects *op.Effects) time.Time {
	switch {
	case f.Path == "":
		f.Loaded = true
		return time.Time{}
	case f.Op != 0:
		return time.Time{}
	case effects.Now().Before(f.NextAt):
		return f.NextAt
	}
	f.Op = effects.Issue(f.Key(), "", readTimeout,
		&world.ReadFiles{Path: f.Path, FilesMax: 1, BytesMax: bytesMax})
	return time.Time{}
}

// HandleCompletion applies the content of the file, and reports whether the file was loaded for the
// first time.
func (f *File) HandleCompletion(ev world.Event, effects *op.Effects) bool {
	f.Op, f.NextAt = 0, ev.Time.Add(readPeriod)
	text, err := fileContent(ev)
	if err != nil {
		f.recordFailure(err, effects)
	} else {
		f.LastError = ""
	}
	if err != nil && !err.Has(world.KindNotFound) {
		f.NextAt = ev.Time.Add(retryDelay)
		return false
	}
	f.Text = text
	first := !f.Loaded
	f.Loaded = true
	return first
}

func (f *File) recordFailure(err *world.Error, effects *op.Effects) {
	if f.LastError == "" {
		effects.Log(world.LevelWarning, "Failed to read a file of the node", "path", f.Path,
			"err", err.Error())
	}
	f.LastError = err.Error()
}

func fileContent(ev world.Event) (string, *world.Error) {
	if ev.Err != nil {
		return "", ev.Err
	}
	read, ok := ev.Body.(*world.FilesRead)
	switch {
	case !ok, read.Directory, len(read.Files) != 1:
		return "", world.Errorf(world.KindInvalid, "ReadFiles", "it is not a file")
	case read.Files[0].Err != nil:
		return "", read.Files[0].Err
	}
	return string(read.Files[0].Data), nil
}
