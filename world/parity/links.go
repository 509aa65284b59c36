package parity

import (
	"strings"

	"seedlet.dev/world"
)

// linkCases are rules for symbolic links.
var linkCases = []fileCase{
	{"a link is created with its parents and replaced", makesLink},
	{"a link replaces only a link", makesNoLink},
	{"links are read in order", readsLinks},
	{"reading links of a file or a missing path fails", readsNoLinks},
	{"removing a link keeps its target", removesLink},
	{"a path may lead through links", followsLinks},
}

func (f *folder) link(name, target string) {
	f.Helper()
	f.mustDo(&world.MakeLink{Path: f.path(name), Target: target})
}

// links returns the links in a directory as "name=target", with "!" after a dangling link.
func (f *folder) links(name string) string {
	f.Helper()
	var all []string
	for _, l := range mustGet[*world.LinksRead](f, &world.ReadLinks{Path: f.path(name)}).Links {
		text := l.Name + "=" + l.Target
		if l.Dangling {
			text += "!"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func makesLink(f *folder) {
	f.write("file", "x")
	f.link("a/b/link", "../../file")
	f.check(f.links("a/b") == "link=../../file", "links %q", f.links("a/b"))
	f.expectContent("a/b/link", "x")
	f.link("a/b/link", "../../file")
	f.link("a/b/link", "nowhere")
	f.check(f.links("a/b") == "link=nowhere!", "links %q", f.links("a/b"))
	f.check(f.names("a/b") == "link", "found %q", f.names("a/b"))
}

func makesNoLink(f *folder) {
	f.write("file", "x")
	f.mkdir("dir")
	f.mustFail(&world.MakeLink{Path: f.path("file"), Target: "dir"}, world.KindExists)
	f.mustFail(&world.MakeLink{Path: f.path("dir"), Target: "file"}, world.KindExists)
	f.mustFail(&world.MakeLink{Path: f.path("file/below"), Target: "x"}, world.KindInvalid)
	f.check(f.names(".") == "dir file" && f.names("dir") == "" && f.content("file") == "x",
		"found %q", f.names("."))
}

func readsLinks(f *folder) {
	f.mkdir("dir/sub")
	f.write("dir/file", "x")
	f.link("dir/z", "file")
	f.link("dir/b", "sub")
	f.link("dir/a", "/absent/file")
	f.link("dir/sub/deep", "not this")
	f.check(f.links("dir") == "a=/absent/file! b=sub z=file", "links %q", f.links("dir"))
	f.mkdir("empty")
	f.check(f.links("empty") == "", "links %q", f.links("empty"))
}

func readsNoLinks(f *folder) {
	f.mustFail(&world.ReadLinks{Path: f.path("absent")}, world.KindNotFound)
	f.write("file", "x")
	f.mustFail(&world.ReadLinks{Path: f.path("file")}, world.KindInvalid)
}

func removesLink(f *folder) {
	f.mkdir("kept")
	f.write("kept/file", "x")
	f.link("tree/to-dir", "../kept")
	f.link("link", "kept")
	f.mustDo(&world.RemoveTree{Path: f.path("tree")})
	f.mustDo(&world.RemoveTree{Path: f.path("link")})
	f.check(f.names(".") == "kept" && f.names("kept") == "file", "found %q, %q",
		f.names("."), f.names("kept"))
}

func followsLinks(f *folder) {
	f.mkdir("dir")
	f.link("relative", "dir")
	f.link("absolute", f.path("dir"))
	f.link("dir/up", "../relative")
	f.write("relative/file", "x")
	f.expectContent("absolute/up/file", "x")
	f.mkdir("absolute/sub")
	f.check(f.names("relative") == "file sub up", "found %q", f.names("relative"))
	f.check(f.content("dir/sub/../file") == "x", "with dots: %q", f.content("dir/sub/../file"))
	f.link("file", "dir/file")
	f.write("file", "y")
	f.check(f.content("dir/file") == "x" && f.content("file") == "y", "a write followed the link")
	want := "absolute=" + f.path("dir") + " relative=dir"
	f.check(f.links(".") == want, "links %q", f.links("."))
}
