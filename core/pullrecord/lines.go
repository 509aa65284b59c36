package pullrecord

import (
	"slices"
	"strings"
	"time"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// In which order files are written and removed. Each directory has a line for both, first come,
// first served, of which the first few are carried out at once: however many files there are, the
// node's own operations on files wait for a few of these, and a plan or a completion is as much
// work as the files that it concerns.

const (
	// lineMax bounds the operations in flight of a line. There are four lines.
	lineMax = 8
	// pendingMax bounds the intents of pulls that are not on the disk. Those after it wait in the
	// queue of pulls.
	pendingMax = 16
	// OwnMax bounds the intents of this agent, those that are being removed included. As many again
	// can be left by an earlier agent before the next one reads no more than their names (filesMax).
	OwnMax = 8192
	// roomAwaited is after how long a pull asks again whether there is room for its intent.
	roomAwaited = time.Second
)

// File is how much of a file is on the disk.
type File struct {
	// Changes counts those of the content so far. Saved is the number that the disk has; Writing that
	// of the operation in flight.
	Changes uint64     `json:"changes,omitempty"`
	Saved   uint64     `json:"saved,omitempty"`
	Writing uint64     `json:"writing,omitempty"`
	IsGone  bool       `json:"isGone,omitempty"` // the file is to be removed
	Op      world.OpID `json:"op,omitempty"`
	Queued  bool       `json:"queued,omitempty"` // the file is in a line

	Failures  int       `json:"failures,omitempty"` // in a row
	Problem   string    `json:"problem,omitempty"`  // the newest failure; empty after a success
	NotBefore time.Time `json:"notBefore,omitzero"`
}

func (f *File) isSaved() bool { return f.Changes == f.Saved }

// isOnDisk reports whether there is a file, with whatever content.
func (f *File) isOnDisk() bool { return f.Saved > 0 || f.Changes == 0 }

// Line is files that are to be written, or to be removed.
type Line struct {
	Waiting  []string `json:"waiting,omitempty"` // names; one that needs nothing any more is skipped
	InFlight int      `json:"inFlight,omitempty"`
}

// line returns the files of a directory that are to be removed, or those that are to be written.
func (d *Dir) line(isRemoval bool) *Line {
	if isRemoval {
		return &d.Removals
	}
	return &d.Writes
}

func (d *Dir) isWaitedFor() bool { return len(d.Writes.Waiting)+len(d.Removals.Waiting) > 0 }

func (d *Dir) isBusy() bool { return d.Writes.InFlight+d.Removals.InFlight > 0 }

// change notes that a file has another content, or is to be removed.
func (s *Store) change(dir, name string, f *File) {
	f.Changes++
	s.enqueue(dir, name, f)
}

// enqueue puts a file that is not saved into its line. One with an operation in flight is put there
// when that completes.
func (s *Store) enqueue(dir, name string, f *File) {
	s.Changed = true
	if f.Queued || f.Op != 0 || f.isSaved() {
		return
	}
	f.Queued = true
	line := s.dir(dir).line(f.IsGone)
	line.Waiting = append(line.Waiting, name)
}

// retry puts the files whose back-off has passed into their lines.
func (s *Store) retry(now time.Time) {
	for {
		key, isDue := s.Retries.Pop(now)
		if !isDue {
			return
		}
		if f, _ := s.file(key.Component + "/" + key.Name); f != nil {
			s.enqueue(key.Component, key.Name, f)
		}
	}
}

// retryAt has a file looked at again.
func (s *Store) retryAt(dir, name string, at time.Time) {
	s.Retries.Set(timer.Key{Component: dir, Name: name}, at)
}

// planLine issues the operations on the first files of a line.
func (s *Store) planLine(dir string, isRemoval bool, effects *op.Effects) {
	d := s.dir(dir)
	if d.Op != 0 || d.Missing || d.isReadDue(effects.Now()) {
		return
	}
	for line := d.line(isRemoval); line.InFlight < lineMax && len(line.Waiting) > 0; {
		name := line.Waiting[0]
		line.Waiting = line.Waiting[1:]
		f, content := s.file(dir + "/" + name)
		if f == nil {
			continue
		}
		f.Queued = false
		switch now := effects.Now(); {
		case f.Op != 0, f.isSaved():
		case f.IsGone != isRemoval:
			s.enqueue(dir, name, f)
		case now.Before(f.NotBefore):
			s.retryAt(dir, name, f.NotBefore)
		case f.IsGone && f.Saved == 0 && d.Failed: // it may be of an earlier agent
			s.retryAt(dir, name, now.Add(backoffMax))
		case s.awaitsRecord(dir, name):
		default:
			line.InFlight++
			f.Writing = f.Changes
			f.Op = effects.IssueFor(s.tenantOf(dir, name, isRemoval), Owner, dir+"/"+name, fileTimeout,
				s.write(dir+"/"+name, f, content))
		}
	}
}

// tenantOf returns the tenant of an operation on a file: the pod that waits for an intent; of all
// others the node.
func (s *Store) tenantOf(dir, name string, isRemoval bool) string {
	if dir != intentsDir || isRemoval {
		return ""
	}
	return s.Intents[name].Tenant
}

// write returns the operation that makes a file what it is to be.
func (s *Store) write(path string, f *File, content any) any {
	at := s.Dir + "/" + path
	if f.IsGone {
		return &world.RemoveTree{Path: at}
	}
	return &world.WriteFile{Path: at, Data: encode(content), Mode: filePermission}
}

// awaitsRecord reports whether an intent is not removed yet because what came of it is not on the
// disk. It is put into its line again when that record is.
func (s *Store) awaitsRecord(dir, name string) bool {
	if dir != intentsDir || !s.Intents[name].IsGone {
		return false
	}
	for _, file := range s.Intents[name].Records {
		if r := s.Records[file]; r != nil && !r.isSaved() {
			r.Awaiting = append(r.Awaiting, name)
			return true
		}
	}
	return false
}

// handleFile handles the completion of an operation on a file, and returns the images that wait, or
// waited, for it.
func (s *Store) handleFile(r op.Record, ev world.Event, effects *op.Effects) []string {
	dir, name, _ := strings.Cut(r.Subject, "/")
	s.dir(dir).line(r.Call == "RemoveTree").InFlight--
	s.Changed = true
	f, _ := s.file(r.Subject)
	if f == nil {
		return nil
	}
	f.Op = 0
	switch {
	case ev.Err == nil:
		f.Saved, f.Failures, f.Problem, f.NotBefore = f.Writing, 0, "", time.Time{}
	case r.Call == "WriteFile" && ev.Err.Has(world.KindNotFound) && f.Failures == 0:
		s.dir(dir).Missing = true
		f.Failures++
		s.enqueue(dir, name, f)
		return nil
	default:
		f.fail(ev.Time, ev.Err)
		s.retryAt(dir, name, f.NotBefore)
		if f.Failures == 1 {
			effects.Log(world.LevelWarning, "Failed to record who may use an image", "path",
				s.Dir+"/"+r.Subject, "err", ev.Err.Message)
		}
	}
	if f.Failures == 0 {
		s.enqueue(dir, name, f) // it may have changed meanwhile
	}
	return s.finish(dir, name)
}

func (f *File) fail(at time.Time, err *world.Error) {
	f.Failures++
	f.Problem = budget.CutMessage(err.Message)
	f.NotBefore = at.Add(timer.Backoff(f.Failures, backoffInitial, backoffMax))
}

// finish forgets a file that is gone, has the intents removed that waited for a record, and returns
// the images that wait, or waited, for an intent.
func (s *Store) finish(dir, name string) []string {
	if dir == recordsDir {
		r := s.Records[name]
		if !r.isSaved() {
			return nil
		}
		for _, file := range r.Awaiting {
			if i := s.Intents[file]; i != nil {
				s.enqueue(intentsDir, file, &i.File)
			}
		}
		if r.Awaiting = nil; r.IsGone {
			delete(s.Records, name)
		}
		return nil
	}
	i := s.Intents[name]
	if i.IsGone && i.isSaved() {
		s.dropIntent(name)
	}
	return i.Pullers
}

// failAll notes that no file of a directory can be written, and returns the images that wait for
// one.
func (s *Store) failAll(dir string, err *world.Error) (waiting []string) {
	if dir != intentsDir {
		return nil
	}
	for _, file := range s.IntentsDir.Writes.Waiting {
		if i := s.Intents[file]; i != nil && !i.isSaved() {
			i.Problem = budget.CutMessage(err.Message)
			waiting = append(waiting, i.Pullers...)
		}
	}
	return waiting
}

// hasRoom reports whether one more intent may be written.
func (s *Store) hasRoom() bool {
	s.Pending = slices.DeleteFunc(s.Pending, func(file string) bool {
		i := s.Intents[file]
		return i == nil || i.IsGone || i.isSaved()
	})
	return len(s.Pending) < pendingMax && s.OwnIntents() < OwnMax
}

// OwnIntents returns how many intents there are that no earlier agent has left.
func (s *Store) OwnIntents() int { return len(s.Intents) - s.Earlier }
