package disk_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"seedlet.dev/realworld/clock"
	"seedlet.dev/realworld/disk"
	"seedlet.dev/realworld/porttest"
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// harness is a port with its completions and changes.
type harness struct {
	t           *testing.T
	port        *disk.Port
	clock       clock.Clock
	completions chan world.Event
	mu          sync.Mutex
	changes     []string
	fence       string // a watched path, see settle
	lastOp      world.OpID
	warn        func(problem string)
}

func newHarness(t *testing.T) *harness {
	h := &harness{t: t, clock: clock.New(), completions: make(chan world.Event, 64)}
	h.warn = func(problem string) { t.Errorf("unexpected warning: %s", problem) }
	h.port = disk.New(disk.Options{Clock: h.clock, Deliver: h.deliver,
		Warn: func(problem string) { h.warn(problem) }})
	t.Cleanup(h.port.Close)
	return h
}

func (h *harness) deliver(ev world.Event) {
	if m, ok := ev.Body.(*world.FileChanged); ok {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.changes = append(h.changes, m.Path)
		return
	}
	h.completions <- ev
}

// do carries out one effect and returns its result.
func (h *harness) do(body any) (any, *world.Error) {
	h.t.Helper()
	return h.doUntil(body, h.clock.Now().Add(porttest.Patience))
}

func (h *harness) doUntil(body any, deadline time.Time) (any, *world.Error) {
	h.t.Helper()
	h.lastOp++
	h.port.Do(world.Effect{Op: h.lastOp, Body: body, Deadline: deadline})
	select {
	case ev := <-h.completions:
		if ev.Op != h.lastOp || (ev.Body == nil) == (ev.Err == nil) {
			h.t.Fatalf("%s completed by %+v", world.CallName(body), ev)
		}
		return ev.Body, ev.Err
	case <-time.After(porttest.Patience):
		h.t.Fatalf("%s is not completed", world.CallName(body))
		return nil, nil
	}
}

func (h *harness) must(body any) any {
	h.t.Helper()
	result, err := h.do(body)
	if err != nil {
		h.t.Fatal(err)
	}
	return result
}

