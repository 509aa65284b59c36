package allocation

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"seedlet.dev/core/document"
	"seedlet.dev/core/op"
	"seedlet.dev/core/timer"
	"seedlet.dev/world"
)

// Component is the component part of the keys of the files.
const Component = "allocation"

// The names of the kubelet's checkpoint files, in its root directory.
const (
	AllocatedFile = "allocated_pods_state"
	ActuatedFile  = "actuated_pods_state"
)

const (
	fileTimeout    = 2 * time.Minute
	fileBytesMax   = 64 << 20
	filePermission = 0o600
	dirPermission  = 0o750
	readsMax       = 3 // failed reads after which a file counts as empty
	backoffInitial = time.Second
	backoffMax     = time.Minute
	// recordedMax bounds the pods in a file, which is written as a whole. A node runs 110 pods by
	// default. Others are not resized.
	recordedMax = 1024
)

// The bounds of bytes of a file. One pod may take a 64th of it; what a pod within its budget
// (package budget) needs is less. Half of the file is for entries of at most smallBytes, which is
// as much as thirty containers with requests and limits need: so there is room for each pod of an
// ordinary size, whatever the others name.
const (
	recordedBytesMax = 8 << 20
	entryBytesMax    = recordedBytesMax / 64
	smallBytes       = recordedBytesMax / 2 / recordedMax
	largeBytesMax    = recordedBytesMax - recordedMax*smallBytes // of all entries that are larger
)

// Store holds both files.
type Store struct {
	Dir       string `json:"dir"` // of the files
	Allocated File   `json:"allocated"`
	Actuated  File   `json:"actuated"`
	// Waiting are the UIDs of the pods that are planned again after the next write, sorted.
	Waiting []string `json:"waiting,omitempty"`
}

// File is one file: what it is to hold, and how much of that is on the disk.
type File struct {
	Loaded  bool              `json:"loaded"` // read, or known not to exist
	Pods    map[string]*Entry `json:"pods,omitempty"`
	Changes uint64            `json:"changes,omitempty"` // of Pods, so far
	// LargeBytes are the bytes of the entries that are larger than smallBytes.
	LargeBytes int `json:"largeBytes,omitempty"`
	// Stored is the number of changes that the content on the disk has; Writing that of the write in
	// flight.
	Stored      uint64 `json:"stored,omitempty"`
	Writing     uint64 `json:"writing,omitempty"`
	StoredHash  uint64 `json:"storedHash,omitempty"` // of the content
	WritingHash uint64 `json:"writingHash,omitempty"`
	// Unreadable is set if there may be a file whose content this agent does not know.
	Unreadable bool `json:"unreadable,omitempty"`
	// DirMissing is set if the last write has found no directory.
	DirMissing bool       `json:"dirMissing,omitempty"`
	Op         world.OpID `json:"op,omitempty"`
	Failures   int        `json:"failures,omitempty"`
	NotBefore  time.Time  `json:"notBefore"`
}

// Entry is what a file holds of one pod.
type Entry struct {
	Resources Resources `json:"resources"`
	Change    uint64    `json:"change"` // that made it
	encoded   []byte    // Resources, as the file has them; nil until they are needed
}

// Keys returns the keys of both files.
func Keys() []timer.Key {
	return []timer.Key{{Component: Component, Name: AllocatedFile},
		{Component: Component, Name: ActuatedFile}}
}

// IsLoaded reports whether both files were read.
func (s *Store) IsLoaded() bool { return s.Allocated.Loaded && s.Actuated.Loaded }

func (s *Store) file(name string) *File {
	if name == ActuatedFile {
		return &s.Actuated
	}
	return &s.Allocated
}

// Get returns what a file is to hold of a pod; nil if nothing.
func (f *File) Get(uid string) *Entry { return f.Pods[uid] }

// IsStored reports whether a pod's entry is on the disk.
func (f *File) IsStored(uid string) bool {
	e := f.Pods[uid]
	return e != nil && e.Change <= f.Stored
}

// Set sets what the file is to hold of a pod, and reports whether it can. It is called only if that
// has changed.
func (f *File) Set(uid string, r Resources) bool {
	known := f.Pods[uid]
	if known == nil && len(f.Pods) >= recordedMax {
		return false
	}
	e := &Entry{Resources: r, Change: f.Changes + 1, encoded: r.encode()}
	large := f.LargeBytes + e.largeBytes() - known.largeBytes()
	if len(e.encoded) > entryBytesMax || e.largeBytes() > 0 && large > largeBytesMax {
		return false
	}
	if f.Pods == nil {
		f.Pods = map[string]*Entry{}
	}
	f.Changes++
	f.LargeBytes, f.Pods[uid] = large, e
	return true
}

