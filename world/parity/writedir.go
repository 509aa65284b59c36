package parity

import (
	"strings"

	"seedlet.dev/world"
)

// writeDirCases are rules for WriteDir.
var writeDirCases = []fileCase{
	{"a directory is written as links to hidden files", writesWholeDir},
	{"unchanged content is not written again", writesDirOnlyIfChanged},
	{"new content replaces all files", rewritesDir},
	{"a directory can be written without files", writesEmptyDir},
	{"files can be in subdirectories", writesDeepDir},
	{"other files in the directory are kept", writeDirKeepsForeignFiles},
	{"leftovers of a killed agent are removed", writesDirAfterCrash},
	{"other files with the same names stay", writeDirLeavesForeignNames},
	{"another directory in the place of the data", writeDirRefusesForeignData},
	{"file paths outside the directory are rejected", writeDirRefusesBadPaths},
	{"the files belong to the requested group", writesDirOfGroup},
	{"a file can belong to a user", writesFileOfUser},
}

// filesOf returns files from texts of the form "path=content", with mode 0644.
func filesOf(texts ...string) []world.DirFile {
	var files []world.DirFile
	for _, text := range texts {
		p, content, _ := strings.Cut(text, "=")
		files = append(files, world.DirFile{Path: p, Data: []byte(content), Mode: 0o644})
	}
	return files
}

func (f *folder) writeDir(name string, texts ...string) {
	f.Helper()
	f.mustDo(&world.WriteDir{Path: f.path(name), Files: filesOf(texts...)})
}

// payloadDir returns the target of ..data, and checks that no other hidden directory exists.
func (f *folder) payloadDir(name string) string {
	f.Helper()
	hidden := ""
	for _, l := range mustGet[*world.LinksRead](f, &world.ReadLinks{Path: f.path(name)}).Links {
		if l.Name == "..data" {
			hidden = l.Target
		}
	}
	f.check(strings.HasPrefix(hidden, "..20"), "..data leads to %q", hidden)
	for _, e := range f.list(name) {
		own := e.Name == hidden && e.Directory || e.Name == "..data" && !e.Directory
		f.check(own || !strings.HasPrefix(e.Name, ".."), "%s has not been removed", e.Name)
	}
	return hidden
}

// visibleNames returns the names in a written directory that are not hidden.
func (f *folder) visibleNames(name string) string {
	f.Helper()
	var all []string
	for _, e := range f.list(name) {
		if !strings.HasPrefix(e.Name, "..") {
			all = append(all, e.Name)
		}
	}
	return strings.Join(all, " ")
}

func writesWholeDir(f *folder) {
	files := []world.DirFile{{Path: "key", Data: []byte("1"), Mode: 0o600}}
	f.mustDo(&world.WriteDir{Path: f.path("a/volume"), Files: files})
	hidden := f.payloadDir("a/volume")
	f.check(f.visibleNames("a/volume") == "key", "found %q", f.visibleNames("a/volume"))
	f.check(f.links("a/volume") == "..data="+hidden+" key=..data/key", "links %q",
		f.links("a/volume"))
	f.expectContent("a/volume/key", "1")
	mode, _ := f.w.ModeAndGroup(f.path("a/volume/" + hidden + "/key"))
	f.check(mode == 0o600, "mode %o", mode)
	mode, _ = f.w.ModeAndGroup(f.path("a/volume/" + hidden))
	f.check(mode == 0o755, "mode of the hidden directory %o", mode)
	mode, _ = f.w.ModeAndGroup(f.path("a/volume"))
	f.check(mode == world.WriteDirMode, "mode of the directory %o", mode)
	read := f.read("a/volume")
	f.check(len(read.Files) == 1 && read.Files[0].Name == "key", "read %+v", read)
}

func writesDirOnlyIfChanged(f *folder) {
	f.writeDir("volume", "b=2", "a=1", "d/e=3")
	hidden := f.payloadDir("volume")
	f.writeDir("volume", "a=1", "b=2", "d/e=3")
	f.check(f.payloadDir("volume") == hidden, "the same content was written again")
	f.writeDir("volume", "a=1", "b=2", "d/e=4")
	next := f.payloadDir("volume")
	f.check(next != hidden, "other content was not written")
	files := filesOf("a=1", "b=2", "d/e=4")
	files[0].Data, files[0].Text = nil, "1"
	f.mustDo(&world.WriteDir{Path: f.path("volume"), Files: files})
	f.check(f.payloadDir("volume") == next, "the same content was written again as text")
	files[1].Mode = 0o600
	f.mustDo(&world.WriteDir{Path: f.path("volume"), Files: files})
	f.check(f.payloadDir("volume") != next, "another mode was not written")
	f.expectContent("volume/a", "1")
}

