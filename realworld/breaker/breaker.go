// Package breaker keeps one pod from ending the agent again and again. It holds a file with the
// pods over which the agent has panicked, and the next agent sets them aside.
//
// A panic over a pod is noted when it passes through, before the process ends. The pod is set aside
// for 10 seconds after its first panic, and twice as long after each further one in a row, up to 5
// minutes: the back-off of a container that crashes. A pod over which the agent has not panicked
// for 10 minutes after its last back-off starts from one again.
//
// The file is written at a panic only, so it costs an agent that does not panic nothing. Therefore
// the end of a process that cannot run any more code (SIGKILL, out of memory, a stack that
// overflows) is not noted. The budgets of the core are there for those.
//
// Nothing in the file is trusted: what cannot be read counts as no file, and an entry that makes no
// sense is left out. Times are those of the machine's date, which may have been changed: a pod is
// never set aside for longer than its back-off. Start reading at Open.
package breaker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"seedlet.dev/realworld/replacefile"
	"seedlet.dev/world"
)

const (
	backoffFirst = 10 * time.Second
	backoffMax   = 5 * time.Minute
	quietTime    = 10 * time.Minute // after a back-off, until panics are counted from one again

	// entriesMax bounds the pods in the file: the oldest are dropped. Each costs one process.
	entriesMax = 64
	fileMax    = 64 << 10
	placeMax   = 256
	countMax   = 1000
)

// validUID matches the UIDs of the API server and of manifests.
var validUID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// Entry is one pod over which the agent has panicked.
type Entry struct {
	UID    string    `json:"uid"`
	Panics int       `json:"panics"` // in a row
	Last   time.Time `json:"last"`
	Place  string    `json:"place,omitempty"` // the function and line of the last panic
	// Silent is set if the last panic was while the pod was set aside.
	Silent bool `json:"silent,omitempty"`
}

// file is the content of the file.
type file struct {
	Panics []Entry `json:"panics"`
}

// Breaker is the record of panics.
type Breaker struct {
	path     string
	entries  []Entry // the oldest first
	setAside map[string]bool
}

// Open reads the record. It always returns a breaker; an error is only to be logged.
func Open(path string, now time.Time) (*Breaker, error) {
	b := &Breaker{path: path, setAside: map[string]bool{}}
	data, err := read(path)
	if err != nil {
		return b, fmt.Errorf("reading the record of panics: %w", err)
	}
	var content file
	if len(data) > 0 {
		if err := json.Unmarshal(data, &content); err != nil {
			return b, fmt.Errorf("reading the record of panics %s: %w", path, err)
		}
	}
	seen := map[string]bool{}
	for _, e := range content.Panics {
		if !validUID.MatchString(e.UID) || e.Panics < 1 || e.Last.IsZero() || seen[e.UID] ||
			len(b.entries) == entriesMax {
			continue
		}
		seen[e.UID] = true
		e.Panics = min(e.Panics, countMax)
		if e.Last.After(now) {
			e.Last = now // the date was changed
		}
		if now.Before(e.Last.Add(e.backoff() + quietTime)) {
			b.entries = append(b.entries, e)
		}
	}
	for _, e := range b.entries {
		b.setAside[e.UID] = e.remaining(now) > 0
	}
	return b, nil
}

// SetAside returns the pods with panics, for the boot event.
func (b *Breaker) SetAside(now time.Time) []world.PodSetAside {
	var pods []world.PodSetAside
	for _, e := range b.entries {
		pods = append(pods, world.PodSetAside{UID: e.UID, Panics: e.Panics, Silent: e.Silent,
			Remaining: e.remaining(now)})
	}
	return pods
}

// Note records a panic over a pod, and returns how often the agent has panicked over it in a row.
func (b *Breaker) Note(uid, place string, now time.Time) (panics int, err error) {
	if !validUID.MatchString(uid) {
		return 0, fmt.Errorf("noting a panic: %q is no UID", uid[:min(len(uid), placeMax)])
	}
	e := Entry{UID: uid}
	if i := slices.IndexFunc(b.entries, func(o Entry) bool { return o.UID == uid }); i >= 0 {
		e = b.entries[i]
		b.entries = slices.Delete(b.entries, i, i+1)
		if !now.Before(e.Last.Add(e.backoff() + quietTime)) {
			e.Panics = 0
		}
	}
	e.Silent = b.setAside[uid] && e.Panics > 0 && e.remaining(now) > 0
	e.Panics, e.Last, e.Place = min(e.Panics+1, countMax), now.UTC(), place[:min(len(place), placeMax)]
	b.entries = append(b.entries, e)
	if len(b.entries) > entriesMax {
		b.entries = b.entries[len(b.entries)-entriesMax:]
	}
	return e.Panics, b.write()
}

// backoff returns for how long the pod is set aside after its last panic.
func (e *Entry) backoff() time.Duration {
	backoff := backoffFirst
	for range e.Panics - 1 {
		if backoff *= 2; backoff >= backoffMax {
			return backoffMax
		}
	}
	return backoff
}

// remaining returns for how much longer the pod is set aside.
func (e *Entry) remaining(now time.Time) time.Duration {
	return min(max(e.Last.Add(e.backoff()).Sub(now), 0), e.backoff())
}

// read reads the file; nothing if there is none. Only a regular file is read: another kind may
// block.
func read(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	case info.Size() > fileMax:
		return nil, fmt.Errorf("%s has %d bytes, and may have %d", path, info.Size(), fileMax)
	}
	return io.ReadAll(io.LimitReader(f, fileMax))
}

// write replaces the file. After a crash of the machine it is the old one or the new one.
func (b *Breaker) write() error {
	data, err := json.Marshal(file{b.entries})
	if err != nil {
		return fmt.Errorf("noting a panic: %w", err)
	}
	// The directory may be missing: the agent may not have come that far yet.
	if err := replacefile.Write(b.path, append(data, '\n'), 0o750); err != nil {
		return fmt.Errorf("noting a panic: %w", err)
	}
	return nil
}
