package parity

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	"seedlet.dev/world"
)

// pathCases are of single files: what is at a path, its end, its name.
var pathCases = []fileCase{
	{"listing tells the sizes of files", listsSizes},
	{"the end of a file is read", readsTail},
	{"the end of what is no regular file is not read", readsNoOddTail},
	{"looking tells what is at a path", statsPath},
	{"an empty file is made and one that exists left alone", makesFile},
	{"a file is not made where something else is", makesNoFile},
	{"a file is renamed, also over another", renames},
	{"a file is renamed over no other", renamesExclusively},
	{"a file is not renamed to where it cannot be", renamesNot},
	{"a file is compressed, once or twice", compresses},
	{"compressing begins again over an unfinished end", compressesAgain},
	{"compressing refuses what is no regular file", compressesNot},
	{"a tree is measured", measures},
	{"measuring what is not there", measuresNothing},
}

func listsSizes(f *folder) {
	f.mkdir("dir")
	f.write("empty", "")
	f.write("five", "12345")
	f.link("link", "five")
	for _, e := range f.list(".") {
		want := int64(0)
		if e.Name == "five" {
			want = 5
		}
		f.check(e.Size == want, "%s has size %d", e.Name, e.Size)
	}
}

func (f *folder) tail(name string, bytesMax int64) (string, bool) {
	f.Helper()
	a := get[*world.TailRead](f, &world.ReadTail{Path: f.path(name), BytesMax: bytesMax})
	return string(a.Data), a.Truncated
}

func readsTail(f *folder) {
	f.write("file", "0123456789")
	f.write("empty", "")
	for _, c := range []struct {
		name      string
		bytesMax  int64
		data      string
		truncated bool
	}{
		{"file", 4, "6789", true},
		{"file", 10, "0123456789", false},
		{"file", 100, "0123456789", false},
		{"file", 0, "", true},
		{"empty", 4, "", false},
	} {
		data, truncated := f.tail(c.name, c.bytesMax)
		f.check(data == c.data && truncated == c.truncated, "the last %d bytes of %s: %q %t",
			c.bytesMax, c.name, data, truncated)
	}
	f.fails(&world.ReadTail{Path: f.path("absent"), BytesMax: 9}, world.KindNotFound)
}

// A container chooses what is where its termination message is read.
func readsNoOddTail(f *folder) {
	f.write("file", "secret")
	f.mkdir("dir")
	f.link("link", "file")
	f.link("dangling", "nowhere")
	f.w.Put(f.path("pipe"), world.PathOther)
	f.w.Put(f.path("socket"), world.PathSocket)
	for _, name := range []string{"dir", "link", "dangling", "pipe", "socket"} {
		f.fails(&world.ReadTail{Path: f.path(name), BytesMax: 9}, world.KindInvalid)
	}
	f.link("way", ".")
	data, _ := f.tail("way/file", 9)
	f.check(data == "secret", "through a link on the way: %q", data)
}

func (f *folder) stat(name string) world.PathInfo {
	f.Helper()
	return *get[*world.PathInfo](f, &world.StatPath{Path: f.path(name)})
}

func statsPath(f *folder) {
	f.mkdir("dir")
	f.write("file", "12345")
	f.w.Put(f.path("pipe"), world.PathOther)
	f.w.Put(f.path("socket"), world.PathSocket)
	f.link("to-file", "file")
	f.link("to-dir", f.path("dir"))
	f.link("to-link", "to-file")
	f.link("dangling", "nowhere")
	f.link("loop", "loop")
	for name, want := range map[string]world.PathInfo{ //ordered: the cases are independent
		"dir": {Kind: world.PathDirectory}, "to-dir": {Kind: world.PathDirectory},
		"file": {Kind: world.PathFile, Size: 5}, "to-file": {Kind: world.PathFile, Size: 5},
		"to-link": {Kind: world.PathFile, Size: 5},
		"pipe":    {Kind: world.PathOther}, "socket": {Kind: world.PathSocket},
	} {
		f.check(f.stat(name) == want, "%s is %+v", name, f.stat(name))
	}
	f.fails(&world.StatPath{Path: f.path("absent")}, world.KindNotFound)
	f.fails(&world.StatPath{Path: f.path("dangling")}, world.KindNotFound)
	f.fails(&world.StatPath{Path: f.path("loop")}, world.KindInvalid)
	f.fails(&world.StatPath{Path: f.path("file/below")}, world.KindInvalid)
}

func makesFile(f *folder) {
	f.done(&world.MakeFile{Path: f.path("file"), Mode: 0o666})
	f.says("file", "")
	mode, _ := f.w.Perms(f.path("file"))
	f.check(mode == 0o666, "mode %o", mode)
	f.write("kept", "x")
	f.done(&world.MakeFile{Path: f.path("kept"), Mode: 0o666})
	f.says("kept", "x")
	mode, _ = f.w.Perms(f.path("kept"))
	f.check(mode == 0o644, "mode %o", mode)
	f.link("link", "kept")
	f.done(&world.MakeFile{Path: f.path("link"), Mode: 0o666})
}

