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

// fileCase is one rule for the file system. It is checked in its own directory.
type fileCase struct {
	name string
	run  func(*folder)
}

// fileCases are rules for files and directories.
var fileCases = []fileCase{
	{"a directory is created with its parents and may exist", makesDirs},
	{"a directory does not replace a file", makesNoDirOverFile},
	{"a file is written, read and replaced", writesFile},
	{"a file is not written in a missing directory", writesOnlyInExistingDir},
	{"a file does not replace a directory", writesNoFileOverDir},
	{"reading a directory reads its regular files in order", readsDir},
	{"reading rejects files that are too large", readsNoLargeFile},
	{"reading rejects a directory with too many files", readsNoLargeDir},
	{"documents are converted within their bounds", readsDocuments},
	{"reading a missing path fails", readsMissing},
	{"a directory is listed in order", listsDir},
	{"listing a file or a missing path fails", listsNoDir},
	{"measuring files finds their sizes, and nothing else has one", measuresFiles},
	{"a tree can be removed repeatedly", removesTree},
	{"a file is removed", removesFile},
	{"a deep tree is measured and removed", removesDeepTree},
	{"the longest name can be used", usesLongestName},
	{"a longer name cannot be used, and counts as removed", refusesLongerName},
	{"a change in a watched directory is reported", watchesDir},
	{"a watched path need not exist", watchesMissingPath},
	{"a watched file may be replaced", watchesFile},
}

