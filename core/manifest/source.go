package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// The bounds on what a manifest path may hold.
const (
	FilesMax = 1024
	BytesMax = 10 << 20 // as the kubelet's for one manifest
)

const (
	readTimeout = time.Minute
	// believeBroken is how long a file that gave a pod must have stayed broken, with the same
	// content, before its pod is given up: an editor may be halfway through writing it.
	believeBroken = time.Second
)

// Owner is who the source's operations belong to.
var Owner = timer.Key{Component: "manifests"}

// Source is the static pods of a directory or file, as last read. It is read again when the
// world says that it changed, and every Period all the same.
type Source struct {
	Path   string        `json:"path"` // empty if there are no static pods
	Node   string        `json:"node"`
	Period time.Duration `json:"period"`

	// Ready says that everything has been read at least once, and that what is broken has been
	// so for a while. Before that the absence of a pod means nothing.
	Ready bool             `json:"ready"`
	Files map[string]*File `json:"files,omitempty"` // by name

	Single  bool       `json:"single,omitempty"` // the path was a file when it was read last
	Watched bool       `json:"watched,omitempty"`
	Op      world.OpID `json:"op,omitempty"`
	Again   bool       `json:"again,omitempty"` // it changed while it was being read
	NextAt  time.Time  `json:"nextAt"`
	Problem string     `json:"problem,omitempty"`
}

// File is one manifest.
type File struct {
	Name   string    `json:"name"`
	Sum    string    `json:"sum"`              // of the content that was read last
	Since  time.Time `json:"since"`            // when that content was first read
	Pod    *v1.Pod   `json:"pod,omitempty"`    // the last good pod; nil if there is none
	Broken string    `json:"broken,omitempty"` // why the content is no pod
	Twin   string    `json:"twin,omitempty"`   // the file whose pod has the same UID and comes first
}

// Plan reads the path if it is time, and says when to be called again.
func (s *Source) Plan(out *op.Out) time.Time {
	switch {
	case s.Path == "":
		s.Ready = true
		return time.Time{}
	case s.Op != 0:
		return time.Time{}
	case out.Now().Before(s.NextAt):
		return s.NextAt
	}
	if !s.Watched {
		out.Tell(&world.Watch{Path: s.Path})
		s.Watched = true
	}
	s.Op = out.Ask(Owner, "", readTimeout,
		&world.ReadFiles{Path: s.Path, FilesMax: FilesMax, BytesMax: BytesMax})
	return time.Time{}
}

// Changed says that the path may have changed.
func (s *Source) Changed(now time.Time) {
	if s.Op != 0 {
		s.Again = true
		return
	}
	s.NextAt = now
}

// Answered takes the content of the path. What could not be read leaves everything as it was.
func (s *Source) Answered(ev world.Event, out *op.Out) {
	s.Op = 0
	s.NextAt = ev.Time.Add(s.Period)
	if s.Again {
		s.Again, s.NextAt = false, ev.Time
	}
	if ev.Err != nil && !ev.Err.Has(world.KindNotFound) {
		if s.Problem == "" {
			out.Log(world.LevelError, "manifests cannot be read", "path", s.Path,
				"error", ev.Err.Error())
		}
		s.Problem = ev.Err.Error()
		return
	}
	if ev.Err != nil && (s.Problem == "" || !s.Ready) {
		out.Log(world.LevelWarning, "the manifest path does not exist: there are no static pods",
			"path", s.Path)
	}
	s.Problem = ""
	if ev.Err != nil {
		s.Problem = "it does not exist"
	}
	var files []world.File
	if read, ok := ev.Body.(*world.FilesRead); ok && ev.Err == nil {
		files, s.Single = read.Files, !read.Directory
	}
	s.take(files, out)
}

