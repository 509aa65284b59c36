package manifest

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// The limits of a manifest path, and of a URL manifest.
const (
	FilesMax = 1024     // and of pods in a URL manifest
	BytesMax = 10 << 20 // the kubelet's limit for one manifest
	// SumMax bounds the bytes of all manifests, which are in memory at once. It is more than a
	// thousand times the size of the manifests of a control plane.
	SumMax = 32 << 20
	// The port converts manifests to JSON. DocumentMax bytes and ValuesMax values bound one manifest
	// and the manifests that one step decodes and checks, which takes about two microseconds for a
	// value. A pod of a control plane has about 300 values. If more files have changed, the path is
	// read again for the others.
	DocumentMax = 256 << 10
	ValuesMax   = 4096
)

const (
	readTimeout  = time.Minute
	fetchTimeout = 10 * time.Second // the kubelet's value
	// decodeErrorGrace is how long a file that had a pod must stay invalid, with the same content,
	// before its pod is removed: an editor may be halfway through writing the file.
	decodeErrorGrace = time.Second
)

// Source is the static pods of a directory or file, or of a URL, as last read. A source is read
// again after a change event, and every Period.
type Source struct {
	Origin  Origin             `json:"origin"`
	Path    string             `json:"path,omitempty"`        // of OriginFile
	URL     string             `json:"url,omitempty"`         // of OriginHTTP; may contain a password
	Headers []world.HTTPHeader `json:"httpHeaders,omitempty"` // of requests to URL; secret
	Node    string             `json:"node"`
	Period  time.Duration      `json:"period"`

	// Ready reports whether everything has been read at least once, and the invalid files have been
	// invalid for decodeErrorGrace. Before that the absence of a pod has no meaning.
	Ready bool             `json:"ready"`
	Files map[string]*File `json:"files,omitempty"` // by name; of a URL manifest one per pod
	Order []string         `json:"order,omitempty"` // names of Files, by precedence

	IsFile       bool       `json:"isFile,omitempty"`      // the path was a file when last read
	ManifestSum  string     `json:"manifestSum,omitempty"` // checksum of the last valid URL manifest
	Watched      bool       `json:"watched,omitempty"`
	Op           world.OpID `json:"op,omitempty"`
	RereadNeeded bool       `json:"rereadNeeded,omitempty"` // the path changed while it was being read
	NextAt       time.Time  `json:"nextAt"`
	Problem      string     `json:"problem,omitempty"`
}

// File is one manifest.
type File struct {
	Name        string    `json:"name"`
	Sum         string    `json:"sum"`                   // checksum of the content last read
	Since       time.Time `json:"since"`                 // when that content was first read
	Pod         *v1.Pod   `json:"pod,omitempty"`         // the last valid pod, or nil
	DecodeError string    `json:"decodeError,omitempty"` // why the content is no valid pod
	// DuplicateOf is the file with precedence whose pod has the same UID or name.
	DuplicateOf string `json:"duplicateOf,omitempty"`
}

// Plan reads the source if due, and returns when to plan again.
func (s *Source) Plan(effects *op.Effects) time.Time {
	switch {
	case s.Path == "" && s.URL == "": // no static pods are configured
		s.Ready = true
		return time.Time{}
	case s.Op != 0:
		return time.Time{}
	case effects.Now().Before(s.NextAt):
		return s.NextAt
	}
	if s.Origin == OriginHTTP {
		s.Op = effects.Issue(URLOwner, "", fetchTimeout,
			&world.FetchManifest{URL: s.URL, Headers: s.Headers, BytesMax: BytesMax,
				Documents: *s.documents()})
		return time.Time{}
	}
	if !s.Watched {
		effects.Emit(&world.Watch{Path: s.Path})
		s.Watched = true
	}
	s.Op = effects.Issue(Owner, "", readTimeout, &world.ReadFiles{
		Path: s.Path, FilesMax: FilesMax, BytesMax: BytesMax, SumMax: SumMax,
		Documents: s.documents()})
	return time.Time{}
}

// documents returns the request for the documents that are not known.
func (s *Source) documents() *world.Documents {
	d := &world.Documents{BytesMax: DocumentMax, ValuesMax: ValuesMax, Known: map[string]string{}}
	if s.Origin == OriginHTTP {
		d.Known[""] = s.ManifestSum
		return d
	}
	for name, file := range s.Files { //ordered: into a map
		d.Known[name] = file.Sum
	}
	return d
}

// HandleChange handles the event that the path may have changed.
func (s *Source) HandleChange(now time.Time) {
	if s.Op != 0 {
		s.RereadNeeded = true
		return
	}
	s.NextAt = now
}

// HandleCompletion applies the content of the source. After an error all facts stay as they were.
func (s *Source) HandleCompletion(ev world.Event, effects *op.Effects) {
	s.Op = 0
	s.NextAt = ev.Time.Add(s.Period)
	if s.RereadNeeded {
		s.RereadNeeded, s.NextAt = false, ev.Time
	}
	if s.Origin == OriginHTTP {
		s.handleFetch(ev, effects)
	} else {
		s.handleRead(ev, effects)
	}
}