func (h *harness) mustFail(kind world.ErrorKind, text string, body any) {
	h.t.Helper()
	result, err := h.do(body)
	if !err.Has(kind) || !strings.Contains(err.Message, text) || err.Op != world.CallName(body) {
		h.t.Errorf("got %v and error %v, want %s with %q", result, err, kind, text)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadFilesOfDirectory(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	write(t, filepath.Join(dir, "b.yaml"), "bee")
	write(t, filepath.Join(dir, "a.yaml"), "ay")
	write(t, filepath.Join(dir, "large"), strings.Repeat("x", 11))
	mkdir(t, filepath.Join(dir, "sub"))
	if err := os.Symlink("a.yaml", filepath.Join(dir, "c.yaml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	got := h.must(&world.ReadFiles{Path: dir, FilesMax: 4, BytesMax: 10}).(*world.FilesRead)
	var lines []string
	for _, f := range got.Files {
		lines = append(lines, fmt.Sprintf("%s=%s %t", f.Name, f.Data, f.Err != nil))
	}
	want := "a.yaml=ay false, b.yaml=bee false, c.yaml=ay false, large= true"
	if s := strings.Join(lines, ", "); s != want || !got.Directory {
		t.Errorf("read %q of directory %t, want %q", s, got.Directory, want)
	}
	if !got.Files[3].Err.Has(world.KindExhausted) {
		t.Errorf("the large file has error %v", got.Files[3].Err)
	}
	h.mustFail(world.KindExhausted, "more than 3 files",
		&world.ReadFiles{Path: dir, FilesMax: 3, BytesMax: 10})
	h.mustFail(world.KindExhausted, "at b.yaml, the files of "+dir+" have more than 4 bytes",
		&world.ReadFiles{Path: dir, FilesMax: 4, BytesMax: 10, SumMax: 4})
	h.mustFail(world.KindInvalid, "pipe",
		&world.ReadFiles{Path: filepath.Join(dir, "pipe"), FilesMax: 3, BytesMax: 10})
}

func TestReadFilesOfFile(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	path := filepath.Join(dir, "pod.yaml")
	h.mustFail(world.KindNotFound, path, &world.ReadFiles{Path: path, FilesMax: 1, BytesMax: 10})
	write(t, path, "0123456789")
	got := h.must(&world.ReadFiles{Path: path, FilesMax: 1, BytesMax: 10}).(*world.FilesRead)
	if got.Directory || len(got.Files) != 1 || string(got.Files[0].Data) != "0123456789" {
		t.Errorf("read %+v", got)
	}
}

func TestListDir(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	mkdir(t, filepath.Join(dir, "sub"))
	write(t, filepath.Join(dir, "file"), "")
	if err := os.Symlink("sub", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got := h.must(&world.ListDir{Path: dir}).(*world.DirListed)
	var lines []string
	for _, e := range got.Entries {
		lines = append(lines, fmt.Sprintf("%s %t", e.Name, e.Directory))
		if age := time.Since(e.ModTime); age < -time.Minute || age > time.Minute {
			t.Errorf("%s is %v old", e.Name, age)
		}
	}
	if s := strings.Join(lines, ", "); s != "file false, link false, sub true" {
		t.Errorf("listed %q", s)
	}
	h.mustFail(world.KindNotFound, "none", &world.ListDir{Path: filepath.Join(dir, "none")})
	h.mustFail(world.KindInvalid, "file", &world.ListDir{Path: filepath.Join(dir, "file")})
	if err := makePipe(filepath.Join(dir, "pipe")); err != nil {
		t.Fatal(err)
	}
	h.mustFail(world.KindInvalid, "pipe", &world.ListDir{Path: filepath.Join(dir, "pipe")})
}

func TestMakeDir(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	path := filepath.Join(dir, "a/b/c")
	h.must(&world.MakeDir{Path: path, Mode: 0o777})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("created %v, %v; want mode 0777 whatever the umask", info.Mode(), err)
	}
	h.must(&world.MakeDir{Path: path, Mode: 0o700})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v, %v: want an existing directory unchanged", info.Mode(), err)
	}
	write(t, filepath.Join(dir, "file"), "")
	h.mustFail(world.KindExists, "file", &world.MakeDir{Path: filepath.Join(dir, "file")})
	h.mustFail(world.KindInvalid, "file", &world.MakeDir{Path: filepath.Join(dir, "file/x")})
}

func TestWriteFile(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	path := filepath.Join(dir, "state")
	for i, text := range []string{"first", "the second, longer", "", "the fourth"} {
		h.must(&world.WriteFile{Path: path, Data: []byte(text), Mode: 0o640, Volatile: i > 2})
		data, err := os.ReadFile(path)
		if err != nil || string(data) != text {
			t.Errorf("content %q, %v; want %q", data, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	mkdir(t, filepath.Join(dir, "sub/in"))
	h.mustFail(world.KindNotFound, "none", &world.WriteFile{Path: filepath.Join(dir, "none/x")})
	if _, err := h.do(&world.WriteFile{Path: filepath.Join(dir, "sub")}); err == nil {
		t.Error("a file replaced a directory")
	}
	if names := names(t, dir); names != "state sub" {
		t.Errorf("the directory has %q, want no leftovers of failed writes", names)
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestExpiredEffectIsNotStarted(t *testing.T) {
	h, dir := newHarness(t), t.TempDir()
	path := filepath.Join(dir, "late")
	_, err := h.doUntil(&world.MakeDir{Path: path, Mode: 0o755}, h.clock.Now().Add(-time.Second))
	if !err.Has(world.KindCanceled) {
		t.Errorf("error %v, want Canceled", err)
	}
	if names := names(t, dir); names != "" {
		t.Errorf("created %q after its deadline", names)
	}
}
