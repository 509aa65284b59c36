package parity

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"seedlet.dev/world"
)

// fileCase is a rule, and a function that checks it in a directory of its own.
type fileCase struct {
	name string
	run  func(*folder)
}

// fileCases are of plain files and directories.
var fileCases = []fileCase{
	{"a directory is made with its parents, and may exist", makesDirs},
	{"a directory is not made where a file is", makesNoDirOverFile},
	{"a file is written, read and replaced", writesFile},
	{"a file is not written where its directory is missing", writesNoOrphan},
	{"a file is not written where a directory is", writesNoFileOverDir},
	{"reading a directory reads its regular files in order", readsDir},
	{"reading leaves out what is too large", readsNoLargeFile},
	{"reading refuses a directory with too many files", readsNoLargeDir},
	{"reading what is not there", readsNothing},
	{"listing a directory in order", listsDir},
	{"listing what is no directory", listsNothing},
	{"a tree is removed, once or twice", removesTree},
	{"a file is removed", removesFile},
	{"a change in a watched directory is told", watchesDir},
	{"a watched path need not exist", watchesNothing},
	{"a watched file may be replaced", watchesFile},
}

// FileSystem runs the suite of the file system port. Each case has a directory of its own.
func FileSystem(t *testing.T, w Disk) {
	cases := slices.Concat(fileCases, pathCases, linkCases, writeDirCases, groupCases, mountCases,
		bindCases)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := &folder{T: t, w: w, dir: path.Join(w.Dir(), fmt.Sprintf("case-%d", i+1))}
			f.done(&world.MakeDir{Path: f.dir, Mode: 0o755})
			defer f.done(&world.RemoveTree{Path: f.dir})
			c.run(f)
		})
	}
}

// folder is the directory of one case.
type folder struct {
	*testing.T
	w   Disk
	dir string
}

func (f *folder) path(name string) string { return path.Join(f.dir, name) }

// get carries out an effect that has to succeed and returns its answer.
func get[A any](f *folder, body any) A {
	f.Helper()
	answer, err := f.w.Call(body)
	if err != nil {
		f.Fatalf("%s failed: %v", world.Call(body), err)
	}
	a, ok := answer.(A)
	if !ok {
		f.Fatalf("%s was answered by %T", world.Call(body), answer)
	}
	return a
}

func (f *folder) check(is bool, format string, args ...any) {
	f.Helper()
	if !is {
		f.Errorf(format, args...)
	}
}

// done carries out an effect that has to succeed.
func (f *folder) done(body any) {
	f.Helper()
	answer, err := f.w.Call(body)
	if err != nil {
		f.Fatalf("%s failed: %v", world.Call(body), err)
	}
	if _, ok := answer.(*world.Done); !ok {
		f.Fatalf("%s was answered by %T", world.Call(body), answer)
	}
}

// fails carries out an effect that has to fail with an error of one of the given kinds.
func (f *folder) fails(body any, kinds ...world.ErrorKind) {
	f.Helper()
	_, err := f.w.Call(body)
	if err == nil || !slices.Contains(kinds, err.Kind) {
		f.Errorf("%s: got %v, want an error of kind %v", world.Call(body), err, kinds)
	}
}

func (f *folder) mkdir(name string) {
	f.Helper()
	f.done(&world.MakeDir{Path: f.path(name), Mode: 0o755})
}

func (f *folder) write(name, content string) {
	f.Helper()
	f.done(&world.WriteFile{Path: f.path(name), Data: []byte(content), Mode: 0o644})
}

// read reads a path with generous bounds.
func (f *folder) read(name string) *world.FilesRead {
	f.Helper()
	answer, err := f.w.Call(&world.ReadFiles{Path: f.path(name), FilesMax: 100, BytesMax: 1 << 20})
	if err != nil {
		f.Fatalf("reading %s: %v", name, err)
	}
	return answer.(*world.FilesRead)
}