// handleRead applies the content of the path. A path that does not exist has no pods.
func (s *Source) handleRead(ev world.Event, effects *op.Effects) {
	if ev.Err != nil && !ev.Err.Has(world.KindNotFound) {
		if s.Problem == "" {
			effects.Log(world.LevelError, "reading the manifest path failed", "path", s.Path,
				"err", ev.Err.Error())
		}
		s.Problem = ev.Err.Error()
		return
	}
	if ev.Err != nil && (s.Problem == "" || !s.Ready) {
		effects.Log(world.LevelWarning, "the manifest path does not exist: there are no static pods",
			"path", s.Path)
	}
	s.Problem = ""
	if ev.Err != nil {
		s.Problem = "it does not exist"
	}
	var files []world.File
	if read, ok := ev.Body.(*world.FilesRead); ok && ev.Err == nil {
		files, s.IsFile = read.Files, !read.Directory
	}
	s.applyFiles(files, effects)
}

// applyFiles replaces the files by those that were read. If too many have changed for one step, the
// others stay as they were, and so do those that are gone, which may only have another name now.
func (s *Source) applyFiles(files []world.File, effects *op.Effects) {
	before := s.Files
	s.Files = make(map[string]*File, len(files))
	complete, isPart := true, false
	for _, read := range files {
		known, sum := before[read.Name], cmp.Or(read.Sum, tooLargeSum)
		switch {
		case !s.IsFile && strings.HasPrefix(read.Name, "."), read.Err.Has(world.KindNotFound):
			// Hidden, or removed since the directory was listed.
		case read.Err != nil && !read.Err.Has(world.KindExhausted) && read.Sum == "":
			complete = false
			effects.Log(world.LevelError, "reading a manifest failed", "file", read.Name,
				"err", read.Err.Error())
			if known != nil {
				s.Files[read.Name] = known
			}
		case read.Omitted:
			complete, isPart = false, true
			if known != nil {
				s.Files[read.Name] = known
			}
		default:
			file := s.parseFile(read, sum, known, effects)
			s.Files[read.Name] = file
			complete = complete && !s.isErrorRecent(file, effects.Now())
		}
	}
	if isPart {
		s.NextAt = effects.Now()
		for name, file := range before { //ordered: into a map
			if s.Files[name] == nil {
				s.Files[name] = file
			}
		}
	}
	s.Order = slices.Sorted(maps.Keys(s.Files))
	s.Ready = s.Ready || complete
}

// tooLargeSum is the checksum of a file that was not read because it is too large. It differs from
// that of an empty file.
const tooLargeSum = "too large"

// parseFile returns the File for the content that was read. An unchanged file keeps its pod; a file
// that has just become invalid keeps its pod for decodeErrorGrace.
func (s *Source) parseFile(read world.File, sum string, known *File,
	effects *op.Effects) *File {
	file := &File{Name: read.Name, Sum: sum, Since: effects.Now()}
	if known != nil && known.Sum == file.Sum {
		if known.DecodeError != "" && !s.isErrorRecent(known, effects.Now()) {
			known.Pod = nil
		}
		return known
	}
	pod, warnings, err := s.decodeFile(read)
	for _, warning := range warnings {
		effects.Log(world.LevelWarning, "manifest warning", "file", read.Name, "warning", warning)
	}
	if err != nil {
		file.DecodeError = err.Error()
		if known != nil {
			file.Pod = known.Pod
		}
		effects.Log(world.LevelError, "invalid manifest skipped", "file", read.Name,
			"err", file.DecodeError)
		return file
	}
	if pod != nil {
		pod.Annotations[ConfigSeenAnnotation] = effects.Date().UTC().Format(time.RFC3339Nano)
	}
	file.Pod = pod
	return file
}

func (s *Source) decodeFile(read world.File) (*v1.Pod, []string, error) {
	file := s.Path
	if !s.IsFile {
		file = strings.TrimSuffix(s.Path, "/") + "/" + read.Name
	}
	switch {
	case read.Err != nil && read.Sum == "":
		return nil, nil, read.Err // names the file
	case read.Err != nil:
		return nil, nil, errors.New(file + ": " + read.Err.Message)
	}
	return Decode(file, read.Doc, s.Node)
}

// isErrorRecent reports whether a file is invalid, but not for decodeErrorGrace yet: then the
// source is read again soon.
func (s *Source) isErrorRecent(file *File, now time.Time) bool {
	if file.DecodeError == "" || now.Sub(file.Since) >= decodeErrorGrace {
		return false
	}
	if at := file.Since.Add(decodeErrorGrace); at.Before(s.NextAt) {
		s.NextAt = at
	}
	return true
}
