// Package hostfile reads files of the node that pods are given parts of: resolv.conf and hosts.
//
// It keeps: what a file held when it was read last. It plans: a reading at boot, and one every
// period. A file that does not exist is empty; one that cannot be read keeps what it held. Start
// reading at File.Plan.
package hostfile

import (
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Component is the component part of the key of every file; the path is the name.
const Component = "hostfile"

const (
	period      = time.Minute
	retry       = 10 * time.Second
	readTimeout = time.Minute
	bytesMax    = 1 << 20
)

// File is one file of the node.
type File struct {
	Path    string     `json:"path,omitempty"` // empty for no file
	Text    string     `json:"text,omitempty"`
	Known   bool       `json:"known,omitempty"` // it has been read, or does not exist
	Op      world.OpID `json:"op,omitempty"`
	NextAt  time.Time  `json:"nextAt"`
	Problem string     `json:"problem,omitempty"`
}

// Key is the owner of the file's operations.
func (f *File) Key() timer.Key { return timer.Key{Component: Component, Name: f.Path} }

// Plan reads the file if it is time, and says when to be called again.
func (f *File) Plan(out *op.Out) time.Time {
	switch {
	case f.Path == "":
		f.Known = true
		return time.Time{}
	case f.Op != 0:
		return time.Time{}
	case out.Now().Before(f.NextAt):
		return f.NextAt
	}
	f.Op = out.Ask(f.Key(), "", readTimeout,
		&world.ReadFiles{Path: f.Path, FilesMax: 1, BytesMax: bytesMax})
	return time.Time{}
}

// Answered takes the content of the file. It reports whether the file has just become known.
func (f *File) Answered(ev world.Event, out *op.Out) bool {
	f.Op, f.NextAt = 0, ev.Time.Add(period)
	text, err := content(ev)
	if err != nil && !err.Has(world.KindNotFound) {
		f.failed(err, out)
		f.NextAt = ev.Time.Add(retry)
		return false
	}
	if err != nil && !f.Known {
		f.failed(err, out)
	}
	f.Problem, f.Text = "", text
	first := !f.Known
	f.Known = true
	return first
}

func (f *File) failed(err *world.Error, out *op.Out) {
	if f.Problem == "" {
		out.Log(world.LevelWarning, "a file of the node cannot be read", "path", f.Path,
			"error", err.Error())
	}
	f.Problem = err.Error()
}

func content(ev world.Event) (string, *world.Error) {
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
