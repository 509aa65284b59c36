package parity

import (
	"strings"

	"seedlet.dev/world"
)

// writeDirCases are of directories that are written in one instant.
var writeDirCases = []fileCase{
	{"a directory is written as links to hidden files", writesWholeDir},
	{"the same content is left alone", writesDirOnce},
	{"other content replaces all of it", rewritesDir},
	{"a directory is written empty", writesEmptyDir},
	{"files of a written directory may lie deeper", writesDeepDir},
	{"a written directory keeps what is not its own", writesDirBesideOthers},
	{"what a killed agent left of a write is cleaned up", writesDirAfterCrash},
	{"a directory is not written over what is not its own", writesNoDirOverOthers},
	{"a written directory has no files outside it", writesNoDirOutside},
	{"the files of a written directory belong to a group", writesDirOfGroup},
}

// filesOf makes files from "path=content" with mode 0644.
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
	f.done(&world.WriteDir{Path: f.path(name), Files: filesOf(texts...)})
}

// hidden is where ..data leads. It checks that no other hidden directory is left.
func (f *folder) hidden(name string) string {
	f.Helper()
	hidden := ""
	for _, l := range get[*world.LinksRead](f, &world.ReadLinks{Path: f.path(name)}).Links {
		if l.Name == "..data" {
			hidden = l.Target
		}
	}
	f.check(strings.HasPrefix(hidden, "..20"), "..data leads to %q", hidden)
	for _, e := range f.list(name) {
		own := e.Name == hidden && e.Directory || e.Name == "..data" && !e.Directory
		f.check(own || !strings.HasPrefix(e.Name, ".."), "%s is left", e.Name)
	}
	return hidden
}

// visible are the names in a written directory that readers are to see.
func (f *folder) visible(name string) string {
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
	f.done(&world.WriteDir{Path: f.path("a/volume"), Files: files})
	hidden := f.hidden("a/volume")
	f.check(f.visible("a/volume") == "key", "there is %q", f.visible("a/volume"))
	f.check(f.links("a/volume") == "..data="+hidden+" key=..data/key", "links %q",
		f.links("a/volume"))
	f.says("a/volume/key", "1")
	mode, _ := f.w.Perms(f.path("a/volume/" + hidden + "/key"))
	f.check(mode == 0o600, "mode %o", mode)
	mode, _ = f.w.Perms(f.path("a/volume/" + hidden))
	f.check(mode == 0o755, "mode of the directory %o", mode)
	read := f.read("a/volume")
	f.check(len(read.Files) == 1 && read.Files[0].Name == "key", "read %+v", read)
}

func writesDirOnce(f *folder) {
	f.writeDir("volume", "b=2", "a=1", "d/e=3")
	hidden := f.hidden("volume")
	f.writeDir("volume", "a=1", "b=2", "d/e=3")
	f.check(f.hidden("volume") == hidden, "the same content was written again")
	f.writeDir("volume", "a=1", "b=2", "d/e=4")
	next := f.hidden("volume")
	f.check(next != hidden, "other content was not written")
	files := filesOf("a=1", "b=2", "d/e=4")
	files[1].Mode = 0o600
	f.done(&world.WriteDir{Path: f.path("volume"), Files: files})
	f.check(f.hidden("volume") != next, "another mode was not written")
}

func rewritesDir(f *folder) {
	f.writeDir("volume", "a=1", "b=2", "c/d=3", "c/e=4")
	f.writeDir("volume", "a=9", "c/d=8", "f=7", "g/h=6")
	f.check(f.visible("volume") == "a c f g", "there is %q", f.visible("volume"))
	got := f.content("volume/a") + f.content("volume/c/d") + f.content("volume/f") +
		f.content("volume/g/h")
	f.check(got == "9876", "content %q", got)
	f.check(f.names("volume/c") == "d", "there is %q", f.names("volume/c"))
}

func writesEmptyDir(f *folder) {
	f.writeDir("volume")
	f.hidden("volume")
	f.check(f.visible("volume") == "", "there is %q", f.visible("volume"))
	f.writeDir("volume", "a=1")
	f.says("volume/a", "1")
	f.writeDir("volume")
	f.hidden("volume")
	f.check(f.visible("volume") == "", "there is %q", f.visible("volume"))
}

