package parity

import (
	"bytes"
	"compress/gzip"
	"io"
	"strings"

	"seedlet.dev/world"
)

// pathCases are rules for single files.
var pathCases = []fileCase{
	{"a listing has the sizes of files", listsSizes},
	{"the end of a file is read", readsTail},
	{"only the end of a regular file is read", readsTailOfFilesOnly},
	{"a file in a volume is read, and none outside of it", readsInVolume},
	{"the kind and size of a path are returned", statsPath},
	{"an empty file is created, an existing file is unchanged", makesFile},
	{"a file is not created over another object", makesNoFile},
	{"a file is renamed and can replace another", renames},
	{"an exclusive rename replaces nothing", renamesExclusively},
	{"an impossible rename fails", renameErrors},
	{"a file can be compressed repeatedly", compresses},
	{"compression resumes after a crash", compressResumes},
	{"only a regular file is compressed", compressErrors},
	{"a tree is measured", measuresTree},
	{"measuring a missing path fails", measuresMissing},
	{"the file system of a path is measured", measuresFilesystem},
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
	a := mustGet[*world.TailRead](f, &world.ReadTail{Path: f.path(name), BytesMax: bytesMax})
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
	f.mustFail(&world.ReadTail{Path: f.path("absent"), BytesMax: 9}, world.KindNotFound)
}

// A container decides what is at the path of its termination message.
func readsTailOfFilesOnly(f *folder) {
	f.write("file", "secret")
	f.mkdir("dir")
	f.link("link", "file")
	f.link("dangling", "nowhere")
	f.w.MakeSpecial(f.path("pipe"), world.PathOther)
	f.w.MakeSpecial(f.path("socket"), world.PathSocket)
	for _, name := range []string{"dir", "link", "dangling", "pipe", "socket"} {
		f.mustFail(&world.ReadTail{Path: f.path(name), BytesMax: 9}, world.KindInvalid)
	}
	f.link("way", ".")
	data, _ := f.tail("way/file", 9)
	f.check(data == "secret", "through a link on the way: %q", data)
}

// A container may write anything into a volume while the agent reads a file of it.
func readsInVolume(f *folder) {
	f.write("secret", "s")
	f.mkdir("volume/dir")
	f.write("volume/dir/file", "12345")
	f.link("volume/link", "dir/file")
	f.link("volume/absolute", "/dir/file")
	f.link("volume/dir/up", "../../../dir/file")
	f.link("volume/way", "dir")
	for _, p := range []string{"dir/file", "./dir//file", "link", "absolute", "dir/up", "way/file"} {
		read := mustGet[*world.FilesRead](f, &world.ReadInVolume{Root: f.path("volume"), Path: p,
			BytesMax: 5})
		f.check(!read.Directory && len(read.Files) == 1 && string(read.Files[0].Data) == "12345",
			"%s: read %+v", p, read)
	}
	f.link("volume/out", "../secret")
	f.link("volume/elsewhere", f.path("secret"))
	f.link("volume/dangling", "nowhere")
	f.link("volume/loop", "loop")
	f.w.MakeSpecial(f.path("volume/pipe"), world.PathOther)
	f.w.MakeSpecial(f.path("volume/socket"), world.PathSocket)
	for _, c := range []struct {
		path string
		kind world.ErrorKind
	}{
		{"out", world.KindNotFound}, {"elsewhere", world.KindNotFound},
		{"dangling", world.KindNotFound}, {"absent/file", world.KindNotFound},
		{"loop", world.KindInvalid}, {"pipe", world.KindInvalid}, {"socket", world.KindInvalid},
		{"dir", world.KindInvalid}, {"dir/file/x", world.KindInvalid},
	} {
		f.mustFail(&world.ReadInVolume{Root: f.path("volume"), Path: c.path, BytesMax: 5}, c.kind)
	}
	f.mustFail(&world.ReadInVolume{Root: f.path("volume"), Path: "link", BytesMax: 4},
		world.KindExhausted)
	f.mustFail(&world.ReadInVolume{Root: f.path("none"), Path: "file", BytesMax: 4},
		world.KindNotFound)
}