// content is the content of one file.
func (f *folder) content(name string) string {
	f.Helper()
	r := f.read(name)
	if r.Directory || len(r.Files) != 1 || r.Files[0].Name != path.Base(name) {
		f.Fatalf("reading the file %s gave %+v", name, r)
	}
	return string(r.Files[0].Data)
}

// says checks the content of a file.
func (f *folder) says(name, want string) {
	f.Helper()
	got := f.content(name)
	f.check(got == want, "content of %s is %q, want %q", name, got, want)
}

func (f *folder) list(name string) []world.DirEntry {
	f.Helper()
	answer, err := f.w.Call(&world.ListDir{Path: f.path(name)})
	if err != nil {
		f.Fatalf("listing %s: %v", name, err)
	}
	return answer.(*world.DirListed).Entries
}

func (f *folder) names(name string) string {
	f.Helper()
	var names []string
	for _, e := range f.list(name) {
		names = append(names, e.Name)
	}
	return strings.Join(names, " ")
}

func makesDirs(f *folder) {
	f.mkdir("a/b/c")
	f.write("a/b/file", "x")
	f.mkdir("a/b/c")
	f.mkdir("a")
	f.check(f.names("a/b") == "c file", "there is %q", f.names("a/b"))
	entries := f.list("a/b")
	f.check(entries[0].Directory && !entries[1].Directory, "kinds: %+v", entries)
}

func makesNoDirOverFile(f *folder) {
	f.write("file", "x")
	f.fails(&world.MakeDir{Path: f.path("file"), Mode: 0o755}, world.KindExists)
	f.fails(&world.MakeDir{Path: f.path("file/below"), Mode: 0o755}, world.KindInvalid)
	f.check(f.content("file") == "x", "the file has changed")
}

func writesFile(f *folder) {
	f.write("file", "first")
	f.says("file", "first")
	f.write("file", "second, longer")
	f.says("file", "second, longer")
	f.write("file", "")
	f.says("file", "")
	f.check(f.names(".") == "file", "there is %q", f.names("."))
}

func writesNoOrphan(f *folder) {
	f.fails(&world.WriteFile{Path: f.path("absent/file"), Data: []byte("x"), Mode: 0o644},
		world.KindNotFound)
	f.check(f.names(".") == "", "there is %q", f.names("."))
}

func writesNoFileOverDir(f *folder) {
	f.mkdir("dir/below")
	f.fails(&world.WriteFile{Path: f.path("dir"), Data: []byte("x"), Mode: 0o644},
		world.KindExists, world.KindInvalid)
	f.check(f.names("dir") == "below" && f.names(".") == "dir", "there is %q in %q",
		f.names("dir"), f.names("."))
}

func readsDir(f *folder) {
	f.mkdir("dir/sub")
	f.write("dir/sub/deep", "not this")
	f.write("dir/b", "2")
	f.write("dir/a", "1")
	f.write("dir/.hidden", "0")
	r := f.read("dir")
	got := ""
	for _, file := range r.Files {
		got += fmt.Sprintf("%s=%s ", file.Name, file.Data)
	}
	f.check(r.Directory && got == ".hidden=0 a=1 b=2 ", "directory %v: %s", r.Directory, got)
	empty := f.read("dir/sub")
	f.check(len(empty.Files) == 1, "%d files", len(empty.Files))
}

func readsNoLargeFile(f *folder) {
	f.write("dir-file", "12345")
	f.write("small", "1234")
	answer, err := f.w.Call(&world.ReadFiles{Path: f.dir, FilesMax: 100, BytesMax: 4})
	if err != nil {
		f.Fatal(err)
	}
	files := answer.(*world.FilesRead).Files
	f.check(len(files) == 2 && files[0].Err.Has(world.KindExhausted) && files[0].Data == nil &&
		files[1].Err == nil && bytes.Equal(files[1].Data, []byte("1234")), "read %+v", files)
	answer, err = f.w.Call(&world.ReadFiles{Path: f.path("dir-file"), FilesMax: 100, BytesMax: 4})
	if err != nil {
		f.Fatal(err)
	}
	files = answer.(*world.FilesRead).Files
	f.check(len(files) == 1 && files[0].Err.Has(world.KindExhausted), "read %+v", files)
}

