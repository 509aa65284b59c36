package loopcsi

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"seedlet.dev/realworld/replacefile"
)

// store is the directory of one or more drivers:
//
//	nodes/NODE.json                        a nodeRecord
//	volumes/ID/image                       the sparse file; its size is the capacity
//	volumes/ID/record.json                 a record, written when the image is complete
//	volumes/ID/attached/NODE.json          an attachment
//	volumes/ID/staging                     where an ephemeral volume is mounted
//	snapshots/ID/{image,record.json}       as of a volume
type store struct {
	dir        string // without symbolic links, as the kernel reports images
	capacity   int64
	allocating sync.Mutex // held while an image gets its size
}

// record is what a volume or snapshot was made with. A directory without one is incomplete.
type record struct {
	Name       string
	SnapshotID string    `json:",omitempty"` // of a volume: its content source
	Zone       string    `json:",omitempty"`
	Ephemeral  bool      `json:",omitempty"`
	VolumeID   string    `json:",omitempty"` // of a snapshot: its source
	Created    time.Time `json:",omitzero"`
}

// nodeRecord is what a driver says of its node.
type nodeRecord struct {
	Zone       string `json:",omitempty"`
	VolumesMax int64  `json:",omitempty"`
}

// attachment is a volume that is published to a node by the controller.
type attachment struct {
	ReadOnly bool
	Block    bool
	Mode     csi.VolumeCapability_AccessMode_Mode
}

func openStore(dir string, capacity int64) (*store, error) {
	for _, name := range []string{"nodes", "volumes", "snapshots"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, fmt.Errorf("opening the store: %w", err)
		}
	}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the store: %w", err)
	}
	return &store{dir: dir, capacity: capacity}, nil
}

// item is a volume or snapshot. The ID of one that has a name follows from it, so a repeated
// creation finds the first.
type item struct{ what, id, dir string }

func (s *store) volume(id string) item {
	return item{"volume", id, filepath.Join(s.dir, "volumes", id)}
}

func (s *store) snapshot(id string) item {
	return item{"snapshot", id, filepath.Join(s.dir, "snapshots", id)}
}

func idOf(prefix, name string) string {
	sum := sha256.Sum256([]byte(name))
	return prefix + hex.EncodeToString(sum[:16])
}

func (i item) image() string { return filepath.Join(i.dir, "image") }

// privateStaging is where an ephemeral volume is mounted, which has no staging path.
func (i item) privateStaging() string { return filepath.Join(i.dir, "staging") }

func (i item) recordFile() string { return filepath.Join(i.dir, "record.json") }

func (i item) attachedFile(node string) string {
	return filepath.Join(i.dir, "attached", node+".json")
}

func (i item) notFound() error { return status.Errorf(codes.NotFound, "no %s %s", i.what, i.id) }

// readRecord returns the record of a complete volume or snapshot, or NOT_FOUND.
func (i item) readRecord() (record, error) {
	var r record
	err := readJSON(i.recordFile(), &r)
	if errors.Is(err, fs.ErrNotExist) {
		err = i.notFound()
	}
	return r, err
}

// read returns the record and size of a complete volume or snapshot, or NOT_FOUND.
func (i item) read() (record, int64, error) {
	r, err := i.readRecord()
	if err != nil {
		return r, 0, err
	}
	info, err := os.Stat(i.image())
	if err != nil {
		return r, 0, fmt.Errorf("%s %s: %w", i.what, i.id, err)
	}
	return r, info.Size(), nil
}

// write completes a volume or snapshot.
func (i item) write(r record) error { return writeJSON(i.recordFile(), r) }

// remove removes a volume or snapshot, first its record: what is left after a crash is incomplete.
func (i item) remove() error {
	err := os.Remove(i.recordFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing %s %s: %w", i.what, i.id, err)
	}
	if err := os.RemoveAll(i.dir); err != nil {
		return fmt.Errorf("removing %s %s: %w", i.what, i.id, err)
	}
	return nil
}

// lock locks a volume or snapshot that exists, complete or not, or returns NOT_FOUND or ABORTED.
// The lock is flock(2) of the directory, so it holds between processes and ends with this one.
func (i item) lock() (release func(), err error) {
	dir, err := os.Open(i.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, i.notFound()
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s %s: %w", i.what, i.id, err)
	}
	release = func() {
		_ = unlockFile(dir) // before the closing, as a child may have a copy until its exec
		_ = dir.Close()     // nothing was written
	}
	locked, err := lockFile(dir)
	if err == nil && !locked {
		err = status.Errorf(codes.Aborted, "another call works on %s %s", i.what, i.id)
	}
	if err == nil {
		// Another call may have removed the directory, and even made it again.
		var opened, current fs.FileInfo
		if opened, err = dir.Stat(); err == nil {
			current, err = os.Stat(i.dir)
		}
		if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(opened, current) {
			err = i.notFound()
		}
	}
	if err != nil {
		_ = dir.Close() // also ends the lock; nothing was written
		return nil, err
	}
	return release, nil
}