func (f *folder) stat(name string) world.PathInfo {
	f.Helper()
	return *mustGet[*world.PathInfo](f, &world.StatPath{Path: f.path(name)})
}

func statsPath(f *folder) {
	f.mkdir("dir")
	f.write("file", "12345")
	f.w.MakeSpecial(f.path("pipe"), world.PathOther)
	f.w.MakeSpecial(f.path("socket"), world.PathSocket)
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
	f.mustFail(&world.StatPath{Path: f.path("absent")}, world.KindNotFound)
	f.mustFail(&world.StatPath{Path: f.path("dangling")}, world.KindNotFound)
	f.mustFail(&world.StatPath{Path: f.path("loop")}, world.KindInvalid)
	f.mustFail(&world.StatPath{Path: f.path("file/below")}, world.KindInvalid)
}

func makesFile(f *folder) {
	f.mustDo(&world.MakeFile{Path: f.path("file"), Mode: 0o666})
	f.expectContent("file", "")
	mode, _ := f.w.ModeAndGroup(f.path("file"))
	f.check(mode == 0o666, "mode %o", mode)
	f.write("kept", "x")
	f.mustDo(&world.MakeFile{Path: f.path("kept"), Mode: 0o666})
	f.expectContent("kept", "x")
	mode, _ = f.w.ModeAndGroup(f.path("kept"))
	f.check(mode == 0o644, "mode %o", mode)
	f.link("link", "kept")
	f.mustDo(&world.MakeFile{Path: f.path("link"), Mode: 0o666})
}

func makesNoFile(f *folder) {
	f.mkdir("dir")
	f.link("dangling", "nowhere")
	f.w.MakeSpecial(f.path("pipe"), world.PathOther)
	for _, name := range []string{"dir", "dangling", "pipe"} {
		f.mustFail(&world.MakeFile{Path: f.path(name), Mode: 0o644}, world.KindExists)
	}
	f.mustFail(&world.MakeFile{Path: f.path("absent/file"), Mode: 0o644}, world.KindNotFound)
	f.check(f.names(".") == "dangling dir pipe", "found %q", f.names("."))
}

func renames(f *folder) {
	f.mkdir("dir")
	f.write("a", "a")
	f.write("b", "b")
	f.mustDo(&world.Rename{From: f.path("a"), To: f.path("dir/c")})
	f.check(f.names(".") == "b dir" && f.content("dir/c") == "a", "found %q", f.names("."))
	f.mustDo(&world.Rename{From: f.path("b"), To: f.path("dir/c")})
	f.check(f.names(".") == "dir" && f.content("dir/c") == "b", "found %q", f.names("."))
	f.mustDo(&world.Rename{From: f.path("dir/c"), To: f.path("dir/c")})
	f.link("link", "dir/c")
	f.mustDo(&world.Rename{From: f.path("link"), To: f.path("moved")})
	f.check(f.links(".") == "moved=dir/c", "links %q", f.links("."))
}

func renamesExclusively(f *folder) {
	f.write("a", "a")
	f.write("b", "b")
	f.mustFail(&world.Rename{From: f.path("a"), To: f.path("b"), Exclusive: true}, world.KindExists)
	f.check(f.content("a") == "a" && f.content("b") == "b", "found %q", f.names("."))
	f.mustDo(&world.Rename{From: f.path("a"), To: f.path("c"), Exclusive: true})
	f.check(f.names(".") == "b c" && f.content("c") == "a", "found %q", f.names("."))
}

func renameErrors(f *folder) {
	f.mkdir("dir")
	f.write("file", "x")
	f.mustFail(&world.Rename{From: f.path("absent"), To: f.path("file")}, world.KindNotFound)
	f.mustFail(&world.Rename{From: f.path("file"), To: f.path("absent/x")}, world.KindNotFound)
	f.mustFail(&world.Rename{From: f.path("file"), To: f.path("dir")}, world.KindExists,
		world.KindInvalid)
	f.mustFail(&world.Rename{From: f.path("file"), To: f.path("file/x")}, world.KindInvalid)
	f.check(f.names(".") == "dir file" && f.content("file") == "x", "found %q", f.names("."))
}

