package manifest

import (
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// The bounds on what a manifest path, or the page of a URL, may hold.
const (
	FilesMax = 1024     // and as many pods in a page
	BytesMax = 10 << 20 // as the kubelet's for one manifest
)

const (
	readTimeout  = time.Minute
	fetchTimeout = 10 * time.Second // as the kubelet's
	// believeBroken is how long a file that gave a pod must have stayed broken, with the same
	// content, before its pod is given up: an editor may be halfway through writing it.
	believeBroken = time.Second
)

// Source is the static pods of a directory or file, or of a URL, as last read. It is read again
// when the world says that it changed, and every Period all the same.
type Source struct {
	Origin  Origin             `json:"origin"`
	Path    string             `json:"path,omitempty"`        // of OriginFile
	URL     string             `json:"url,omitempty"`         // of OriginHTTP; may hold a password
	Headers []world.HTTPHeader `json:"httpHeaders,omitempty"` // that go with the URL: secret
	Node    string             `json:"node"`
	Period  time.Duration      `json:"period"`

	// Ready says that everything has been read at least once, and that what is broken has been
	// so for a while. Before that the absence of a pod means nothing.
	Ready bool             `json:"ready"`
	Files map[string]*File `json:"files,omitempty"` // by name; of a page, one for each pod
	Names []string         `json:"names,omitempty"` // of Files, in the order in which they count

	Single  bool       `json:"single,omitempty"`  // the path was a file when it was read last
	PageSum string     `json:"pageSum,omitempty"` // of the good page that was read last
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
	Twin   string    `json:"twin,omitempty"`   // the file that comes first and asks for the same
}

// Plan reads the source if it is time, and says when to be called again.
func (s *Source) Plan(out *op.Out) time.Time {
	switch {
	case s.Path == "" && s.URL == "": // there are no static pods
		s.Ready = true
		return time.Time{}
	case s.Op != 0:
		return time.Time{}
	case out.Now().Before(s.NextAt):
		return s.NextAt
	}
	if s.Origin == OriginHTTP {
		s.Op = out.Ask(URLOwner, "", fetchTimeout,
			&world.FetchManifest{URL: s.URL, Headers: s.Headers, BytesMax: BytesMax})
		return time.Time{}
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

// Answered takes the content of the source. What could not be read leaves everything as it was.
func (s *Source) Answered(ev world.Event, out *op.Out) {
	s.Op = 0
	s.NextAt = ev.Time.Add(s.Period)
	if s.Again {
		s.Again, s.NextAt = false, ev.Time
	}
	if s.Origin == OriginHTTP {
		s.fetched(ev, out)
	} else {
		s.read(ev, out)
	}
}

// read takes what is at the path. That there is nothing is an answer as well.
func (s *Source) read(ev world.Event, out *op.Out) {
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
	s.Files = make(map[string]*File, len(files))
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
	s.Names = slices.Sorted(maps.Keys(s.Files))
	s.Ready = s.Ready || complete
}

// parse turns the content of a file into a pod. A file that has not changed keeps its pod, and
// one that has just become unreadable keeps it for the time being.
func (s *Source) parse(read world.File, known *File, out *op.Out) *File {
	file := &File{Name: read.Name, Sum: hex256(read.Data), Since: out.Now()}
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
