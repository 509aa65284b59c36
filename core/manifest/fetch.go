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

// handleFetch applies the response of the manifest URL. After an error or an invalid manifest all
// facts stay as they were: the source becomes ready only with a valid manifest, and running pods
// continue.
func (s *Source) handleFetch(ev world.Event, effects *op.Effects) {
	got, ok := ev.Body.(*world.ManifestFetched)
	if !ok || ev.Err != nil {
		s.recordFetchFailure(cmp.Or(ev.Err, errNoManifest), s.Problem == "", effects)
		return
	}
	if got.Sum == s.ManifestSum {
		s.Problem = ""
		return
	}
	parts, warnings, err := DecodeURLManifest(s.URL, got.Doc, s.Node)
	if err != nil {
		s.recordFetchFailure(err, s.Problem != err.Error(), effects)
		return
	}
	for _, warning := range warnings {
		effects.Log(world.LevelWarning, "manifest warning", "url", RedactURL(s.URL), "warning", warning)
	}
	s.ManifestSum, s.Problem, s.Ready = got.Sum, "", true
	s.applyURLPods(parts, effects)
}

var errNoManifest = world.Errorf(world.KindInternal, "FetchManifest",
	"answered with something else")

// recordFetchFailure records that there is no valid manifest, and logs the error if it has changed.
func (s *Source) recordFetchFailure(err error, changed bool, effects *op.Effects) {
	if changed {
		effects.Log(world.LevelError, "the manifest URL has no valid manifest: its previous pods stay",
			"url", RedactURL(s.URL), "err", err.Error())
	}
	s.Problem = err.Error()
}

// applyURLPods replaces the pods of the URL. A pod whose document has not changed keeps the time
// when it was first seen.
func (s *Source) applyURLPods(parts []URLPod, effects *op.Effects) {
	before := s.Files
	s.Files, s.Order = map[string]*File{}, nil
	for _, part := range parts {
		full := part.Pod.Namespace + "/" + part.Pod.Name
		name := full
		for n := 2; s.Files[name] != nil; n++ { // the first pod of a name is the one to run: see Sources
			name = fmt.Sprintf("%s (%d)", full, n)
		}
		file := &File{Name: name, Sum: hex256(part.Doc), Since: effects.Now(), Pod: part.Pod}
		if known := before[name]; known != nil && known.Sum == file.Sum {
			file = known
		} else {
			file.Pod.Annotations[ConfigSeenAnnotation] = effects.Date().UTC().Format(time.RFC3339Nano)
		}
		s.Files[name] = file
		s.Order = append(s.Order, name)
	}
}

func hex256(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
