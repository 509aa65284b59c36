package pullrecord

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/core/budget"
	"seedlet.dev/core/document"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// DirName is the name of the kubelet's directory, in its root directory; recordsDir and intentsDir
// are in it.
const (
	DirName    = "image_manager"
	recordsDir = "pulled"
	intentsDir = "pulling"
	filePrefix = "sha256-"
	tempSuffix = ".tmp" // of a file that a kubelet was writing
	// leftoverPrefix and leftoverInfix are those of the names of files that an agent was writing when
	// it ended. The next one removes them: their names are random, so no write replaces them.
	leftoverPrefix = "." + filePrefix
	leftoverInfix  = ".new-"
)

const (
	fileTimeout    = 2 * time.Minute
	fileBytesMax   = 1 << 20
	filesMax       = 16384 // of a directory
	dirBytesMax    = 64 << 20
	filePermission = 0o600
	dirPermission  = 0o700
	readsMax       = 3 // failed reads after which images are used or pulled without the files
	backoffInitial = time.Second
	backoffMax     = time.Minute
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

	Failures  int       `json:"failures,omitempty"` // in a row
	Problem   string    `json:"problem,omitempty"`  // the newest failure; empty after a success
	NotBefore time.Time `json:"notBefore,omitzero"`
}

func (f *File) isSaved() bool { return f.Changes == f.Saved }

// isOnDisk reports whether there is a file, with whatever content.
func (f *File) isOnDisk() bool { return f.Saved > 0 || f.Changes == 0 }

// FilesOnDisk returns how many files there are.
func (s *Store) FilesOnDisk() (records, intents int) {
	for _, r := range s.Records { //ordered: a count
		if r.isOnDisk() {
			records++
		}
	}
	for _, i := range s.Intents { //ordered: a count
		if i.isOnDisk() {
			intents++
		}
	}
	return records, intents
}

// Dir is a directory of files.
type Dir struct {
	IsRead bool `json:"isRead,omitempty"`
	// Failed is set if the directory could not be read: what its files say is not known. It is read
	// again.
	Failed bool `json:"failed,omitempty"`
	// Missing is set if there is no directory. It is made before a file in it.
	Missing   bool       `json:"missing,omitempty"`
	Op        world.OpID `json:"op,omitempty"`
	Failures  int        `json:"failures,omitempty"` // in a row
	NotBefore time.Time  `json:"notBefore,omitzero"`
}

// IsLoaded reports whether both directories were read.
func (s *Store) IsLoaded() bool { return s.RecordsDir.IsRead && s.IntentsDir.IsRead }

func (s *Store) dir(name string) *Dir {
	if name == recordsDir {
		return &s.RecordsDir
	}
	return &s.IntentsDir
}

// change notes that a file has another content, or is to be removed.
func (s *Store) change(dir, name string, f *File) {
	f.Changes++
	s.Changed = true
	path := dir + "/" + name
	if at, found := slices.BinarySearch(s.Unsaved, path); !found {
		s.Unsaved = slices.Insert(s.Unsaved, at, path)
	}
}

// file returns a file by its path below Dir, and its content; nil if there is none.
func (s *Store) file(path string) (f *File, content any) {
	dir, name, _ := strings.Cut(path, "/")
	if dir == recordsDir {
		if r := s.Records[name]; r != nil {
			return &r.File, &r.ImagePulledRecord
		}
		return nil, nil
	}
	if i := s.Intents[name]; i != nil {
		return &i.File, &kubeletconfig.ImagePullIntent{Image: i.Image}
	}
	return nil, nil
}

// Plan reads the directories, then keeps the files up to date. It returns when to plan again.
func (s *Store) Plan(effects *op.Effects) time.Time {
	if !s.isKept() {
		return time.Time{}
	}
	s.confirm(effects)
	s.Changed = false
	var wake time.Time
	for _, name := range []string{recordsDir, intentsDir} {
		wake = timer.Soonest(wake, s.planDir(name, effects))
	}
	if !s.IsLoaded() {
		return wake
	}
	if len(s.Leftovers) > 0 && s.LeftoverOp == 0 {
		s.LeftoverOp = effects.Issue(Owner, s.Leftovers[0], fileTimeout,
			&world.RemoveTree{Path: s.Dir + "/" + s.Leftovers[0]})
	}
	s.Unsaved = slices.DeleteFunc(s.Unsaved, func(path string) bool {
		f, content := s.file(path)
		dir, _, _ := strings.Cut(path, "/")
		switch {
		case f == nil || f.Op == 0 && f.isSaved():
			return true
		case f.Op != 0, s.dir(dir).Missing, s.dir(dir).Op != 0, s.awaitsRecord(path),
			f.IsGone && s.dir(dir).Failed: // it may be of an earlier agent
		case effects.Now().Before(f.NotBefore):
			wake = timer.Soonest(wake, f.NotBefore)
		default:
			f.Writing = f.Changes
			f.Op = effects.Issue(Owner, path, fileTimeout, s.write(path, f, content))
		}
		return false
	})
	return wake
}

