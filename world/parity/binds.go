package parity

import (
	"strings"

	"seedlet.dev/world"
)

// bindCases are of paths within volumes that are mounted elsewhere.
var bindCases = []fileCase{
	{"a directory in a volume is made and mounted", bindsDir},
	{"a file in a volume is mounted", bindsFile},
	{"a whole volume is mounted", bindsRoot},
	{"what is mounted already is left alone, and another replaced", bindsAgain},
	{"links within the volume are followed", bindsThroughLinks},
	{"a key of a written directory is mounted", bindsKey},
	{"a link does not lead out of the volume", bindsNotThroughLinks},
	{"a name does not lead out of the volume", bindsNotOutside},
	{"what cannot be mounted is not", bindsNot},
}

func (f *folder) bindOf(subPath, target string) *world.BindSubPath {
	return &world.BindSubPath{Root: f.path("volume"), SubPath: subPath, Target: f.path(target),
		Mode: 0o770}
}

func (f *folder) bind(subPath, target string) {
	f.Helper()
	f.done(f.bindOf(subPath, target))
}

func bindsDir(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume/there")
	f.write("volume/there/file", "x")
	f.bind("there", "made/target")
	f.says("made/target/file", "x")
	f.write("made/target/new", "y")
	f.check(f.content("volume/there/new") == "y", "the volume does not have it")
	mode, _ := f.w.Perms(f.path("volume/there"))
	f.check(mode == 0o755, "a directory that was there has mode %o", mode)

	f.bind("there/a/b", "second")
	f.check(f.names("second") == "", "there is %q", f.names("second"))
	mode, _ = f.w.Perms(f.path("volume/there/a/b"))
	f.check(mode == 0o770, "the new directory has mode %o", mode)
	f.unmount("second")
	f.write("second/file", "outside")
	f.check(f.names("volume/there/a/b") == "", "it was not unmounted")
}

func bindsFile(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume/dir")
	f.write("volume/dir/file", "x")
	f.bind("dir/file", "made/target")
	f.check(f.stat("made/target").Kind == world.PathFile, "it is %+v", f.stat("made/target"))
	f.says("made/target", "x")
	f.unmount("made/target")
	f.says("made/target", "")
}

func bindsRoot(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume")
	f.write("volume/file", "x")
	f.bind(".", "target")
	f.says("target/file", "x")
}

func bindsAgain(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume/a")
	f.mkdir("volume/b")
	f.write("volume/a/name", "a")
	f.write("volume/b/name", "b")
	f.write("volume/file", "file")
	for range 2 {
		f.bind("a", "target")
		f.says("target/name", "a")
	}
	f.bind("b", "target")
	f.says("target/name", "b")
	f.unmount("target")
	f.check(f.names("target") == "", "it was mounted over: %q", f.names("target"))
	f.bind("b", "target")
	f.bind("file", "target")
	f.says("target", "file")
	f.bind("a", "target")
	f.says("target/name", "a")
}

func bindsThroughLinks(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume/real/deep")
	f.write("volume/real/deep/file", "x")
	f.link("volume/link", "real")
	f.link("volume/real/up", "../link/deep")
	f.bind("link/deep", "a")
	f.bind("real/up", "b")
	f.bind("link/up/file", "c")
	f.bind("link/new/dir", "d")
	got := f.content("a/file") + f.content("b/file") + f.content("c")
	f.check(got == "xxx", "content %q", got)
	f.check(f.names("volume/real/new") == "dir", "there is %q", f.names("volume/real"))
}

// A container sees through a subPath what was there when it was started; when it is started
// again, it sees what is there then.
func bindsKey(f *folder) {
	defer f.unmount(".")
	f.writeDir("volume", "key=1")
	f.bind("key", "target")
	f.says("target", "1")
	f.writeDir("volume", "key=2")
	f.says("target", "1")
	f.bind("key", "target")
	f.says("target", "2")
}

func bindsNotThroughLinks(f *folder) {
	defer f.unmount(".")
	f.mkdir("outside/secret")
	f.mkdir("volume/dir")
	f.link("volume/up", "../outside")
	f.link("volume/dir/up", "../../outside/secret")
	f.link("volume/absolute", f.path("outside"))
	f.link("volume/root", "/")
	f.link("volume/dangling", "nowhere")
	f.link("volume/dangling-out", "../outside/nowhere")
	f.link("volume/loop", "loop")
	f.link("volume/twice", "up")
	for _, p := range []string{"up", "up/secret", "up/new", "dir/up", "absolute", "absolute/secret",
		"absolute/new", "root", "root/tmp", "dangling", "dangling/new", "dangling-out", "loop",
		"twice/secret"} {
		f.fails(f.bindOf(p, "target"), world.KindInvalid)
	}
	f.check(f.names("outside") == "secret", "outside there is %q", f.names("outside"))
	f.check(!strings.Contains(f.names("."), "target") || f.names("target") == "",
		"at the target there is %q", f.names("."))
}

func bindsNotOutside(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume/dir")
	f.mkdir("outside")
	for _, p := range []string{"..", "../outside", "dir/../../outside", "dir/..", "/", "/dir",
		"../volume/dir", "dir/../new"} {
		f.fails(f.bindOf(p, "target"), world.KindInvalid)
	}
	f.bind("..dir", "target")
	f.check(f.names("volume") == "..dir dir" && f.names("outside") == "", "there is %q, %q",
		f.names("volume"), f.names("outside"))
}

func bindsNot(f *folder) {
	defer f.unmount(".")
	f.fails(f.bindOf("dir", "target"), world.KindNotFound)
	f.mkdir("volume")
	f.write("volume/file", "x")
	f.fails(f.bindOf("file/below", "target"), world.KindInvalid)
	f.check(f.names("volume") == "file", "there is %q", f.names("volume"))
}
