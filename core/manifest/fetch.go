package manifest

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

// fetched takes the page of the URL. Whatever is not a whole good page leaves everything as it
// was, and a source that was not ready is not: what runs stays.
func (s *Source) fetched(ev world.Event, out *op.Out) {
	got, is := ev.Body.(*world.ManifestFetched)
	if !is || ev.Err != nil {
		s.failed(cmp.Or(ev.Err, notAPage), s.Problem == "", out)
		return
	}
	sum := hex256(got.Data)
	if sum == s.PageSum {
		s.Problem = ""
		return
	}
	parts, warnings, err := DecodePage(s.URL, got.Data, s.Node)
	if err != nil {
		s.failed(err, s.Problem != err.Error(), out)
		return
	}
	for _, warning := range warnings {
		out.Log(world.LevelWarning, "manifest", "warning", warning)
	}
	s.PageSum, s.Problem, s.Ready = sum, "", true
	s.takeParts(parts, out)
}

var notAPage = world.Errorf(world.KindInternal, "FetchManifest", "answered with something else")

// failed notes that there is no good page; it is logged if that is news.
func (s *Source) failed(err error, news bool, out *op.Out) {
	if news {
		out.Log(world.LevelError, "the manifest URL gives no pods: what it said is kept",
			"url", Address(s.URL), "error", err.Error())
	}
	s.Problem = err.Error()
}

// takeParts makes the pods of a page those that are known. One that says the same as before has
// been seen since then.
func (s *Source) takeParts(parts []Part, out *op.Out) {
	before := s.Files
	s.Files, s.Names = map[string]*File{}, nil
	for _, part := range parts {
		full := part.Pod.Namespace + "/" + part.Pod.Name
		name := full
		for n := 2; s.Files[name] != nil; n++ { // the first of a name counts: see Sources
			name = fmt.Sprintf("%s (%d)", full, n)
		}
		file := &File{Name: name, Sum: hex256(part.Doc), Since: out.Now(), Pod: part.Pod}
		if known := before[name]; known != nil && known.Sum == file.Sum {
			file = known
		} else {
			file.Pod.Annotations[ConfigSeenAnnotation] = out.Now().UTC().Format(time.RFC3339Nano)
		}
		s.Files[name] = file
		s.Names = append(s.Names, name)
	}
}

func hex256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