// take compares what was read with what is known.
func (s *Source) take(files []world.File, out *op.Out) {
	before := s.Files
	s.Files = map[string]*File{}
	complete := true
	for _, read := range files {
		known := before[read.Name]
		switch {
		case !s.Single && strings.HasPrefix(read.Name, "."), read.Err.Has(world.KindNotFound):
			// Hidden, or gone since the directory was listed.
		case read.Err != nil && !read.Err.Has(world.KindExhausted):
			complete = false
			out.Log(world.LevelError, "manifest cannot be read", "file", read.Name,
				"error", read.Err.Error())
			if known != nil {
				s.Files[read.Name] = known
			}
		default:
			file := s.parse(read, known, out)
			s.Files[read.Name] = file
			complete = complete && !s.unbelieved(file, out.Now())
		}
	}
	s.Ready = s.Ready || complete
	s.rejectTwins(out)
}

// parse turns the content of a file into a pod. A file that has not changed keeps its pod, and
// one that has just become unreadable keeps it for the time being.
func (s *Source) parse(read world.File, known *File, out *op.Out) *File {
	sum := sha256.Sum256(read.Data)
	file := &File{Name: read.Name, Sum: hex.EncodeToString(sum[:]), Since: out.Now()}
	if known != nil && known.Sum == file.Sum {
		if known.Broken != "" && !s.unbelieved(known, out.Now()) {
			known.Pod = nil
		}
		return known
	}
	pod, warnings, err := s.decode(read)
	for _, warning := range warnings {
		out.Log(world.LevelWarning, "manifest", "file", read.Name, "warning", warning)
	}
	if err != nil {
		file.Broken = err.Error()
		if known != nil {
			file.Pod = known.Pod
		}
		out.Log(world.LevelError, "manifest skipped", "file", read.Name, "error", file.Broken)
		return file
	}
	if pod != nil {
		pod.Annotations[ConfigSeenAnnotation] = out.Now().UTC().Format(time.RFC3339Nano)
	}
	file.Pod = pod
	return file
}

func (s *Source) decode(read world.File) (*v1.Pod, []string, error) {
	if read.Err != nil {
		return nil, nil, read.Err
	}
	file := s.Path
	if !s.Single {
		file = strings.TrimSuffix(s.Path, "/") + "/" + read.Name
	}
	return Decode(file, read.Data, s.Node)
}

// unbelieved says whether a file is broken, but has not been so for long enough to believe that
// it is meant to be: it is read again soon.
func (s *Source) unbelieved(file *File, now time.Time) bool {
	if file.Broken == "" || now.Sub(file.Since) >= believeBroken {
		return false
	}
	if at := file.Since.Add(believeBroken); at.Before(s.NextAt) {
		s.NextAt = at
	}
	return true
}

// rejectTwins skips files whose pod has the UID of another file's pod: the first name wins, for
// as long as it is there.
func (s *Source) rejectTwins(out *op.Out) {
	owner := map[string]string{}
	for _, name := range s.names() {
		file := s.Files[name]
		if file.Pod == nil {
			continue
		}
		uid := string(file.Pod.UID)
		first, taken := owner[uid]
		if !taken {
			owner[uid] = name
		} else if file.Twin != first {
			out.Log(world.LevelError, "manifest skipped", "file", name,
				"error", "uid "+uid+" is that of the pod in "+first)
		}
		file.Twin = first
	}
}

func (s *Source) names() []string {
	names := make([]string, 0, len(s.Files))
	for name := range s.Files { //ordered: sorted below
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// BrokenFiles is how many files give no pod although there is something in them.
func (s *Source) BrokenFiles() int {
	broken := 0
	for _, name := range s.names() {
		if s.Files[name].Broken != "" || s.Files[name].Twin != "" {
			broken++
		}
	}
	return broken
}

// Pods are the pods that are wanted, in the order of their files' names.
func (s *Source) Pods() []*v1.Pod {
	var pods []*v1.Pod
	for _, name := range s.names() {
		if file := s.Files[name]; file.Pod != nil && file.Twin == "" {
			pods = append(pods, file.Pod)
		}
	}
	return pods
}