// largeBytes returns the bytes of an entry if it is larger than smallBytes; otherwise zero.
func (e *Entry) largeBytes() int {
	if e == nil || len(e.bytes()) <= smallBytes {
		return 0
	}
	return len(e.bytes())
}

// Remove removes a pod. Nothing waits for that: the next write leaves it out.
func (f *File) Remove(uid string) {
	f.LargeBytes -= f.Pods[uid].largeBytes()
	delete(f.Pods, uid)
}

// Retain removes the pods that are not kept.
func (s *Store) Retain(keep func(uid string) bool) {
	for _, f := range []*File{&s.Allocated, &s.Actuated} {
		for uid := range f.Pods { //ordered: each by itself
			if !keep(uid) {
				f.Remove(uid)
			}
		}
	}
}

// SetActuated sets what a pod and its containers have; it reports whether that is a change.
func (s *Store) SetActuated(uid string, amounts map[string]Amounts,
	pod *v1.ResourceRequirements) bool {
	f := &s.Actuated
	if e := f.Pods[uid]; e != nil && len(amounts) == len(e.Resources.Containers) {
		same := equality.Semantic.DeepEqual(e.Resources.Pod, pod)
		for name, a := range amounts { //ordered: whether all are the same
			known, exists := e.Resources.Containers[name]
			same = same && exists && amountsOf(&known) == a
		}
		if same {
			return false
		}
	}
	r := Resources{Containers: make(map[string]v1.ResourceRequirements, len(amounts)), Pod: pod}
	for name, a := range amounts { //ordered: into a map
		r.Containers[name] = a.requirements()
	}
	return f.Set(uid, r)
}

// MustWait reports whether a pod has to wait with its start until what is allocated to it is on the
// disk, and has it planned then. A disk that cannot be written to holds up no pod.
func (s *Store) MustWait(uid string) bool {
	f := &s.Allocated
	if e := f.Pods[uid]; e == nil || e.Change <= f.Stored || f.Failures > 0 {
		return false
	}
	if at, found := slices.BinarySearch(s.Waiting, uid); !found {
		s.Waiting = slices.Insert(s.Waiting, at, uid)
	}
	return true
}

// RecordedAmounts returns what a container of a pod had when that was recorded last; false if it
// was not.
func (s *Store) RecordedAmounts(uid, container string) (Amounts, bool) {
	return recorded(&s.Actuated, uid, container)
}

// RecordedWhole returns what a pod as a whole had when that was recorded last; nil if it was not.
func (s *Store) RecordedWhole(uid string) *v1.ResourceRequirements {
	if e := s.Actuated.Pods[uid]; e != nil {
		return e.Resources.Pod
	}
	return nil
}

func recorded(f *File, uid, container string) (Amounts, bool) {
	e := f.Pods[uid]
	if e == nil {
		return Amounts{}, false
	}
	r, known := e.Resources.Containers[container]
	return amountsOf(&r), known
}

// Plan reads a file, then keeps it up to date. It returns when to be called again.
func (s *Store) Plan(key timer.Key, effects *op.Effects) time.Time {
	f, path := s.file(key.Name), s.Dir+"/"+key.Name
	switch {
	case f.Op != 0:
		return time.Time{}
	case effects.Now().Before(f.NotBefore):
		return f.NotBefore
	case !f.Loaded:
		f.Op = effects.Issue(key, path, fileTimeout,
			&world.ReadFiles{Path: path, FilesMax: 1, BytesMax: fileBytesMax})
	case f.DirMissing:
		f.Op = effects.Issue(key, s.Dir, fileTimeout, &world.MakeDir{Path: s.Dir, Mode: dirPermission})
	case f.Changes != f.Stored:
		text := f.text()
		if f.Writing, f.WritingHash = f.Changes, hashOf(text); f.WritingHash == f.StoredHash {
			f.Stored = f.Changes // a pod has gone and come back
			return time.Time{}
		}
		f.Op = effects.Issue(key, path, fileTimeout,
			&world.WriteFile{Path: path, Data: encode(text), Mode: filePermission})
	}
	return time.Time{}
}

