package parity

import (
	"strings"

	"seedlet.dev/world"
)

// bindCases are rules for bind mounts of sub-paths.
var bindCases = []fileCase{
	{"a missing directory in a volume is created and mounted", bindsDir},
	{"new directories in a volume have the mode of its root", bindsDirWithModeOfRoot},
	{"a file in a volume is mounted", bindsFile},
	{"a whole volume is mounted", bindsRoot},
	{"the same mount is kept, another mount is replaced", bindsAgain},
	{"links within the volume are followed", bindsThroughLinks},
	{"a key of a directory of WriteDir is mounted", bindsAtomicWriterKey},
	{"a link out of the volume is rejected", bindFollowsNoLinkOut},
	{"a path out of the volume is rejected", bindStaysInVolume},
	{"a missing volume and a path below a file are rejected", bindErrors},
}

func (f *folder) bindRequest(subPath, target string) *world.BindSubPath {
	return &world.BindSubPath{Root: f.path("volume"), SubPath: subPath, Target: f.path(target)}
}

func (f *folder) bind(subPath, target string) {
	f.Helper()
	f.mustDo(f.bindRequest(subPath, target))
}

func bindsDir(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume/there")
	f.write("volume/there/file", "x")
	f.bind("there", "made/target")
	f.expectContent("made/target/file", "x")
	f.write("made/target/new", "y")
	f.check(f.content("volume/there/new") == "y", "the file is not in the volume")
	mode, _ := f.w.ModeAndGroup(f.path("volume/there"))
	f.check(mode == 0o755, "a directory that was there has mode %o", mode)

	f.bind("there/a/b", "second")
	f.check(f.names("second") == "", "found %q", f.names("second"))
	mode, _ = f.w.ModeAndGroup(f.path("volume/there/a/b"))
	f.check(mode == 0o755, "the new directory has mode %o", mode)
	f.unmount("second")
	f.write("second/file", "outside")
	f.check(f.names("volume/there/a/b") == "", "the sub-path was not unmounted")
}

func bindsDirWithModeOfRoot(f *folder) {
	defer f.unmount(".")
	f.mustDo(&world.MakeDir{Path: f.path("plain"), Mode: 0o701})
	f.mustDo(&world.MakeDir{Path: f.path("plain/tight"), Mode: 0o700})
	f.mustDo(&world.MountMemory{Path: f.path("memory"), BytesMax: 1 << 20, Mode: 0o1777})
	f.mustDo(&world.MountMemory{Path: f.path("shared"), BytesMax: 1 << 20, Mode: 0o1777})
	f.mustDo(&world.ShareWithGroup{Path: f.path("shared"), GID: group})
	for _, c := range []struct {
		root, sub string
		want      uint32
	}{
		{"plain", "a/b", 0o701}, {"plain", "tight/b", 0o701},
		{"memory", "a/b", 0o1777}, {"shared", "a/b", 0o3777},
	} {
		f.mustDo(&world.BindSubPath{Root: f.path(c.root), SubPath: c.sub,
			Target: f.path("target/" + c.root)})
		mode, gid := f.w.ModeAndGroup(f.path(c.root + "/" + c.sub))
		f.check(mode == c.want, "%s in %s has mode %o, want %o", c.sub, c.root, mode, c.want)
		f.check((gid == group) == (c.root == "shared"), "%s in %s has group %d", c.sub, c.root, gid)
		f.unmount("target/" + c.root)
	}
	mode, _ := f.w.ModeAndGroup(f.path("plain/tight"))
	f.check(mode == 0o700, "a directory that was there has mode %o", mode)
}

func bindsFile(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume/dir")
	f.write("volume/dir/file", "x")
	f.bind("dir/file", "made/target")
	f.check(f.stat("made/target").Kind == world.PathFile, "the target is %+v", f.stat("made/target"))
	f.expectContent("made/target", "x")
	f.unmount("made/target")
	f.expectContent("made/target", "")
}

func bindsRoot(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume")
	f.write("volume/file", "x")
	f.bind(".", "target")
	f.expectContent("target/file", "x")
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
		f.expectContent("target/name", "a")
	}
	f.bind("b", "target")
	f.expectContent("target/name", "b")
	f.unmount("target")
	f.check(f.names("target") == "", "an earlier mount is still there: %q", f.names("target"))
	f.bind("b", "target")
	f.bind("file", "target")
	f.expectContent("target", "file")
	f.bind("a", "target")
	f.expectContent("target/name", "a")
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
	f.check(f.names("volume/real/new") == "dir", "found %q", f.names("volume/real"))
}

// A container sees through a subPath the content at the time of its start. After a restart it sees
// the content at the time of the restart.
func bindsAtomicWriterKey(f *folder) {
	defer f.unmount(".")
	f.writeDir("volume", "key=1")
	f.bind("key", "target")
	f.expectContent("target", "1")
	f.writeDir("volume", "key=2")
	f.expectContent("target", "1")
	f.bind("key", "target")
	f.expectContent("target", "2")
}

func bindFollowsNoLinkOut(f *folder) {
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
		f.mustFail(f.bindRequest(p, "target"), world.KindInvalid)
	}
	f.check(f.names("outside") == "secret", "found %q outside the volume", f.names("outside"))
	f.check(!strings.Contains(f.names("."), "target") || f.names("target") == "",
		"found %q at the target", f.names("."))
}

func bindStaysInVolume(f *folder) {
	defer f.unmount(".")
	f.mkdir("volume/dir")
	f.mkdir("outside")
	for _, p := range []string{"..", "../outside", "dir/../../outside", "dir/..", "/", "/dir",
		"../volume/dir", "dir/../new"} {
		f.mustFail(f.bindRequest(p, "target"), world.KindInvalid)
	}
	f.bind("..dir", "target")
	f.check(f.names("volume") == "..dir dir" && f.names("outside") == "", "found %q, %q",
		f.names("volume"), f.names("outside"))
}

func bindErrors(f *folder) {
	defer f.unmount(".")
	f.mustFail(f.bindRequest("dir", "target"), world.KindNotFound)
	f.mkdir("volume")
	f.write("volume/file", "x")
	f.mustFail(f.bindRequest("file/below", "target"), world.KindInvalid)
	f.check(f.names("volume") == "file", "found %q", f.names("volume"))
}