func rewritesDir(f *folder) {
	f.writeDir("volume", "a=1", "b=2", "c/d=3", "c/e=4")
	f.writeDir("volume", "a=9", "c/d=8", "f=7", "g/h=6")
	f.check(f.visibleNames("volume") == "a c f g", "found %q", f.visibleNames("volume"))
	got := f.content("volume/a") + f.content("volume/c/d") + f.content("volume/f") +
		f.content("volume/g/h")
	f.check(got == "9876", "content %q", got)
	f.check(f.names("volume/c") == "d", "found %q", f.names("volume/c"))
}

func writesEmptyDir(f *folder) {
	f.writeDir("volume")
	f.payloadDir("volume")
	f.check(f.visibleNames("volume") == "", "found %q", f.visibleNames("volume"))
	f.writeDir("volume", "a=1")
	f.expectContent("volume/a", "1")
	f.writeDir("volume")
	f.payloadDir("volume")
	f.check(f.visibleNames("volume") == "", "found %q", f.visibleNames("volume"))
}

func writesDeepDir(f *folder) {
	f.writeDir("volume", "a/b/c/d=1", "a/b/e=2", "a/f=3")
	hidden := f.payloadDir("volume")
	f.check(f.links("volume") == "..data="+hidden+" a=..data/a", "links %q", f.links("volume"))
	got := f.content("volume/a/b/c/d") + f.content("volume/a/b/e") + f.content("volume/a/f")
	f.check(got == "123", "content %q", got)
	mode, _ := f.w.ModeAndGroup(f.path("volume/" + hidden + "/a/b"))
	f.check(mode == 0o755, "mode of a directory %o", mode)
	f.writeDir("volume", "a=now a file")
	f.expectContent("volume/a", "now a file")
}

func writeDirKeepsForeignFiles(f *folder) {
	f.mkdir("volume/dir")
	f.write("volume/file", "x")
	f.link("volume/link", "file")
	f.writeDir("volume", "a=1")
	f.writeDir("volume", "b=2")
	f.check(f.visibleNames("volume") == "b dir file link", "found %q", f.visibleNames("volume"))
}

func writesDirAfterCrash(f *folder) {
	for _, next := range []string{"a=1", "a=2"} {
		f.writeDir("volume", "a=1", "b=2")
		// The leftovers of an agent that was killed before and after the replacement of ..data, and
		// before the creation of the links.
		f.mkdir("volume/..2001_02_03_04_05_06.789/sub")
		f.write("volume/..2001_02_03_04_05_06.789/a", "half")
		f.link("volume/..data_tmp", "..2001_02_03_04_05_06.789")
		f.link("volume/gone", "..data/gone")
		f.mustDo(&world.RemoveTree{Path: f.path("volume/b")})
		f.writeDir("volume", next, "b=2")
		f.payloadDir("volume")
		f.check(f.visibleNames("volume") == "a b", "found %q", f.visibleNames("volume"))
		got := "a=" + f.content("volume/a") + " b=" + f.content("volume/b")
		f.check(got == next+" b=2", "content %q", got)
	}
}

// A directory may stand in the place of a key: it is the mount point of a volume that is nested in
// this one. Other keys are written, as by the kubelet.
func writeDirLeavesForeignNames(f *folder) {
	f.mkdir("volume/a/sub")
	f.write("volume/b", "x")
	f.link("volume/c", "b")
	for _, value := range []string{"=1", "=2"} {
		f.writeDir("volume", "a"+value, "b"+value, "c"+value, "d"+value, "e/f"+value)
		hidden := f.payloadDir("volume")
		f.check(f.content("volume/d") == value[1:] && f.content("volume/e/f") == value[1:] &&
			f.content("volume/"+hidden+"/a") == value[1:], "a key is not written")
	}
	links := "..data=" + f.payloadDir("volume") + " c=b d=..data/d e=..data/e"
	f.check(f.links("volume") == links, "links %q", f.links("volume"))
	f.writeDir("volume", "d=3")
	f.check(f.visibleNames("volume") == "a b c d" && f.names("volume/a") == "sub" &&
		f.content("volume/b") == "x", "found %q", f.visibleNames("volume"))
}