func writesDeepDir(f *folder) {
	f.writeDir("volume", "a/b/c/d=1", "a/b/e=2", "a/f=3")
	hidden := f.hidden("volume")
	f.check(f.links("volume") == "..data="+hidden+" a=..data/a", "links %q", f.links("volume"))
	got := f.content("volume/a/b/c/d") + f.content("volume/a/b/e") + f.content("volume/a/f")
	f.check(got == "123", "content %q", got)
	mode, _ := f.w.Perms(f.path("volume/" + hidden + "/a/b"))
	f.check(mode == 0o755, "mode of a directory %o", mode)
	f.writeDir("volume", "a=now a file")
	f.says("volume/a", "now a file")
}

func writesDirBesideOthers(f *folder) {
	f.mkdir("volume/dir")
	f.write("volume/file", "x")
	f.link("volume/link", "file")
	f.writeDir("volume", "a=1")
	f.writeDir("volume", "b=2")
	f.check(f.visible("volume") == "b dir file link", "there is %q", f.visible("volume"))
}

func writesDirAfterCrash(f *folder) {
	for _, next := range []string{"a=1", "a=2"} {
		f.writeDir("volume", "a=1", "b=2")
		// Killed before ..data was replaced, after it, and before the links were made.
		f.mkdir("volume/..2001_02_03_04_05_06.789/sub")
		f.write("volume/..2001_02_03_04_05_06.789/a", "half")
		f.link("volume/..data_tmp", "..2001_02_03_04_05_06.789")
		f.link("volume/gone", "..data/gone")
		f.done(&world.RemoveTree{Path: f.path("volume/b")})
		f.writeDir("volume", next, "b=2")
		f.hidden("volume")
		f.check(f.visible("volume") == "a b", "there is %q", f.visible("volume"))
		got := "a=" + f.content("volume/a") + " b=" + f.content("volume/b")
		f.check(got == next+" b=2", "content %q", got)
	}
}

func writesNoDirOverOthers(f *folder) {
	f.write("file", "x")
	f.fails(&world.WriteDir{Path: f.path("file"), Files: filesOf("a=1")}, world.KindExists,
		world.KindInvalid)
	f.mkdir("volume")
	f.write("volume/a", "x")
	f.fails(&world.WriteDir{Path: f.path("volume"), Files: filesOf("a=1")}, world.KindExists)
	f.check(f.names("volume") == "a" && f.content("volume/a") == "x", "there is %q",
		f.names("volume"))
	f.mkdir("linked")
	f.link("linked/a", "b")
	f.fails(&world.WriteDir{Path: f.path("linked"), Files: filesOf("a=1")}, world.KindExists)
	f.check(f.links("linked") == "a=b!", "links %q", f.links("linked"))
}

func writesNoDirOutside(f *folder) {
	f.mkdir("volume")
	for _, p := range []string{"", ".", "/abs", "..", "../x", "a/../b", "a/../../x", "..x", "...",
		"a/", "a//b", "./a", "..data/x"} {
		f.fails(&world.WriteDir{Path: f.path("volume"), Files: filesOf(p + "=1")},
			world.KindInvalid)
	}
	f.fails(&world.WriteDir{Path: f.path("volume"), Files: filesOf("a=1", "a=2")},
		world.KindInvalid)
	f.fails(&world.WriteDir{Path: f.path("volume"), Files: filesOf("a/b=1", "a=2")},
		world.KindInvalid)
	f.check(f.names(".") == "volume" && f.names("volume") == "", "there is %q, %q", f.names("."),
		f.names("volume"))
	f.writeDir("volume", "a/..x=1", ".b=2")
	f.check(f.content("volume/a/..x") == "1", "dots elsewhere are names like others")
}

func writesDirOfGroup(f *folder) {
	gid := int64(4711)
	files := []world.DirFile{{Path: "a", Mode: 0o400}, {Path: "sub/b", Mode: 0o604}}
	f.done(&world.WriteDir{Path: f.path("volume"), Files: files, GID: &gid})
	hidden := f.hidden("volume")
	for name, want := range map[string]uint32{ //ordered: the cases are independent
		"": 0o2755, "sub": 0o2755, "a": 0o440, "sub/b": 0o644,
	} {
		mode, group := f.w.Perms(f.path("volume/" + hidden + "/" + name))
		f.check(mode == want && group == gid, "%q has mode %o, group %d", name, mode, group)
	}
	mode, group := f.w.Perms(f.path("volume"))
	f.check(mode == 0o2755 && group == gid, "the root has mode %o, group %d", mode, group)
	f.done(&world.WriteDir{Path: f.path("volume"), Files: files, GID: &gid})
	f.check(f.hidden("volume") == hidden, "the same content was written again")
	gid = 4712
	f.done(&world.WriteDir{Path: f.path("volume"), Files: files, GID: &gid})
	f.check(f.hidden("volume") != hidden, "another group was not written")
}