// HandleCompletion handles the completion of a read or a write.
func (s *Store) HandleCompletion(r op.Record, ev world.Event, effects *op.Effects) {
	f := s.file(r.Owner.Name)
	f.Op = 0
	failed := ev.Err
	switch body := ev.Body.(type) {
	case *world.FilesRead:
		if failed == nil && len(body.Files) == 1 {
			if failed = body.Files[0].Err; failed == nil {
				f.load(body.Files[0].Data, r.Subject, effects)
			}
		}
	case *world.Done:
		if failed == nil && r.Call == "WriteFile" {
			f.Stored, f.StoredHash = f.Writing, f.WritingHash
		}
	}
	f.DirMissing = r.Call == "WriteFile" && failed.Has(world.KindNotFound)
	if f.DirMissing {
		return
	}
	if r.Call == "ReadFiles" && (failed == nil || failed.Has(world.KindNotFound)) {
		f.Loaded, failed = true, nil
	}
	if failed == nil {
		f.Failures, f.NotBefore = 0, time.Time{}
		return
	}
	if r.Call == "WriteFile" {
		f.StoredHash = 0 // the file may have the old content, or the new one
	}
	f.Failures++
	f.NotBefore = ev.Time.Add(timer.Backoff(f.Failures, backoffInitial, backoffMax))
	switch {
	case r.Call == "ReadFiles" && f.Failures >= readsMax:
		f.Loaded, f.Unreadable, f.Failures, f.NotBefore = true, true, 0, time.Time{}
		effects.Log(world.LevelError, "the recorded resources of pods cannot be read: "+insteadOfRecord,
			"path", r.Subject, "err", failed.Error())
	case r.Call != "ReadFiles" && f.Failures == 1:
		effects.Log(world.LevelWarning, "the resources of pods cannot be recorded: no pod is resized "+
			"until they can", "path", r.Subject, "err", failed.Error())
	}
}

// insteadOfRecord is what counts if a record is lost, in messages.
const insteadOfRecord = "pods have the resources of their containers, as far as these are known, " +
	"or of their specs"

// checkpoint is the content of a file (Checkpoint in pkg/kubelet/allocation/state/checkpoint.go).
type checkpoint struct {
	Data     string `json:"data"`
	Checksum uint64 `json:"checksum"`
}

// load takes the content of the file. A damaged one counts as empty.
func (f *File) load(data []byte, path string, effects *op.Effects) {
	var c checkpoint
	var content struct {
		Entries map[string]Resources `json:"entries"`
	}
	err := json.Unmarshal(data, &c)
	if err == nil && c.Checksum != checksum(c.Data) {
		err = fmt.Errorf("checksum: %d, and that of the data is %d", c.Checksum, checksum(c.Data))
	}
	if err == nil {
		_, err = document.Decode([]byte(c.Data), &content)
	}
	if err != nil {
		f.Unreadable = true
		effects.Log(world.LevelError, "the recorded resources of pods are damaged and count as none: "+
			insteadOfRecord, "path", path, "err", err.Error())
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(content.Entries)) {
		if f.Pods[uid] == nil && len(f.Pods) < recordedMax {
			f.Set(uid, content.Entries[uid])
		}
	}
	f.StoredHash = hashOf(c.Data)
	if f.text() == c.Data { // pods that were added meanwhile may have other resources
		f.Stored = f.Changes
	}
}

// encode returns the content of a file with the data.
func encode(text string) []byte {
	content, err := json.Marshal(checkpoint{Data: text, Checksum: checksum(text)})
	if err != nil {
		panic("allocation: a file cannot be encoded: " + err.Error())
	}
	return content
}

// text returns the data in the file.
func (f *File) text() string {
	data := []byte(`{"entries":{`)
	for i, uid := range slices.Sorted(maps.Keys(f.Pods)) {
		if i > 0 {
			data = append(data, ',')
		}
		data = strconv.AppendQuote(data, uid)
		data = append(append(data, ':'), f.Pods[uid].bytes()...)
	}
	return string(data) + "}}"
}

func (e *Entry) bytes() []byte {
	if e.encoded == nil {
		e.encoded = e.Resources.encode()
	}
	return e.encoded
}

func (r *Resources) encode() []byte {
	encoded, err := json.Marshal(r)
	if err != nil {
		panic("allocation: resources cannot be encoded: " + err.Error())
	}
	return encoded
}

// hashOf returns a hash of a text that tells contents apart.
func hashOf(text string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(text))
	return h.Sum64()
}

// checksum returns the kubelet's checksum of a text (pkg/kubelet/checkpointmanager/checksum).
func checksum(text string) uint64 {
	h := fnv.New32a()
	h.Write([]byte("(string)" + text)) // as dump.ForHash of k8s.io/utils
	return uint64(h.Sum32())
}
