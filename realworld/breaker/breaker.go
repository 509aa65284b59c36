// Package breaker keeps one pod from ending the agent again and again. It holds a file with the
// pods over which the agent has panicked, and the next agent sets them aside.
//
// A panic over a pod is noted when it passes through, before the process ends. For how long the pod
// is then set aside is a matter of package panics.
//
// The file is written at a panic only, so it costs an agent that does not panic nothing. Therefore
// the end of a process that cannot run any more code (SIGKILL, out of memory, a stack that
// overflows) is not noted. The budgets of the core are there for those.
//
// Nothing in the file is trusted: what cannot be read counts as no file, and an entry that makes no
// sense is left out. Start reading at Open.
package breaker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"time"

	"seedlet.dev/realworld/regularfile"
	"seedlet.dev/realworld/replacefile"
	"seedlet.dev/world"
	"seedlet.dev/world/panics"
)

const (
	fileMax = 64 << 10
	uidMax  = 256 // of a text that is no UID, in an error
)

// validUID matches the UIDs of the API server and of manifests.
var validUID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// file is the content of the file.
type file struct {
	Panics []panics.Entry `json:"panics"`
}

// Breaker is the record of panics, and its file.
type Breaker struct {
	path   string
	record *panics.Record
}

// Open reads the record. It always returns a breaker; an error is only to be logged.
func Open(path string, now time.Time) (*Breaker, error) {
	b := &Breaker{path: path, record: panics.Open(nil, now)}
	data, err := regularfile.Read(path, fileMax)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return b, fmt.Errorf("reading the record of panics: %w", err)
	}
	var content file
	if len(data) > 0 {
		if err := json.Unmarshal(data, &content); err != nil {
			return b, fmt.Errorf("reading the record of panics %s: %w", path, err)
		}
	}
	entries := slices.DeleteFunc(content.Panics,
		func(e panics.Entry) bool { return !validUID.MatchString(e.UID) })
	b.record = panics.Open(entries, now)
	return b, nil
}

// SetAside returns the pods with panics, for the boot event.
func (b *Breaker) SetAside(now time.Time) []world.PodSetAside { return b.record.SetAside(now) }

// Note records a panic over a pod, and returns how often the agent has panicked over it in a row.
func (b *Breaker) Note(uid, place string, now time.Time) (inARow int, err error) {
	if !validUID.MatchString(uid) {
		return 0, fmt.Errorf("noting a panic: %q is no UID", uid[:min(len(uid), uidMax)])
	}
	inARow = b.record.Note(uid, place, now)
	return inARow, b.write()
}

// write replaces the file. After a crash of the machine it is the old one or the new one.
func (b *Breaker) write() error {
	data, err := json.Marshal(file{b.record.Entries()})
	if err != nil {
		return fmt.Errorf("noting a panic: %w", err)
	}
	// The directory may be missing: the agent may not have come that far yet.
	if err := replacefile.Write(b.path, append(data, '\n'), 0o750); err != nil {
		return fmt.Errorf("noting a panic: %w", err)
	}
	return nil
}
