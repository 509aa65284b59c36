package parity

import (
	"strings"

	"seedlet.dev/world"
)

// mountCases are rules for tmpfs mounts, and for mounts in general.
var mountCases = []fileCase{
	{"a tmpfs is mounted once", mountsMemory},
	{"a tmpfs has a size limit", mountSizeLimit},
	{"a tmpfs cannot be mounted on or below a file", mountErrors},
	{"all mounts below a path are unmounted", unmountsTree},
	{"unmounting a path without mounts succeeds", unmountsNothing},
	{"removing a tree with a mount is refused", removesNoMount},
	{"measuring a tree excludes its mounts", measuresNoMount},
	{"sharing a tree does not enter mounts", sharesNoMount},
	{"the mounts below a path are listed in their order", listsMounts},
	{"mounts are listed below the path that was asked for", listsMountsThroughLink},
}

func (f *folder) mount(name string) {
	f.Helper()
	f.mustDo(&world.MountMemory{Path: f.path(name), BytesMax: 1 << 20, Mode: 0o777})
}

func (f *folder) unmount(name string) {
	f.Helper()
	f.mustDo(&world.Unmount{Path: f.path(name)})
}

func mountsMemory(f *folder) {
	defer f.unmount(".")
	f.mkdir("a/b")
	f.write("a/b/hidden", "below")
	for _, name := range []string{"a/b", "made/below"} {
		f.mount(name)
		mode, _ := f.w.ModeAndGroup(f.path(name))
		f.check(mode == 0o777 && f.names(name) == "", "%s has mode %o and %q", name, mode,
			f.names(name))
		f.write(name+"/file", "x")
		f.mount(name)
		f.check(f.content(name+"/file") == "x", "the mounted content is lost")
	}
	f.mustDo(&world.MountMemory{Path: f.path("sticky"), BytesMax: 1 << 20, Mode: 0o1777})
	mode, _ := f.w.ModeAndGroup(f.path("sticky"))
	f.check(mode == 0o1777, "with the sticky bit the mode is %o", mode)
	f.unmount("a/b")
	f.check(f.names("a/b") == "hidden", "found %q", f.names("a/b"))
	f.unmount("made/below")
	f.check(f.names("made/below") == "" && f.stat("made/below").Kind == world.PathDirectory,
		"found %q", f.names("made/below"))
}

func mountSizeLimit(f *folder) {
	defer f.unmount(".")
	f.mount("memory")
	f.write("memory/small", strings.Repeat("x", 1<<19))
	large := make([]byte, 1<<20)
	f.mustFail(&world.WriteFile{Path: f.path("memory/large"), Data: large, Mode: 0o644},
		world.KindExhausted)
	f.check(f.names("memory") == "small", "found %q", f.names("memory"))
	f.write("large", string(large))
	f.mustFail(&world.Rename{From: f.path("large"), To: f.path("memory/large")}, world.KindInvalid)
}

func mountErrors(f *folder) {
	f.write("file", "x")
	f.mustFail(&world.MountMemory{Path: f.path("file"), Mode: 0o777}, world.KindExists,
		world.KindInvalid)
	f.mustFail(&world.MountMemory{Path: f.path("file/below"), Mode: 0o777}, world.KindInvalid)
}

func unmountsTree(f *folder) {
	defer f.unmount(".")
	f.mount("tree")
	f.mount("tree/a/b")
	f.mount("tree/a/c")
	f.mount("tree/a/c/d")
	f.mount("tree2")
	f.write("tree/file", "x")
	f.write("tree2/file", "x")
	f.unmount("tree/a/c")
	f.check(f.names("tree") == "a file" && f.names("tree/a/c") == "", "found %q, %q",
		f.names("tree"), f.names("tree/a/c"))
	f.unmount("tree")
	f.check(f.names("tree") == "" && f.names("tree2") == "file", "found %q, %q",
		f.names("tree"), f.names("tree2"))
	f.mustDo(&world.RemoveTree{Path: f.path("tree")})
}

func unmountsNothing(f *folder) {
	f.mkdir("dir")
	f.write("file", "x")
	f.unmount("dir")
	f.unmount("file")
	f.unmount("absent")
	f.unmount("absent/below")
	f.check(f.names(".") == "dir file", "found %q", f.names("."))
}

