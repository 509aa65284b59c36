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

// Job is the rotation of one log. Files are the files of the log's directory as listed, updated by
// the completed operations of the job.
type Job struct {
	Target
	Op     world.OpID `json:"op,omitempty"`
	Listed bool       `json:"listed,omitempty"`
	Files  []File     `json:"files,omitempty"` // the log and its rotated files, by name
	// RenamedTo is the name that this job has given to the log, until the runtime opens a new one.
	RenamedTo     string `json:"renamedTo,omitempty"`
	ReopenRefused bool   `json:"reopenRefused,omitempty"` // the runtime refused to open a new log
}

// File is a file in the directory of a log.
type File struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// timestampLayout is the kubelet's suffix of a rotated log.
const timestampLayout = "20060102-150405"

const (
	compressedSuffix = ".gz"
	partialSuffix    = ".tmp"
)

// nextOperation returns the next operation of the job, or nil. Only the content of the directory
// decides:
//
// While the log itself does not exist, the runtime still writes to the file that was renamed last,
// so that file stays as it is: the runtime has to reopen the log first. If the runtime refuses, the
// file gets its name back, so that readers find the log. Then the job removes leftovers of an
// interrupted compression and rotated files beyond the limit, compresses the rotated files that the
// runtime no longer writes to, and renames the log.
func (j *Job) nextOperation(bytesMax int64, filesMax int, date time.Time) any {
	dir, base := path.Split(j.Path)
	if !j.Listed {
		return &world.ListDir{Path: path.Clean(dir)}
	}
	log := j.findFile(base)
	switch {
	case log == nil && !j.ReopenRefused:
		return &runtimeapi.ReopenContainerLogRequest{ContainerId: j.ID}
	case log == nil:
		return j.restoreName()
	}
	full := log.Size >= bytesMax && log.Size > 0
	if name := j.findLeftover(base); name != "" {
		return &world.RemoveTree{Path: dir + name}
	}
	rotated := j.rotatedFiles(base)
	rotatedMax := filesMax - 1
	if full {
		rotatedMax-- // one more is about to be made
	}
	switch {
	case len(rotated) > max(rotatedMax, 0):
		return &world.RemoveTree{Path: dir + rotated[0]}
	case !full || j.ReopenRefused:
		return nil
	}
	for _, name := range rotated {
		if !strings.HasSuffix(name, compressedSuffix) {
			return &world.Compress{Path: dir + name}
		}
	}
	to := dir + base + "." + newTimestamp(base, rotated, date)
	return &world.Rename{From: j.Path, To: to, Exclusive: true}
}

// restoreName returns the operation that gives a log renamed by this job its name back, unless a
// file with that name exists.
func (j *Job) restoreName() any {
	dir, base := path.Split(j.Path)
	if j.findFile(base) != nil || j.findFile(j.RenamedTo) == nil {
		return nil
	}
	return &world.Rename{From: dir + j.RenamedTo, To: j.Path, Exclusive: true}
}

// newTimestamp returns the suffix for a log that is rotated now. The suffix is later than those of
// all rotated files, even if the clock was set back: the order of the suffixes is the order of the
// files.
func newTimestamp(base string, rotated []string, date time.Time) string {
	if len(rotated) > 0 {
		last := rotated[len(rotated)-1]
		newest, err := time.Parse(timestampLayout, timestampOf(base, last))
		if err == nil && !date.Truncate(time.Second).After(newest) {
			date = newest.Add(time.Second)
		}
	}
	return date.UTC().Format(timestampLayout)
}

// timestampOf returns the timestamp in the name of a rotated file of a log; empty if the file is
// none.
func timestampOf(base, name string) string {
	rest, ok := strings.CutPrefix(name, base+".")
	if !ok || len(rest) < len(timestampLayout) {
		return ""
	}
	if _, err := time.Parse(timestampLayout, rest[:len(timestampLayout)]); err != nil {
		return ""
	}
	return rest[:len(timestampLayout)]
}

// findLeftover returns a file to remove: an incomplete compressed file, or a file whose compressed
// copy is complete. Empty without such a file.
func (j *Job) findLeftover(base string) string {
	for _, f := range j.Files {
		stamp := timestampOf(base, f.Name)
		uncompressed := base + "." + stamp
		switch {
		case strings.HasPrefix(f.Name, "."):
			return f.Name
		case stamp == "" || f.Name == uncompressed+compressedSuffix:
		case f.Name == uncompressed && j.findFile(uncompressed+compressedSuffix) == nil:
		case f.Name == uncompressed || strings.HasSuffix(f.Name, partialSuffix):
			return f.Name
		}
	}
	return ""
}

// rotatedFiles returns the names of the rotated files, oldest first.
func (j *Job) rotatedFiles(base string) []string {
	var names []string
	for _, f := range j.Files {
		uncompressed := base + "." + timestampOf(base, f.Name)
		if f.Name == uncompressed || f.Name == uncompressed+compressedSuffix {
			names = append(names, f.Name)
		}
	}
	return names
}

func (j *Job) findFile(name string) *File {
	i, ok := slices.BinarySearchFunc(j.Files, name, func(f File, name string) int {
		return strings.Compare(f.Name, name)
	})
	if !ok {
		return nil
	}
	return &j.Files[i]
}

// recordSuccess applies the completion of an operation.
func (j *Job) recordSuccess(rec op.Record, body any) {
	base := path.Base(j.Path)
	switch rec.Call {
	case "ListDir":
		j.Listed, j.Files = true, nil
		for _, e := range body.(*world.DirListed).Entries {
			// A file that is being compressed is hidden, or has the kubelet's temporary suffix.
			visible := strings.TrimPrefix(e.Name, ".")
			if !e.Directory && (e.Name == base || timestampOf(base, visible) != "") {
				j.Files = append(j.Files, File{e.Name, e.Size})
			}
		}
	case "RemoveTree":
		j.removeFile(rec.Subject)
	case "Compress":
		j.removeFile(rec.Subject)
		j.addFile(rec.Subject + compressedSuffix)
	case "Rename":
		if rec.Subject != base {
			j.RenamedTo = rec.Subject
			j.removeFile(base)
		} else {
			j.removeFile(j.RenamedTo)
		}
		j.addFile(rec.Subject)
	case "ReopenContainerLog":
		j.addFile(base) // empty, or soon to be
	}
}

// recordFailure applies a failure, and reports whether the job continues. A failure ends the job,
// because the effect of the operation is unknown. Only a job whose renamed log the runtime refused
// to reopen continues: it lists the directory again, to see whether the log has to get its name
// back. The runtime has responded, so the request cannot take effect later.
func (j *Job) recordFailure(call string, err *world.Error) bool {
	if call != "ReopenContainerLog" || j.ReopenRefused || j.RenamedTo == "" ||
		err.Has(world.KindTimeout) || err.Has(world.KindUnavailable) ||
		err.Has(world.KindCanceled) {
		return false
	}
	j.ReopenRefused, j.Listed = true, false
	return true
}

func (j *Job) removeFile(name string) {
	j.Files = slices.DeleteFunc(j.Files, func(f File) bool { return f.Name == name })
}

func (j *Job) addFile(name string) {
	i, found := slices.BinarySearchFunc(j.Files, name, func(f File, name string) int {
		return strings.Compare(f.Name, name)
	})
	if !found {
		j.Files = slices.Insert(j.Files, i, File{Name: name})
	}
}
