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
	"seedlet.dev/world"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a port and what it has said.
type bench struct {
	t       *testing.T
	port    *disk.Port
	clock   clock.Clock
	answers chan world.Event
	mu      sync.Mutex
	changed []string
	lastOp  world.OpID
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, clock: clock.New(), answers: make(chan world.Event, 64)}
	b.port = disk.New(disk.Options{Clock: b.clock, Deliver: b.deliver, Warn: func(problem string) {
		t.Errorf("the port warns: %s", problem)
	}})
	t.Cleanup(b.port.Close)
	return b
}

func (b *bench) deliver(ev world.Event) {
	if m, ok := ev.Body.(*world.FileChanged); ok {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed = append(b.changed, m.Path)
		return
	}
	b.answers <- ev
}

// do carries out one effect and waits for its answer.
func (b *bench) do(body any) (any, *world.Error) {
	b.t.Helper()
	return b.doUntil(body, b.clock.Now().Add(time.Minute))
}

func (b *bench) doUntil(body any, deadline time.Time) (any, *world.Error) {
	b.t.Helper()
	b.lastOp++
	b.port.Do(world.Effect{Op: b.lastOp, Body: body, Deadline: deadline})
	select {
	case ev := <-b.answers:
		if ev.Op != b.lastOp || (ev.Body == nil) == (ev.Err == nil) {
			b.t.Fatalf("%s answered by %+v", world.Call(body), ev)
		}
		return ev.Body, ev.Err
	case <-time.After(10 * time.Second):
		b.t.Fatalf("%s is not answered", world.Call(body))
		return nil, nil
	}
}

func (b *bench) must(body any) any {
	b.t.Helper()
	answer, err := b.do(body)
	if err != nil {
		b.t.Fatal(err)
	}
	return answer
}

func (b *bench) mustFail(kind world.ErrorKind, says string, body any) {
	b.t.Helper()
	answer, err := b.do(body)
	if !err.Has(kind) || !strings.Contains(err.Message, says) || err.Op != world.Call(body) {
		b.t.Errorf("got %v and error %v, want %s with %q", answer, err, kind, says)
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
	b, dir := newBench(t), t.TempDir()
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
	got := b.must(&world.ReadFiles{Path: dir, FilesMax: 4, BytesMax: 10}).(*world.FilesRead)
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
	b.mustFail(world.KindExhausted, "more than 3 files",
		&world.ReadFiles{Path: dir, FilesMax: 3, BytesMax: 10})
	b.mustFail(world.KindInvalid, "pipe",
		&world.ReadFiles{Path: filepath.Join(dir, "pipe"), FilesMax: 3, BytesMax: 10})
}

func TestReadFilesOfFile(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	path := filepath.Join(dir, "pod.yaml")
	b.mustFail(world.KindNotFound, path, &world.ReadFiles{Path: path, FilesMax: 1, BytesMax: 10})
	write(t, path, "0123456789")
	got := b.must(&world.ReadFiles{Path: path, FilesMax: 1, BytesMax: 10}).(*world.FilesRead)
	if got.Directory || len(got.Files) != 1 || string(got.Files[0].Data) != "0123456789" {
		t.Errorf("read %+v", got)
	}
}

func TestListDir(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	mkdir(t, filepath.Join(dir, "sub"))
	write(t, filepath.Join(dir, "file"), "")
	if err := os.Symlink("sub", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got := b.must(&world.ListDir{Path: dir}).(*world.DirListed)
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
	b.mustFail(world.KindNotFound, "none", &world.ListDir{Path: filepath.Join(dir, "none")})
	b.mustFail(world.KindInvalid, "file", &world.ListDir{Path: filepath.Join(dir, "file")})
}

func TestMakeDir(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	path := filepath.Join(dir, "a/b/c")
	b.must(&world.MakeDir{Path: path, Mode: 0o777})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("made %v, %v; want mode 0777 whatever the umask", info.Mode(), err)
	}
	b.must(&world.MakeDir{Path: path, Mode: 0o700})
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v, %v: one that exists is left as it is", info.Mode(), err)
	}
	write(t, filepath.Join(dir, "file"), "")
	b.mustFail(world.KindExists, "file", &world.MakeDir{Path: filepath.Join(dir, "file")})
	b.mustFail(world.KindInvalid, "file", &world.MakeDir{Path: filepath.Join(dir, "file/x")})
}

func TestWriteFile(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	path := filepath.Join(dir, "state")
	for i, text := range []string{"first", "the second, longer", "", "the fourth"} {
		b.must(&world.WriteFile{Path: path, Data: []byte(text), Mode: 0o640, Volatile: i > 2})
		data, err := os.ReadFile(path)
		if err != nil || string(data) != text {
			t.Errorf("holds %q, %v; want %q", data, err, text)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	mkdir(t, filepath.Join(dir, "sub/in"))
	b.mustFail(world.KindNotFound, "none", &world.WriteFile{Path: filepath.Join(dir, "none/x")})
	if _, err := b.do(&world.WriteFile{Path: filepath.Join(dir, "sub")}); err == nil {
		t.Error("a file has replaced a directory")
	}
	if names := names(t, dir); names != "state sub" {
		t.Errorf("the directory holds %q, want nothing left of what failed", names)
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

func TestExpiredEffectIsNotBegun(t *testing.T) {
	b, dir := newBench(t), t.TempDir()
	path := filepath.Join(dir, "late")
	_, err := b.doUntil(&world.MakeDir{Path: path, Mode: 0o755}, b.clock.Now().Add(-time.Second))
	if !err.Has(world.KindCanceled) {
		t.Errorf("error %v, want Canceled", err)
	}
	if names := names(t, dir); names != "" {
		t.Errorf("made %q after its deadline", names)
	}
}