func removesNoMount(f *folder) {
	defer f.unmount(".")
	f.mkdir("pod")
	f.write("pod/file", "x")
	f.mount("pod/volumes/memory")
	f.write("pod/volumes/memory/data", "x")
	f.mustFail(&world.RemoveTree{Path: f.path("pod")}, world.KindRefused)
	f.mustFail(&world.RemoveTree{Path: f.path("pod/volumes/memory")}, world.KindRefused)
	f.check(f.names("pod") == "file volumes" && f.names("pod/volumes/memory") == "data",
		"found %q, %q", f.names("pod"), f.names("pod/volumes/memory"))
	f.unmount("pod")
	f.mustDo(&world.RemoveTree{Path: f.path("pod")})
	f.check(f.names(".") == "", "found %q", f.names("."))
}

func measuresNoMount(f *folder) {
	defer f.unmount(".")
	f.mkdir("tree")
	before := f.measure("tree")
	f.mount("tree/memory")
	f.write("tree/memory/data", strings.Repeat("x", 1<<18))
	m := f.measure("tree")
	f.check(m == before, "of the tree: %+v, before %+v", m, before)
	m = f.measure("tree/memory")
	f.check(m.Inodes == 2 && m.Bytes >= 1<<18, "of the mount: %+v", m)
}

func sharesNoMount(f *folder) {
	defer f.unmount(".")
	f.mount("tree/memory")
	f.mustDo(&world.ShareWithGroup{Path: f.path("tree"), GID: group})
	f.expectModes(map[string]uint32{"tree": 0o2775})
	mode, gid := f.w.ModeAndGroup(f.path("tree/memory"))
	f.check(mode == 0o777 && gid != group, "mode %o, group %d", mode, gid)
	f.mustDo(&world.ShareWithGroup{Path: f.path("tree/memory"), GID: group})
	f.expectModes(map[string]uint32{"tree/memory": 0o2777})
}

// mounts lists the mounts at or below a path.
func (f *folder) mounts(name string) []world.Mount {
	f.Helper()
	return mustGet[*world.MountsListed](f, &world.ListMounts{Path: f.path(name)}).Mounts
}

// mountPoints returns the paths of the mounts at or below a path, relative to the folder.
func (f *folder) mountPoints(name string) string {
	f.Helper()
	var paths []string
	for _, m := range f.mounts(name) {
		paths = append(paths, strings.TrimPrefix(m.Path, f.dir+"/"))
	}
	return strings.Join(paths, " ")
}

func listsMounts(f *folder) {
	defer f.unmount(".")
	f.check(f.mountPoints(".") == "", "mounted at first: %q", f.mountPoints("."))
	f.mount("volume")
	f.mkdir("volume/sub")
	f.bind("sub", "volume2")
	f.mount("other/deep")
	f.mkdir("plain")
	for _, c := range []struct{ name, want string }{{".", "volume volume2 other/deep"},
		{"volume", "volume"}, {"other", "other/deep"}, {"plain", ""}, {"absent", ""},
		{"absent/below", ""}} {
		got := f.mountPoints(c.name)
		f.check(got == c.want, "below %s: %q, want %q", c.name, got, c.want)
	}
	m := f.mounts(".")
	f.check(m[0].Source == "tmpfs" && m[0].FSType == "tmpfs" && m[0].Root == "/" && !m[0].ReadOnly,
		"the tmpfs is %+v", m[0])
	f.check(m[1].Root == "/sub" && m[1].Device == m[0].Device && m[1].FSType == "tmpfs",
		"the bind mount is %+v", m[1])
	f.check(m[2].Device != m[0].Device && m[2].Device != "", "another tmpfs is %+v", m[2])
	f.unmount("volume2")
	f.check(f.mountPoints(".") == "volume other/deep", "left: %q", f.mountPoints("."))
}

func listsMountsThroughLink(f *folder) {
	defer f.unmount(".")
	f.mount("real/a/memory")
	f.link("link", "real")
	f.check(f.mountPoints("link/a") == "link/a/memory", "through a link: %q",
		f.mountPoints("link/a"))
	f.check(f.mountPoints("link/a/memory") == "link/a/memory", "at the mount: %q",
		f.mountPoints("link/a/memory"))
	f.check(f.mountPoints("link") == "", "below a link itself: %q", f.mountPoints("link"))
}