// unzipped returns the content of a compressed file.
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
		f.mustDo(&world.Compress{Path: f.path("log")})
		f.check(f.names(".") == "log.gz", "found %q", f.names("."))
		f.check(f.unzipped("log.gz") == text, "the content has changed")
		f.check(f.list(".")[0].Size < 1000, "%d bytes", f.list(".")[0].Size)
	}
	f.mustFail(&world.Compress{Path: f.path("absent")}, world.KindNotFound)
}

// As if the agent was killed after it had created log.gz and before it removed log.
func compressResumes(f *folder) {
	f.write("log", "text")
	f.write("log.gz", "what an earlier attempt left")
	f.mustDo(&world.Compress{Path: f.path("log")})
	f.check(f.names(".") == "log.gz" && f.unzipped("log.gz") == "text", "found %q",
		f.names("."))
}

func compressErrors(f *folder) {
	f.mkdir("dir")
	f.write("file", "x")
	f.link("link", "file")
	f.w.MakeSpecial(f.path("pipe"), world.PathOther)
	for _, name := range []string{"dir", "link", "pipe"} {
		f.mustFail(&world.Compress{Path: f.path(name)}, world.KindInvalid)
	}
	f.check(f.names(".") == "dir file link pipe", "found %q", f.names("."))
}

func (f *folder) measure(name string) world.TreeMeasured {
	f.Helper()
	return *mustGet[*world.TreeMeasured](f, &world.MeasureTree{Path: f.path(name)})
}

func measuresTree(f *folder) {
	f.mkdir("tree/sub")
	empty := f.measure("tree")
	f.check(empty.Inodes == 2, "of two directories: %+v", empty)
	f.write("tree/large", strings.Repeat("x", 1<<20))
	f.write("tree/sub/small", strings.Repeat("x", 100))
	f.write("outside", strings.Repeat("x", 1<<20))
	f.link("tree/link", "../outside")
	m := f.measure("tree")
	grown := m.Bytes - empty.Bytes
	f.check(m.Inodes == 5 && grown >= 1<<20 && grown < 1<<20+1<<18, "whole tree: %+v, before %+v",
		m, empty)
	m = f.measure("outside")
	f.check(m.Inodes == 1 && m.Bytes >= 1<<20, "of a file: %+v", m)
}

func measuresMissing(f *folder) {
	f.mustFail(&world.MeasureTree{Path: f.path("absent")}, world.KindNotFound)
	f.mustFail(&world.MeasureFilesystem{Path: f.path("absent")}, world.KindNotFound)
}

// measuresFilesystem uses a tmpfs as the second file system.
func measuresFilesystem(f *folder) {
	f.mkdir("dir/sub")
	measure := func(name string) world.FilesystemMeasured {
		return *mustGet[*world.FilesystemMeasured](f, &world.MeasureFilesystem{Path: f.path(name)})
	}
	f.link("link", "dir/sub")
	whole, below, linked := measure("."), measure("dir/sub"), measure("link")
	f.check(whole.Device == below.Device && below.Device == linked.Device &&
		whole.CapacityBytes == below.CapacityBytes && whole.Inodes == below.Inodes,
		"one file system: %+v, %+v, %+v", whole, below, linked)
	f.check(whole.AvailableBytes > 0 && whole.AvailableBytes < whole.CapacityBytes &&
		whole.InodesFree > 0 && whole.InodesFree < whole.Inodes, "of the directory: %+v", whole)
	f.check(whole.FreeBytes >= whole.AvailableBytes && whole.FreeBytes < whole.CapacityBytes,
		"free without the part of root: %+v", whole)
	f.mustDo(&world.MountMemory{Path: f.path("memory"), BytesMax: 4 << 20, Mode: 0o777})
	defer f.mustDo(&world.Unmount{Path: f.path("memory")})
	before := measure("memory")
	f.write("memory/large", strings.Repeat("x", 1<<20))
	after := measure("memory/large")
	f.check(before.Device != whole.Device && after.Device == before.Device &&
		before.CapacityBytes == 4<<20 && after.CapacityBytes == 4<<20, "a tmpfs: %+v", after)
	used := before.AvailableBytes - after.AvailableBytes
	f.check(used >= 1<<20 && used < 1<<20+1<<16, "%d bytes used by a file of 1 MiB", used)
}