func makesNoFile(f *folder) {
	f.mkdir("dir")
	f.link("dangling", "nowhere")
	f.w.Put(f.path("pipe"), world.PathOther)
	for _, name := range []string{"dir", "dangling", "pipe"} {
		f.fails(&world.MakeFile{Path: f.path(name), Mode: 0o644}, world.KindExists)
	}
	f.fails(&world.MakeFile{Path: f.path("absent/file"), Mode: 0o644}, world.KindNotFound)
	f.check(f.names(".") == "dangling dir pipe", "there is %q", f.names("."))
}

func renames(f *folder) {
	f.mkdir("dir")
	f.write("a", "a")
	f.write("b", "b")
	f.done(&world.Rename{From: f.path("a"), To: f.path("dir/c")})
	f.check(f.names(".") == "b dir" && f.content("dir/c") == "a", "there is %q", f.names("."))
	f.done(&world.Rename{From: f.path("b"), To: f.path("dir/c")})
	f.check(f.names(".") == "dir" && f.content("dir/c") == "b", "there is %q", f.names("."))
	f.done(&world.Rename{From: f.path("dir/c"), To: f.path("dir/c")})
	f.link("link", "dir/c")
	f.done(&world.Rename{From: f.path("link"), To: f.path("moved")})
	f.check(f.links(".") == "moved=dir/c", "links %q", f.links("."))
}

func renamesExclusively(f *folder) {
	f.write("a", "a")
	f.write("b", "b")
	f.fails(&world.Rename{From: f.path("a"), To: f.path("b"), Exclusive: true}, world.KindExists)
	f.check(f.content("a") == "a" && f.content("b") == "b", "there is %q", f.names("."))
	f.done(&world.Rename{From: f.path("a"), To: f.path("c"), Exclusive: true})
	f.check(f.names(".") == "b c" && f.content("c") == "a", "there is %q", f.names("."))
}

func renamesNot(f *folder) {
	f.mkdir("dir")
	f.write("file", "x")
	f.fails(&world.Rename{From: f.path("absent"), To: f.path("file")}, world.KindNotFound)
	f.fails(&world.Rename{From: f.path("file"), To: f.path("absent/x")}, world.KindNotFound)
	f.fails(&world.Rename{From: f.path("file"), To: f.path("dir")}, world.KindExists,
		world.KindInvalid)
	f.fails(&world.Rename{From: f.path("file"), To: f.path("file/x")}, world.KindInvalid)
	f.check(f.names(".") == "dir file" && f.content("file") == "x", "there is %q", f.names("."))
}

// unzipped is the content of a compressed file.
func (f *folder) unzipped(name string) string {
	f.Helper()
	r, err := gzip.NewReader(bytes.NewReader([]byte(f.content(name))))
	if err != nil {
		f.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if err != nil {
		f.Fatal(err)
	}
	return string(data)
}

func compresses(f *folder) {
	text := strings.Repeat("the same line again\n", 1000)
	f.write("log", text)
	for range 2 {
		f.done(&world.Compress{Path: f.path("log")})
		f.check(f.names(".") == "log.gz", "there is %q", f.names("."))
		f.check(f.unzipped("log.gz") == text, "the content has changed")
		f.check(f.list(".")[0].Size < 1000, "%d bytes", f.list(".")[0].Size)
	}
	f.fails(&world.Compress{Path: f.path("absent")}, world.KindNotFound)
}

// The agent was killed after log.gz was there and before log was gone.
func compressesAgain(f *folder) {
	f.write("log", "text")
	f.write("log.gz", "what an earlier attempt left")
	f.done(&world.Compress{Path: f.path("log")})
	f.check(f.names(".") == "log.gz" && f.unzipped("log.gz") == "text", "there is %q",
		f.names("."))
}

func compressesNot(f *folder) {
	f.mkdir("dir")
	f.write("file", "x")
	f.link("link", "file")
	f.w.Put(f.path("pipe"), world.PathOther)
	for _, name := range []string{"dir", "link", "pipe"} {
		f.fails(&world.Compress{Path: f.path(name)}, world.KindInvalid)
	}
	f.check(f.names(".") == "dir file link pipe", "there is %q", f.names("."))
}

func (f *folder) measure(name string) world.TreeMeasured {
	f.Helper()
	return *get[*world.TreeMeasured](f, &world.MeasureTree{Path: f.path(name)})
}

func measures(f *folder) {
	f.mkdir("tree/sub")
	empty := f.measure("tree")
	f.check(empty.Inodes == 2, "of two directories: %+v", empty)
	f.write("tree/large", strings.Repeat("x", 1<<20))
	f.write("tree/sub/small", strings.Repeat("x", 100))
	f.write("outside", strings.Repeat("x", 1<<20))
	f.link("tree/link", "../outside")
	m := f.measure("tree")
	grown := m.Bytes - empty.Bytes
	f.check(m.Inodes == 5 && grown >= 1<<20 && grown < 1<<20+1<<18, "of all: %+v, before %+v",
		m, empty)
	m = f.measure("outside")
	f.check(m.Inodes == 1 && m.Bytes >= 1<<20, "of a file: %+v", m)
}

func measuresNothing(f *folder) {
	f.fails(&world.MeasureTree{Path: f.path("absent")}, world.KindNotFound)
}
