package logs

import (
	"path"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// Job is the look at one log, and what follows from it. What is known of its directory is what a
// listing said and what the job itself has done since.
type Job struct {
	Target
	Op     world.OpID `json:"op,omitempty"`
	Listed bool       `json:"listed,omitempty"`
	Files  []File     `json:"files,omitempty"` // the log and what was made of it, by name
	// Moved is the name that this job has given to the log, until the runtime writes to a new one.
	Moved   string `json:"moved,omitempty"`
	Refused bool   `json:"refused,omitempty"` // the runtime would not open a new one
}

// File is one in the directory of a log.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// stampLayout is the kubelet's ending of a log that was rotated.
const stampLayout = "20060102-150405"

const (
	compressed = ".gz"
	halfMade   = ".tmp"
)

// next is what is to be done now; nil if nothing is. The directory decides:
//
// While the log itself is not there, the runtime still writes to the file that was renamed last,
// which therefore stays as it is: first the runtime has to open a new one. Only if it refuses is
// the old name given back, so that readers find the log. Then go what is left of an interrupted
// compression and what is more than may be kept; then what the runtime has finished writing is
// compressed; and then the log is renamed.
func (j *Job) next(bytesMax int64, filesMax int, now time.Time) any {
	dir, base := path.Split(j.Path)
	if !j.Listed {
		return &world.ListDir{Path: path.Clean(dir)}
	}
	log := j.find(base)
	switch {
	case log == nil && !j.Refused:
		return &runtimeapi.ReopenContainerLogRequest{ContainerId: j.ID}
	case log == nil:
		return j.nameBack()
	}
	full := log.Size >= bytesMax && log.Size > 0
	if name := j.garbage(base); name != "" {
		return &world.RemoveTree{Path: dir + name}
	}
	rotated := j.rotated(base)
	kept := filesMax - 1
	if full {
		kept-- // for the one that is about to be
	}
	switch {
	case len(rotated) > max(kept, 0):
		return &world.RemoveTree{Path: dir + rotated[0]}
	case !full || j.Refused:
		return nil
	}
	for _, name := range rotated {
		if !strings.HasSuffix(name, compressed) {
			return &world.Compress{Path: dir + name}
		}
	}
	to := dir + base + "." + stamp(base, rotated, now)
	return &world.Rename{From: j.Path, To: to, Exclusive: true}
}

// nameBack gives a log that this job has renamed its old name, if nothing else has that now, so
// that readers find it.
func (j *Job) nameBack() any {
	dir, base := path.Split(j.Path)
	if j.find(base) != nil || j.find(j.Moved) == nil {
		return nil
	}
	return &world.Rename{From: dir + j.Moved, To: j.Path, Exclusive: true}
}

// stamp is the ending for a log that is rotated now. It is later than all others, whatever has
// happened to the clock, because their order is that of the files.
func stamp(base string, rotated []string, now time.Time) string {
	if len(rotated) > 0 {
		last := rotated[len(rotated)-1]
		newest, err := time.Parse(stampLayout, stampOf(base, last))
		if err == nil && !now.Truncate(time.Second).After(newest) {
			now = newest.Add(time.Second)
		}
	}
	return now.UTC().Format(stampLayout)
}

// stampOf is the stamp in the name of a file that was made of a log; empty if it was not.
func stampOf(base, name string) string {
	rest, is := strings.CutPrefix(name, base+".")
	if !is || len(rest) < len(stampLayout) {
		return ""
	}
	if _, err := time.Parse(stampLayout, rest[:len(stampLayout)]); err != nil {
		return ""
	}
	return rest[:len(stampLayout)]
}

// garbage is a file that is of no use: one that was half made, or one that has been compressed.
// Empty if there is none.
func (j *Job) garbage(base string) string {
	for _, f := range j.Files {
		stamp := stampOf(base, f.Name)
		plain := base + "." + stamp
		switch {
		case strings.HasPrefix(f.Name, "."):
			return f.Name
		case stamp == "" || f.Name == plain+compressed:
		case f.Name == plain && j.find(plain+compressed) == nil:
		case f.Name == plain || strings.HasSuffix(f.Name, halfMade):
			return f.Name
		}
	}
	return ""
}

// rotated are the names of the rotated files, the oldest first.
func (j *Job) rotated(base string) []string {
	var names []string
	for _, f := range j.Files {
		plain := base + "." + stampOf(base, f.Name)
		if f.Name == plain || f.Name == plain+compressed {
			names = append(names, f.Name)
		}
	}
	return names
}

func (j *Job) find(name string) *File {
	i, ok := slices.BinarySearchFunc(j.Files, name, func(f File, name string) int {
		return strings.Compare(f.Name, name)
	})
	if !ok {
		return nil
	}
	return &j.Files[i]
}

// done takes a success.
func (j *Job) done(rec op.Record, body any) {
	base := path.Base(j.Path)
	switch rec.Call {
	case "ListDir":
		j.Listed, j.Files = true, nil
		for _, e := range body.(*world.DirListed).Entries {
			// What is being compressed is hidden, or ends as the kubelet's does.
			visible := strings.TrimPrefix(e.Name, ".")
			if !e.Directory && (e.Name == base || stampOf(base, visible) != "") {
				j.Files = append(j.Files, File{e.Name, e.Size})
			}
		}
	case "RemoveTree":
		j.drop(rec.Subject)
	case "Compress":
		j.drop(rec.Subject)
		j.add(rec.Subject + compressed)
	case "Rename":
		if rec.Subject != base {
			j.Moved = rec.Subject
			j.drop(base)
		} else {
			j.drop(j.Moved)
		}
		j.add(rec.Subject)
	case "ReopenContainerLog":
		j.add(base) // it is empty, or soon will be
	}
}

// failed takes a failure, and reports whether the job goes on all the same. What has happened is
// not known, so it goes on by looking again, and only to see whether a log is without its name:
// if the runtime has answered, nothing of the request is left that could still take effect.
func (j *Job) failed(call string, err *world.Error) bool {
	if call != "ReopenContainerLog" || j.Refused || j.Moved == "" ||
		err.Has(world.KindTimeout) || err.Has(world.KindUnavailable) ||
		err.Has(world.KindCanceled) {
		return false
	}
	j.Refused, j.Listed = true, false
	return true
}

func (j *Job) drop(name string) {
	j.Files = slices.DeleteFunc(j.Files, func(f File) bool { return f.Name == name })
}

func (j *Job) add(name string) {
	i, found := slices.BinarySearchFunc(j.Files, name, func(f File, name string) int {
		return strings.Compare(f.Name, name)
	})
	if !found {
		j.Files = slices.Insert(j.Files, i, File{Name: name})
	}
}