func readsNoLargeDir(f *folder) {
	for i := range 4 {
		f.write(fmt.Sprint("file", i), "x")
	}
	f.fails(&world.ReadFiles{Path: f.dir, FilesMax: 3, BytesMax: 100}, world.KindExhausted)
	_, err := f.w.Call(&world.ReadFiles{Path: f.dir, FilesMax: 4, BytesMax: 100})
	f.check(err == nil, "as many as allowed: %v", err)
}

func readsNothing(f *folder) {
	f.fails(&world.ReadFiles{Path: f.path("absent"), FilesMax: 9, BytesMax: 9}, world.KindNotFound)
	f.write("file", "x")
	f.fails(&world.ReadFiles{Path: f.path("file/below"), FilesMax: 9, BytesMax: 9},
		world.KindInvalid)
}

func listsDir(f *folder) {
	before := f.w.Now()
	f.write("b", "")
	f.mkdir("c")
	f.write("a", "")
	f.check(f.names(".") == "a b c", "there is %q", f.names("."))
	f.check(f.names("c") == "", "there is %q", f.names("c"))
	for _, e := range f.list(".") {
		// The kernel's clock for files may be a few milliseconds behind.
		early := e.ModTime.Before(before.Add(-time.Second))
		f.check(!early && !e.ModTime.After(f.w.Now()), "%s changed at %v", e.Name, e.ModTime)
	}
}

func listsNothing(f *folder) {
	f.fails(&world.ListDir{Path: f.path("absent")}, world.KindNotFound)
	f.write("file", "x")
	f.fails(&world.ListDir{Path: f.path("file")}, world.KindInvalid)
}

func removesTree(f *folder) {
	f.mkdir("tree/a/b/c")
	f.write("tree/a/file", "x")
	f.write("tree/file", "x")
	f.write("beside", "x")
	for range 2 {
		f.done(&world.RemoveTree{Path: f.path("tree")})
		f.check(f.names(".") == "beside", "there is %q", f.names("."))
	}
	f.done(&world.RemoveTree{Path: f.path("absent/below")})
}

func removesFile(f *folder) {
	f.write("file", "x")
	f.write("file2", "x")
	f.done(&world.RemoveTree{Path: f.path("file")})
	f.check(f.names(".") == "file2", "there is %q", f.names("."))
}

// told waits for changes to be told, and reports whether this path was among them.
func (f *folder) told(name string) bool {
	for range 30 {
		f.w.Sleep(100 * time.Millisecond)
		if slices.Contains(f.w.Changed(), f.path(name)) {
			return true
		}
	}
	return false
}

func (f *folder) watch(name string) {
	f.w.Tell(&world.Watch{Path: f.path(name)})
	f.w.Sleep(500 * time.Millisecond)
	f.w.Changed()
}

func watchesDir(f *folder) {
	f.mkdir("dir")
	f.watch("dir")
	f.write("dir/file", "x")
	f.check(f.told("dir"), "a new file was not told")
	f.w.Sleep(time.Second)
	f.w.Changed()
	f.done(&world.RemoveTree{Path: f.path("dir/file")})
	f.check(f.told("dir"), "a removed file was not told")
}

func watchesNothing(f *folder) {
	f.watch("later")
	f.mkdir("later")
	f.check(f.told("later"), "the new directory was not told")
	f.w.Sleep(time.Second)
	f.w.Changed()
	f.write("later/file", "x")
	f.check(f.told("later"), "a file in the new directory was not told")
	f.w.Sleep(time.Second)
	f.w.Changed()
	f.done(&world.RemoveTree{Path: f.path("later")})
	f.check(f.told("later"), "the removed directory was not told")
}

func watchesFile(f *folder) {
	f.write("file", "x")
	f.watch("file")
	f.write("file", "y")
	f.check(f.told("file"), "the new content was not told")
	f.w.Sleep(time.Second)
	f.w.Changed()
	f.write("file", "z")
	f.check(f.told("file"), "the second new content was not told")
}
