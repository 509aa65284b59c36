package pullrecord

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

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
	// Listing is set if a read has answered that there is too much to read. The names alone are
	// listed then.
	Listing bool `json:"listing,omitempty"`
	// Missing is set if there is no directory. It is made before a file in it.
	Missing   bool       `json:"missing,omitempty"`
	Op        world.OpID `json:"op,omitempty"`
	Failures  int        `json:"failures,omitempty"` // in a row
	NotBefore time.Time  `json:"notBefore,omitzero"`
	Writes    Line       `json:"writes"`
	Removals  Line       `json:"removals"`
}

// isReadDue reports whether the directory is to be read now.
func (d *Dir) isReadDue(now time.Time) bool {
	return (!d.IsRead || d.Failed) && !now.Before(d.NotBefore)
}

// wasRead notes that what is in the directory is known.
func (d *Dir) wasRead() {
	d.IsRead, d.Failed, d.Listing, d.Missing = true, false, false, false
	d.Failures, d.NotBefore = 0, time.Time{}
}

// IsLoaded reports whether both directories were read.
func (s *Store) IsLoaded() bool { return s.RecordsDir.IsRead && s.IntentsDir.IsRead }

func (s *Store) dir(name string) *Dir {
	if name == recordsDir {
		return &s.RecordsDir
	}
	return &s.IntentsDir
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
	s.retry(effects.Now())
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
	for _, name := range []string{recordsDir, intentsDir} {
		s.planLine(name, false, effects)
		s.planLine(name, true, effects)
	}
	return timer.Soonest(wake, s.Retries.Next())
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
	isUnread := !d.IsRead || d.Failed
	switch {
	case d.Op != 0, !isUnread && !(d.Missing && d.isWaitedFor()), d.isBusy():
		return time.Time{}
	case effects.Now().Before(d.NotBefore):
		return d.NotBefore
	case isUnread && d.Listing:
		d.Op = effects.Issue(Owner, name, fileTimeout, &world.ListDir{Path: path})
	case isUnread:
		d.Op = effects.Issue(Owner, name, fileTimeout, &world.ReadFiles{Path: path, FilesMax: filesMax,
			BytesMax: fileBytesMax, SumMax: dirBytesMax})
	default:
		d.Op = effects.Issue(Owner, name, fileTimeout, &world.MakeDir{Path: path, Mode: dirPermission})
	}
	return time.Time{}
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
	if r.Call == "ReadFiles" || r.Call == "ListDir" || r.Call == "MakeDir" {
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
	return s.handleFile(r, ev, effects), false
}

// handleDir handles the read of a directory, or its creation. It reports whether what is known of
// its files has changed.
func (s *Store) handleDir(d *Dir, r op.Record, ev world.Event, effects *op.Effects) bool {
	read, _ := ev.Body.(*world.FilesRead)
	listed, _ := ev.Body.(*world.DirListed)
	switch {
	case r.Call == "MakeDir" && ev.Err == nil:
		d.Missing, d.Failures, d.NotBefore = false, 0, time.Time{}
		return false
	case r.Call == "MakeDir":
		s.failDir(d, r, ev.Time, ev.Err, effects)
		return false
	case ev.Err.Has(world.KindNotFound):
		d.wasRead()
		d.Missing = true
		return true
	case ev.Err == nil && read != nil:
		d.wasRead()
		for i := range read.Files {
			s.load(r.Subject, &read.Files[i], ev.Time, effects)
		}
		return true
	case ev.Err == nil && listed != nil && isTooLarge(listed.Entries):
		d.wasRead()
		s.loadNames(r.Subject, listed.Entries, ev.Time, effects)
		return true
	case r.Call == "ReadFiles" && ev.Err.Has(world.KindExhausted):
		d.Listing = true // the list tells a directory that is too large from an agent without room
		return false
	}
	d.Listing = false
	return s.failDir(d, r, ev.Time, ev.Err, effects)
}

// failDir notes that a directory could not be read, or made. It reports whether images are used or
// pulled without its files from now on.
func (s *Store) failDir(d *Dir, r op.Record, at time.Time, err *world.Error,
	effects *op.Effects) (givenUp bool) {
	if err == nil {
		err = world.Errorf(world.KindExhausted, r.Call, "there was no room to read the directory")
	}
	d.Failures++
	d.NotBefore = at.Add(timer.Backoff(d.Failures, backoffInitial, backoffMax))
	if r.Call == "MakeDir" && d.Failures == 1 {
		effects.Log(world.LevelWarning, "Failed to record who may use images", "path",
			s.Dir+"/"+r.Subject, "err", err.Error())
	}
	if r.Call == "MakeDir" || d.Failures != readsMax {
		return false
	}
	d.IsRead, d.Failed = true, true
	effects.Log(world.LevelError, "Failed to read who may use images: they are pulled again", "path",
		s.Dir+"/"+r.Subject, "err", err.Error())
	return true
}

// isTooLarge reports whether a directory has more than ReadFiles reads.
func isTooLarge(entries []world.DirEntry) bool {
	files, bytes := 0, int64(0)
	for i := range entries {
		if !entries[i].Directory {
			files, bytes = files+1, bytes+entries[i].Size
		}
	}
	return files > filesMax || bytes > dirBytesMax
}

// loadNames takes the names of the files of a directory that has too many. What they say is not
// known, as if all of them were damaged; but they count for the images that they name alone, and
// are removed in their time, so the next agent finds fewer.
func (s *Store) loadNames(dir string, entries []world.DirEntry, now time.Time,
	effects *op.Effects) {
	effects.Log(world.LevelError, "Too much to read of who may use images: images with a record are "+
		"pulled again", "path", s.Dir+"/"+dir, "files", len(entries))
	for i := range entries {
		file := world.File{Name: entries[i].Name}
		switch own, _ := s.file(dir + "/" + file.Name); {
		case entries[i].Directory || s.isNoRecord(dir, &file, now, own):
		case dir == recordsDir:
			put(&s.Records, file.Name, &Record{Damaged: true})
		default:
			s.putIntent(file.Name, "", &Intent{UnknownSince: now})
		}
	}
}

// isNoRecord reports whether a file has nothing to say: it is another one, what an agent left
// unfinished, or one that this agent has written since.
func (s *Store) isNoRecord(dir string, file *world.File, now time.Time, own *File) bool {
	if strings.HasPrefix(file.Name, leftoverPrefix) && strings.Contains(file.Name, leftoverInfix) {
		s.Leftovers = append(s.Leftovers, dir+"/"+file.Name)
		return true
	}
	if i := s.Intents[file.Name]; own != nil && dir == intentsDir && len(i.Records) == 0 {
		s.foundLate(i, now)
	}
	return own != nil || !strings.HasPrefix(file.Name, filePrefix) ||
		strings.HasSuffix(file.Name, tempSuffix)
}

// load takes the content of a file of an earlier agent, unless this one has written it since. Of a
// damaged one it is known that an agent has pulled the image.
func (s *Store) load(dir string, file *world.File, now time.Time, effects *op.Effects) {
	path := dir + "/" + file.Name
	if own, _ := s.file(path); s.isNoRecord(dir, file, now, own) {
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