// FileSystem runs the suite of the file system port. Each case has its own directory.
func FileSystem(t *testing.T, w Disk) {
	cases := slices.Concat(fileCases, pathCases, linkCases, writeDirCases, groupCases, mountCases,
		bindCases, volumeMountCases)
	for i, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			f := &folder{T: t, w: w, dir: path.Join(w.Dir(), fmt.Sprintf("case-%d", i+1))}
			f.mustDo(&world.MakeDir{Path: f.dir, Mode: 0o755})
			defer f.mustDo(&world.RemoveTree{Path: f.dir})
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

// mustGet carries out an operation that must succeed and returns its result.
func mustGet[A any](f *folder, body any) A {
	f.Helper()
	result, err := f.w.Call(body)
	if err != nil {
		f.Fatalf("%s failed: %v", world.CallName(body), err)
	}
	a, ok := result.(A)
	if !ok {
		f.Fatalf("%s completed with %T", world.CallName(body), result)
	}
	return a
}

func (f *folder) check(ok bool, format string, args ...any) {
	f.Helper()
	if !ok {
		f.Errorf(format, args...)
	}
}

// mustDo carries out an operation without a result that must succeed.
func (f *folder) mustDo(body any) {
	f.Helper()
	result, err := f.w.Call(body)
	if err != nil {
		f.Fatalf("%s failed: %v", world.CallName(body), err)
	}
	if _, ok := result.(*world.Done); !ok {
		f.Fatalf("%s completed with %T", world.CallName(body), result)
	}
}

// mustFail carries out an operation that must fail with an error of one of the given kinds.
func (f *folder) mustFail(body any, kinds ...world.ErrorKind) {
	f.Helper()
	_, err := f.w.Call(body)
	if err == nil || !slices.Contains(kinds, err.Kind) {
		f.Errorf("%s: got %v, want an error of kind %v", world.CallName(body), err, kinds)
	}
}

func (f *folder) mkdir(name string) {
	f.Helper()
	f.mustDo(&world.MakeDir{Path: f.path(name), Mode: 0o755})
}

func (f *folder) write(name, content string) {
	f.Helper()
	f.mustDo(&world.WriteFile{Path: f.path(name), Data: []byte(content), Mode: 0o644})
}

// read reads a path with generous limits.
func (f *folder) read(name string) *world.FilesRead {
	f.Helper()
	result, err := f.w.Call(&world.ReadFiles{Path: f.path(name), FilesMax: 100, BytesMax: 1 << 20})
	if err != nil {
		f.Fatalf("reading %s: %v", name, err)
	}
	return result.(*world.FilesRead)
}

// content returns the content of one file.
func (f *folder) content(name string) string {
	f.Helper()
	r := f.read(name)
	if r.Directory || len(r.Files) != 1 || r.Files[0].Name != path.Base(name) {
		f.Fatalf("reading the file %s gave %+v", name, r)
	}
	return string(r.Files[0].Data)
}

// expectContent checks the content of a file.
func (f *folder) expectContent(name, want string) {
	f.Helper()
	got := f.content(name)
	f.check(got == want, "content of %s is %q, want %q", name, got, want)
}

func (f *folder) list(name string) []world.DirEntry {
	f.Helper()
	result, err := f.w.Call(&world.ListDir{Path: f.path(name)})
	if err != nil {
		f.Fatalf("listing %s: %v", name, err)
	}
	return result.(*world.DirListed).Entries
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
	f.check(f.names("a/b") == "c file", "found %q", f.names("a/b"))
	entries := f.list("a/b")
	f.check(entries[0].Directory && !entries[1].Directory, "kinds: %+v", entries)
}

func makesNoDirOverFile(f *folder) {
	f.write("file", "x")
	f.mustFail(&world.MakeDir{Path: f.path("file"), Mode: 0o755}, world.KindExists)
	f.mustFail(&world.MakeDir{Path: f.path("file/below"), Mode: 0o755}, world.KindInvalid)
	f.check(f.content("file") == "x", "the file has changed")
}

func writesFile(f *folder) {
	f.write("file", "first")
	f.expectContent("file", "first")
	f.write("file", "second, longer")
	f.expectContent("file", "second, longer")
	f.write("file", "")
	f.expectContent("file", "")
	f.check(f.names(".") == "file", "found %q", f.names("."))
}

func writesOnlyInExistingDir(f *folder) {
	f.mustFail(&world.WriteFile{Path: f.path("absent/file"), Data: []byte("x"), Mode: 0o644},
		world.KindNotFound)
	f.check(f.names(".") == "", "found %q", f.names("."))
}

func writesNoFileOverDir(f *folder) {
	f.mkdir("dir/below")
	f.mustFail(&world.WriteFile{Path: f.path("dir"), Data: []byte("x"), Mode: 0o644},
		world.KindExists, world.KindInvalid)
	f.check(f.names("dir") == "below" && f.names(".") == "dir", "found %q in %q",
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
	result, err := f.w.Call(&world.ReadFiles{Path: f.dir, FilesMax: 100, BytesMax: 4})
	if err != nil {
		f.Fatal(err)
	}
	files := result.(*world.FilesRead).Files
	f.check(len(files) == 2 && files[0].Err.Has(world.KindExhausted) && files[0].Data == nil &&
		files[1].Err == nil && bytes.Equal(files[1].Data, []byte("1234")), "read %+v", files)
	result, err = f.w.Call(&world.ReadFiles{Path: f.path("dir-file"), FilesMax: 100, BytesMax: 4})
	if err != nil {
		f.Fatal(err)
	}
	files = result.(*world.FilesRead).Files
	f.check(len(files) == 1 && files[0].Err.Has(world.KindExhausted), "read %+v", files)
}

// Documents are converted by the port: one that is known, hidden or beyond the bounds of a response
// is not there, and one that is too large or no document has an error.
func readsDocuments(f *folder) {
	for _, file := range [][2]string{{".a", "a: 1"}, {"dir-b", "a: [1, 2]"}, {"dir-c", "a: 3"},
		{"dir-d", "# none"}, {"dir-e", "a: ["}, {"dir-f", "[1, 2, 3, 4, 5, 6, 7, 8, 9]"},
		{"dir-g", "g: 1"}, {"dir-h", "h: [1, 2]"}} {
		f.write(file[0], file[1])
	}
	request := &world.ReadFiles{Path: f.dir, FilesMax: 100, BytesMax: 100,
		Documents: &world.Documents{BytesMax: 100, ValuesMax: 8}}
	read := func() string {
		result, err := f.w.Call(request)
		if err != nil {
			f.Fatal(err)
		}
		lines := ""
		request.Documents.Known = map[string]string{}
		for _, file := range result.(*world.FilesRead).Files {
			f.check(len(file.Sum) == 64 && file.Data == nil, "%+v", file)
			line := string(file.Doc)
			switch {
			case file.Err != nil:
				line = string(file.Err.Kind)
			case file.Omitted:
				line = "omitted"
			}
			if !file.Omitted {
				request.Documents.Known[file.Name] = file.Sum
			}
			lines += file.Name + " " + line + "; "
		}
		return lines
	}
	first, second := read(), read()
	f.check(first == `.a ; dir-b {"a":[1,2]}; dir-c {"a":3}; dir-d ; dir-e Invalid; `+
		`dir-f Exhausted; dir-g omitted; dir-h omitted; `, "first %s", first)
	f.check(second == ".a ; dir-b ; dir-c ; dir-d ; dir-e ; dir-f ; "+
		`dir-g {"g":1}; dir-h {"h":[1,2]}; `, "second %s", second)
}

func readsNoLargeDir(f *folder) {
	for i := range 4 {
		f.write(fmt.Sprint("file", i), "x")
	}
	f.mustFail(&world.ReadFiles{Path: f.dir, FilesMax: 3, BytesMax: 100}, world.KindExhausted)
	_, err := f.w.Call(&world.ReadFiles{Path: f.dir, FilesMax: 4, BytesMax: 100})
	f.check(err == nil, "a directory with the maximum number of files: %v", err)
	f.mustFail(&world.ReadFiles{Path: f.dir, FilesMax: 4, BytesMax: 100, SumMax: 3},
		world.KindExhausted)
	_, err = f.w.Call(&world.ReadFiles{Path: f.dir, FilesMax: 4, BytesMax: 100, SumMax: 4})
	f.check(err == nil, "a directory with the maximum number of bytes: %v", err)
}

func readsMissing(f *folder) {
	f.mustFail(&world.ReadFiles{Path: f.path("absent"), FilesMax: 9, BytesMax: 9}, world.KindNotFound)
	f.write("file", "x")
	f.mustFail(&world.ReadFiles{Path: f.path("file/below"), FilesMax: 9, BytesMax: 9},
		world.KindInvalid)
}

func listsDir(f *folder) {
	before := f.w.Now()
	f.write("b", "")
	f.mkdir("c")
	f.write("a", "")
	f.check(f.names(".") == "a b c", "found %q", f.names("."))
	f.check(f.names("c") == "", "found %q", f.names("c"))
	for _, e := range f.list(".") {
		// The kernel's clock for file times may be a few milliseconds behind.
		early := e.ModTime.Before(before.Add(-time.Second))
		f.check(!early && !e.ModTime.After(f.w.Now()), "%s changed at %v", e.Name, e.ModTime)
	}
}

func listsNoDir(f *folder) {
	f.mustFail(&world.ListDir{Path: f.path("absent")}, world.KindNotFound)
	f.write("file", "x")
	f.mustFail(&world.ListDir{Path: f.path("file")}, world.KindInvalid)
}

func measuresFiles(f *folder) {
	f.write("empty", "")
	f.write("full", "12345")
	f.mkdir("directory")
	f.mustDo(&world.MakeLink{Path: f.path("link"), Target: f.path("full")})
	f.write("directory/below", "123")
	f.mustDo(&world.MakeLink{Path: f.path("shortcut"), Target: f.path("directory")})
	names := []string{"full", "absent", "directory", "empty", "link", "absent/full", "directory/below",
		"shortcut/below"}
	result, err := f.w.Call(&world.MeasureFiles{Dir: f.path("."), Paths: names})
	if err != nil {
		f.Fatalf("measuring: %v", err)
	}
	got := result.(*world.FilesMeasured).Sizes
	const none = world.NotMeasured
	want := []int64{5, none, none, 0, none, none, 3, none}
	f.check(slices.Equal(got, want), "the sizes of %v are %v, want %v", names, got, want)
}

func removesTree(f *folder) {
	f.mkdir("tree/a/b/c")
	f.write("tree/a/file", "x")
	f.write("tree/file", "x")
	f.write("beside", "x")
	for range 2 {
		f.mustDo(&world.RemoveTree{Path: f.path("tree")})
		f.check(f.names(".") == "beside", "found %q", f.names("."))
	}
	f.mustDo(&world.RemoveTree{Path: f.path("absent/below")})
}

func removesFile(f *folder) {
	f.write("file", "x")
	f.write("file2", "x")
	f.mustDo(&world.RemoveTree{Path: f.path("file")})
	f.check(f.names(".") == "file2", "found %q", f.names("."))
}

func removesDeepTree(f *folder) {
	const levels = 1000
	f.mkdir("tree" + strings.Repeat("/d", levels))
	f.write("tree/d/file", "x")
	got := mustGet[*world.TreeMeasured](f, &world.MeasureTree{Path: f.path("tree")})
	f.check(got.Inodes == levels+2 && !got.Unfinished, "measured %+v", got)
	f.mustDo(&world.ShareWithGroup{Path: f.path("tree"), GID: group})
	f.expectModes(map[string]uint32{"tree" + strings.Repeat("/d", levels): 0o2775})
	f.mustDo(&world.RemoveTree{Path: f.path("tree")})
	f.check(f.names(".") == "", "found %q", f.names("."))
}

func usesLongestName(f *folder) {
	longest := strings.Repeat("n", world.NameBytesMax)
	f.mkdir("dir/" + longest)
	f.check(f.names("dir") == longest, "found %q", f.names("dir"))
	f.mustDo(&world.RemoveTree{Path: f.path("dir/" + longest)})
	for _, content := range []string{"first", "second"} {
		f.write("dir/"+longest, content)
		f.expectContent("dir/"+longest, content)
	}
	f.mustDo(&world.RemoveTree{Path: f.path("dir/" + longest)})
	for _, target := range []string{"first", "second"} {
		f.link("dir/"+longest, target)
		f.check(f.links("dir") == longest+"="+target+"!", "links %q", f.links("dir"))
	}
	f.mustDo(&world.RemoveTree{Path: f.path("dir/" + longest)})
	f.check(f.names("dir") == "", "found %q", f.names("dir"))
	f.writeDir("volume", longest+"=1")
	f.expectContent("volume/"+longest, "1")
}

func refusesLongerName(f *folder) {
	name := strings.Repeat("n", world.NameBytesMax+1)
	f.write("file", "x")
	f.mkdir("volume")
	longer := f.path(name)
	for _, body := range []any{
		&world.MakeDir{Path: longer, Mode: 0o755},
		&world.MakeDir{Path: longer + "/below", Mode: 0o755},
		&world.MakeFile{Path: longer, Mode: 0o644},
		&world.MakeLink{Path: longer, Target: "file"},
		&world.WriteFile{Path: longer, Data: []byte("x"), Mode: 0o644},
		&world.WriteDir{Path: longer, Files: filesOf("a=1")},
		&world.WriteDir{Path: f.path("volume"), Files: filesOf(name + "=1")},
		&world.WriteDir{Path: f.path("volume"), Files: filesOf("a/" + name + "/b=1")},
		&world.Rename{From: f.path("file"), To: longer},
		&world.ReadFiles{Path: longer, FilesMax: 9, BytesMax: 9},
		&world.ReadTail{Path: longer, BytesMax: 9},
		&world.ReadInVolume{Root: f.dir, Path: name, BytesMax: 9},
		&world.StatPath{Path: longer},
		&world.ListDir{Path: longer},
		&world.ReadLinks{Path: longer},
		&world.Compress{Path: longer},
		&world.ShareWithGroup{Path: longer, GID: group},
		&world.MountMemory{Path: longer, BytesMax: 1 << 20, Mode: 0o777},
		&world.BindSubPath{Root: f.dir, SubPath: "volume", Target: longer},
		&world.MeasureTree{Path: longer},
		&world.MeasureFilesystem{Path: longer},
	} {
		f.mustFail(body, world.KindInvalid)
	}
	f.mustDo(&world.Unmount{Path: longer})
	f.mustDo(&world.RemoveTree{Path: longer})
	f.mustDo(&world.RemoveTree{Path: longer + "/below"})
	f.mustDo(&world.RemoveTree{Path: f.path("absent/" + name)})
	f.mustFail(&world.RemoveTree{Path: f.path("file/" + name)}, world.KindInvalid)
	f.check(f.names(".") == "file volume" && f.names("volume") == "", "found %q and %q", f.names("."),
		f.names("volume"))
}

// waitForChange waits for FileChanged events and reports whether the path was among them.
func (f *folder) waitForChange(name string) bool {
	for late := f.w.Now().Add(Patience); f.w.Now().Before(late); {
		f.w.Sleep(100 * time.Millisecond)
		if slices.Contains(f.w.Changed(), f.path(name)) {
			return true
		}
	}
	return false
}

func (f *folder) watch(name string) {
	f.w.Send(&world.Watch{Path: f.path(name)})
	f.w.Sleep(500 * time.Millisecond)
	f.w.Changed()
}

func watchesDir(f *folder) {
	f.mkdir("dir")
	f.watch("dir")
	f.write("dir/file", "x")
	f.check(f.waitForChange("dir"), "a new file was not reported")
	f.w.Sleep(time.Second)
	f.w.Changed()
	f.mustDo(&world.RemoveTree{Path: f.path("dir/file")})
	f.check(f.waitForChange("dir"), "a removed file was not reported")
}

func watchesMissingPath(f *folder) {
	f.watch("later")
	f.mkdir("later")
	f.check(f.waitForChange("later"), "the new directory was not reported")
	f.w.Sleep(time.Second)
	f.w.Changed()
	f.write("later/file", "x")
	f.check(f.waitForChange("later"), "a file in the new directory was not reported")
	f.w.Sleep(time.Second)
	f.w.Changed()
	f.mustDo(&world.RemoveTree{Path: f.path("later")})
	f.check(f.waitForChange("later"), "the removed directory was not reported")
}

func watchesFile(f *folder) {
	f.write("file", "x")
	f.watch("file")
	f.write("file", "y")
	f.check(f.waitForChange("file"), "the new content was not reported")
	f.w.Sleep(time.Second)
	f.w.Changed()
	f.write("file", "z")
	f.check(f.waitForChange("file"), "the second new content was not reported")
}