// confirm records the secrets that are as good as recorded ones.
func (s *Store) confirm(effects *op.Effects) {
	for i := range s.Confirmed {
		c := &s.Confirmed[i]
		if r := s.Records[fileName(c.ID)]; r != nil && !r.IsGone && !r.Damaged {
			s.grant(r, repositoryOf(c.Ref), OfSecret(&c.Source), effects.Now(), effects.Date())
		}
	}
	s.Confirmed = nil
}

// planDir reads a directory until that succeeds, and makes it if it is missing and a file is to be
// in it. No file of it is written meanwhile.
func (s *Store) planDir(name string, effects *op.Effects) time.Time {
	d, path := s.dir(name), s.Dir+"/"+name
	isNeeded, isWritten := false, false
	for _, file := range s.Unsaved {
		if strings.HasPrefix(file, name+"/") {
			f, _ := s.file(file)
			isNeeded, isWritten = true, isWritten || f != nil && f.Op != 0
		}
	}
	switch {
	case d.Op != 0, d.IsRead && !d.Failed && !(d.Missing && isNeeded), isWritten:
		return time.Time{}
	case effects.Now().Before(d.NotBefore):
		return d.NotBefore
	case !d.IsRead, d.Failed:
		d.Op = effects.Issue(Owner, name, fileTimeout, &world.ReadFiles{Path: path, FilesMax: filesMax,
			BytesMax: fileBytesMax, SumMax: dirBytesMax})
	default:
		d.Op = effects.Issue(Owner, name, fileTimeout, &world.MakeDir{Path: path, Mode: dirPermission})
	}
	return time.Time{}
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
// disk.
func (s *Store) awaitsRecord(path string) bool {
	dir, name, _ := strings.Cut(path, "/")
	if dir != intentsDir {
		return false
	}
	i := s.Intents[name]
	return i.IsGone && slices.ContainsFunc(i.Records, func(file string) bool {
		r := s.Records[file]
		return r != nil && !r.isSaved()
	})
}

// encode returns the content of a file.
func encode(content any) []byte {
	version := kubeletconfig.SchemeGroupVersion.String()
	switch c := content.(type) {
	case *kubeletconfig.ImagePulledRecord:
		c.APIVersion, c.Kind = version, "ImagePulledRecord"
	case *kubeletconfig.ImagePullIntent:
		c.APIVersion, c.Kind = version, "ImagePullIntent"
	}
	data, err := json.Marshal(content)
	if err != nil {
		panic("pullrecord: a file cannot be encoded: " + err.Error())
	}
	return append(data, '\n')
}

// HandleCompletion handles the completion of an operation. It returns the images, by name, whose
// pulls may begin now, and whether the records were just loaded, or given up for now.
func (s *Store) HandleCompletion(r op.Record, ev world.Event, effects *op.Effects) (images []string,
	loaded bool) {
	if r.Call == "ReadFiles" || r.Call == "MakeDir" {
		d := s.dir(r.Subject)
		d.Op = 0
		isKnown := s.handleDir(d, r, ev, effects)
		if r.Call == "MakeDir" && ev.Err != nil {
			return s.failAll(r.Subject, ev.Err), false
		}
		return nil, isKnown && s.IsLoaded()
	}
	if len(s.Leftovers) > 0 && r.Subject == s.Leftovers[0] {
		s.LeftoverOp, s.Leftovers = 0, s.Leftovers[1:] // one that stays is left to the next agent
		return nil, false
	}
	f, _ := s.file(r.Subject)
	if f == nil {
		return nil, false
	}
	dir, _, _ := strings.Cut(r.Subject, "/")
	f.Op = 0
	switch {
	case ev.Err == nil:
		f.Saved, f.Failures, f.Problem, f.NotBefore = f.Writing, 0, "", time.Time{}
	case r.Call == "WriteFile" && ev.Err.Has(world.KindNotFound) && f.Failures == 0:
		s.dir(dir).Missing = true
		f.Failures++
		return nil, false
	default:
		f.fail(ev.Time, ev.Err)
		if f.Failures == 1 {
			effects.Log(world.LevelWarning, "Failed to record who may use an image", "path",
				s.Dir+"/"+r.Subject, "err", ev.Err.Message)
		}
	}
	return s.finish(r.Subject), false
}

func (f *File) fail(at time.Time, err *world.Error) {
	f.Failures++
	f.Problem = budget.CutMessage(err.Message)
	f.NotBefore = at.Add(timer.Backoff(f.Failures, backoffInitial, backoffMax))
}

// finish forgets a file that is gone, and returns the images that wait, or waited, for it.
func (s *Store) finish(path string) []string {
	dir, name, _ := strings.Cut(path, "/")
	if dir == recordsDir {
		if r := s.Records[name]; r.IsGone && r.isSaved() {
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
	for _, file := range slices.Sorted(maps.Keys(s.Intents)) {
		if i := s.Intents[file]; !i.isSaved() {
			i.Problem = budget.CutMessage(err.Message)
			waiting = append(waiting, i.Pullers...)
		}
	}
	return waiting
}

// handleDir handles the read of a directory, or its creation. It reports whether what is known of
// its files has changed.
func (s *Store) handleDir(d *Dir, r op.Record, ev world.Event, effects *op.Effects) bool {
	read, _ := ev.Body.(*world.FilesRead)
	switch {
	case r.Call == "MakeDir" && ev.Err == nil:
		d.Missing, d.Failures, d.NotBefore = false, 0, time.Time{}
		return false
	case r.Call == "ReadFiles" && ev.Err.Has(world.KindNotFound):
		*d = Dir{IsRead: true, Missing: true}
		return true
	case r.Call == "ReadFiles" && ev.Err == nil && read != nil:
		*d = Dir{IsRead: true}
		for i := range read.Files {
			s.load(r.Subject, &read.Files[i], ev.Time, effects)
		}
		return true
	}
	d.Failures++
	d.NotBefore = ev.Time.Add(timer.Backoff(d.Failures, backoffInitial, backoffMax))
	if r.Call == "MakeDir" && d.Failures == 1 {
		effects.Log(world.LevelWarning, "Failed to record who may use images", "path",
			s.Dir+"/"+r.Subject, "err", ev.Err.Error())
	}
	if r.Call != "ReadFiles" || d.Failures != readsMax {
		return false
	}
	d.IsRead, d.Failed = true, true
	effects.Log(world.LevelError, "Failed to read who may use images: they are pulled again", "path",
		s.Dir+"/"+r.Subject, "err", ev.Err.Error())
	return true
}

// load takes the content of a file of an earlier agent, unless this one has written it since. Of a
// damaged one it is known that an agent has pulled the image.
func (s *Store) load(dir string, file *world.File, now time.Time, effects *op.Effects) {
	path := dir + "/" + file.Name
	if strings.HasPrefix(file.Name, leftoverPrefix) && strings.Contains(file.Name, leftoverInfix) {
		s.Leftovers = append(s.Leftovers, path)
		return
	}
	isOther := !strings.HasPrefix(file.Name, filePrefix) || strings.HasSuffix(file.Name, tempSuffix)
	if own, _ := s.file(path); own != nil || isOther {
		if i := s.Intents[file.Name]; dir == intentsDir && i != nil && len(i.Records) == 0 {
			i.foundLate(now)
		}
		return
	}
	var err error
	if dir == recordsDir {
		r := &Record{}
		err = decode(file, "ImagePulledRecord", &r.ImagePulledRecord, &r.TypeMeta)
		if err == nil && fileName(r.ImageRef) != file.Name {
			err = fmt.Errorf("it is of another image: %.128q", r.ImageRef)
		}
		r.Damaged = err != nil
		put(&s.Records, file.Name, r)
	} else {
		var i kubeletconfig.ImagePullIntent
		err = decode(file, "ImagePullIntent", &i, &i.TypeMeta)
		if err == nil && fileName(i.Image) != file.Name {
			err = fmt.Errorf("it is of another image: %.128q", i.Image)
		}
		if err != nil {
			i.Image = ""
		}
		s.putIntent(file.Name, i.Image, &Intent{UnknownSince: now})
	}
	if err != nil {
		effects.Log(world.LevelWarning, "Failed to read who may use an image", "path",
			s.Dir+"/"+path, "err", err.Error())
	}
}

// decode reads a file, which a kubelet may have written in an older version of the format.
func decode(file *world.File, kind string, into any, meta *metav1.TypeMeta) error {
	if file.Err != nil {
		return file.Err
	}
	unknown, err := document.Decode(file.Data, into)
	group, version, _ := strings.Cut(meta.APIVersion, "/")
	switch {
	case err != nil:
		return err
	case meta.Kind != kind || group != kubeletconfig.GroupName ||
		version != "v1beta1" && version != "v1alpha1":
		return fmt.Errorf("it is a %.64q of %.64q", meta.Kind, meta.APIVersion)
	case len(unknown) > 0:
		return fmt.Errorf("unknown fields: %.256s", strings.Join(unknown, ", "))
	}
	return nil
}