// lockNew locks a volume or snapshot, whose directory is made if it is missing.
func (i item) lockNew() (release func(), err error) {
	if err := os.MkdirAll(i.dir, 0o700); err != nil {
		return nil, fmt.Errorf("making %s %s: %w", i.what, i.id, err)
	}
	release, err = i.lock()
	if status.Code(err) == codes.NotFound { // removed meanwhile
		err = status.Errorf(codes.Aborted, "another call works on %s %s", i.what, i.id)
	}
	return release, err
}

// lockIfThere locks a volume, or does nothing if there is none.
func (i item) lockIfThere() (release func(), err error) {
	release, err = i.lock()
	if status.Code(err) == codes.NotFound {
		return func() {}, nil
	}
	return release, err
}

// items returns all complete volumes or snapshots, sorted by ID.
func (s *store) items(of func(id string) item) ([]item, error) {
	entries, err := os.ReadDir(filepath.Dir(of("any").dir))
	if err != nil {
		return nil, fmt.Errorf("listing: %w", err)
	}
	var all []item
	for _, e := range entries {
		i := of(e.Name())
		if _, err := os.Stat(i.recordFile()); err == nil {
			all = append(all, i)
		}
	}
	return all, nil
}

// allocate gives an image a size that the capacity has room for; it never shrinks one.
func (s *store) allocate(i item, size int64) error {
	s.allocating.Lock()
	defer s.allocating.Unlock()
	free, err := s.free()
	if err != nil {
		return err
	}
	var had int64
	if info, err := os.Stat(i.image()); err == nil {
		had = info.Size()
	}
	switch {
	case had >= size:
		return nil
	case size-had > free:
		return status.Errorf(codes.ResourceExhausted, "%d bytes: there are %d", size-had, free)
	}
	image, err := os.OpenFile(i.image(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("making %s %s: %w", i.what, i.id, err)
	}
	if err := errors.Join(image.Truncate(size), image.Close()); err != nil {
		return fmt.Errorf("making %s %s: %w", i.what, i.id, err)
	}
	return nil
}

// free returns how many bytes no image has.
func (s *store) free() (int64, error) {
	images, err := filepath.Glob(filepath.Join(s.dir, "*", "*", "image"))
	if err != nil {
		return 0, fmt.Errorf("listing images: %w", err)
	}
	free := s.capacity
	for _, image := range images {
		if info, err := os.Stat(image); err == nil { // or it was just removed
			free -= info.Size()
		}
	}
	return max(free, 0), nil
}

func (s *store) nodeFile(id string) string { return filepath.Join(s.dir, "nodes", id+".json") }

func (s *store) writeNode(id string, r nodeRecord) error { return writeJSON(s.nodeFile(id), r) }

// readNode returns the record of a node, or NOT_FOUND.
func (s *store) readNode(id string) (nodeRecord, error) {
	var r nodeRecord
	err := readJSON(s.nodeFile(id), &r)
	if errors.Is(err, fs.ErrNotExist) {
		return r, status.Errorf(codes.NotFound, "no node %s", id)
	}
	return r, err
}

// zones returns the zones of all nodes.
func (s *store) zones() (map[string]bool, error) {
	names, err := jsonNames(filepath.Join(s.dir, "nodes"))
	if err != nil {
		return nil, err
	}
	zones := map[string]bool{}
	for _, name := range names {
		r, err := s.readNode(name)
		if err != nil {
			return nil, err
		}
		zones[r.Zone] = true
	}
	delete(zones, "")
	return zones, nil
}

// attachments returns the attachments of a volume, by node.
func (i item) attachments() (map[string]attachment, error) {
	nodes, err := jsonNames(filepath.Dir(i.attachedFile("any")))
	if err != nil {
		return nil, err
	}
	all := map[string]attachment{}
	for _, node := range nodes {
		var a attachment
		if err := readJSON(i.attachedFile(node), &a); err != nil {
			return nil, err
		}
		all[node] = a
	}
	return all, nil
}

// jsonNames returns the names of a directory's JSON files, without their suffix.
func jsonNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("listing: %w", err)
	}
	var names []string
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".json")
		if is && validID.MatchString(name) { // not a file that is being written
			names = append(names, name)
		}
	}
	return names, nil
}

func readJSON(path string, into any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

func writeJSON(path string, from any) error {
	data, err := json.Marshal(from)
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return replacefile.Write(path, data, 0o700)
}