func writeDirRefusesForeignData(f *folder) {
	f.write("file", "x")
	f.mustFail(&world.WriteDir{Path: f.path("file"), Files: filesOf("a=1")}, world.KindExists,
		world.KindInvalid)
	f.mkdir("volume/..data")
	f.mustFail(&world.WriteDir{Path: f.path("volume"), Files: filesOf("a=1")}, world.KindExists)
	f.check(f.names("volume") == "..data", "found %q", f.names("volume"))
}

func writeDirRefusesBadPaths(f *folder) {
	f.mkdir("volume")
	for _, p := range []string{"", ".", "/abs", "..", "../x", "a/../b", "a/../../x", "..x", "...",
		"a/", "a//b", "./a", "..data/x", strings.Repeat("a/", 2048) + "b"} {
		f.mustFail(&world.WriteDir{Path: f.path("volume"), Files: filesOf(p + "=1")},
			world.KindInvalid)
	}
	f.mustFail(&world.WriteDir{Path: f.path("volume"), Files: filesOf("a=1", "a=2")},
		world.KindInvalid)
	f.mustFail(&world.WriteDir{Path: f.path("volume"), Files: filesOf("a/b=1", "a=2")},
		world.KindInvalid)
	f.check(f.names(".") == "volume" && f.names("volume") == "", "found %q, %q", f.names("."),
		f.names("volume"))
	f.writeDir("volume", "a/..x=1", ".b=2")
	f.check(f.content("volume/a/..x") == "1", "a later element with leading dots was not written")
}

func writesDirOfGroup(f *folder) {
	gid := int64(4711)
	files := []world.DirFile{{Path: "a", Mode: 0o400}, {Path: "sub/b", Mode: 0o604}}
	f.mustDo(&world.WriteDir{Path: f.path("volume"), Files: files, GID: &gid})
	hidden := f.payloadDir("volume")
	for name, want := range map[string]uint32{ //ordered: the cases are independent
		"": 0o2755, "sub": 0o2755, "a": 0o440, "sub/b": 0o644,
	} {
		mode, group := f.w.ModeAndGroup(f.path("volume/" + hidden + "/" + name))
		f.check(mode == want && group == gid, "%q has mode %o, group %d", name, mode, group)
	}
	mode, group := f.w.ModeAndGroup(f.path("volume"))
	f.check(mode == 0o2000|world.WriteDirMode && group == gid, "the root has mode %o, group %d", mode,
		group)
	f.mustDo(&world.WriteDir{Path: f.path("volume"), Files: files, GID: &gid})
	f.check(f.payloadDir("volume") == hidden, "the same content was written again")
	gid = 4712
	f.mustDo(&world.WriteDir{Path: f.path("volume"), Files: files, GID: &gid})
	f.check(f.payloadDir("volume") != hidden, "another group was not written")
}

func writesFileOfUser(f *folder) {
	user, gid := int64(4701), int64(group)
	file := world.DirFile{Path: "sub/token", Data: []byte("x"), Mode: 0o600, UID: &user}
	files := []world.DirFile{file, {Path: "ca", Mode: 0o644}}
	write := func(groupID *int64) (hidden string) {
		f.Helper()
		for range 2 { // the second time changes nothing
			f.mustDo(&world.WriteDir{Path: f.path("volume"), Files: files, GID: groupID})
			before := hidden
			hidden = f.payloadDir("volume")
			f.check(before == "" || before == hidden, "the same content was written again")
		}
		return hidden
	}
	expect := func(hidden, name string, mode uint32, owner int64) {
		f.Helper()
		at := f.path("volume/" + hidden + "/" + name)
		got, _ := f.w.ModeAndGroup(at)
		f.check(got == mode && f.w.Owner(at) == owner, "%s has mode %o and owner %d", name, got,
			f.w.Owner(at))
	}
	first := write(nil)
	expect(first, "sub/token", 0o600, user)
	expect(first, "ca", 0o644, f.w.AgentUID())
	expect(first, "sub", 0o755, f.w.AgentUID())
	second := write(&gid)
	f.check(second != first, "another group was not written")
	expect(second, "sub/token", 0o640, user)
	files[0].UID = nil
	third := write(&gid)
	f.check(third != second, "another owner was not written")
	expect(third, "sub/token", 0o640, f.w.AgentUID())
}
