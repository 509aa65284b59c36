package parity

import "seedlet.dev/world"

// groupCases are rules for ShareWithGroup.
var groupCases = []fileCase{
	{"a tree is given to a group", sharesTree},
	{"a tree is given to a group read-only", sharesReadOnly},
	{"a tree with a correct root can be skipped", sharesOnRootMismatch},
	{"a file is given to a group", sharesFile},
	{"sharing a missing path or a link fails", shareErrors},
}

const group = 4711

// expectModes checks the modes of paths, and that they belong to the group.
func (f *folder) expectModes(modes map[string]uint32) {
	f.Helper()
	for name, want := range modes { //ordered: the checks are independent
		mode, gid := f.w.ModeAndGroup(f.path(name))
		f.check(mode == want && gid == group, "%s has mode %o and group %d, want %o", name, mode,
			gid, want)
	}
}

// makeGroupTree creates a tree with directories, files of unusual modes and a link out of the tree.
func (f *folder) makeGroupTree() {
	f.write("outside", "x")
	f.mustDo(&world.MakeDir{Path: f.path("tree"), Mode: 0o700})
	f.mustDo(&world.MakeDir{Path: f.path("tree/dir"), Mode: 0o711})
	f.mustDo(&world.WriteFile{Path: f.path("tree/dir/tool"), Mode: 0o755})
	f.mustDo(&world.WriteFile{Path: f.path("tree/secret"), Mode: 0o400})
	f.link("tree/dir/link", "../../outside")
	f.w.MakeSpecial(f.path("tree/socket"), world.PathSocket)
}

// expectLinkNotFollowed checks that the target of the link is unchanged.
func (f *folder) expectLinkNotFollowed() {
	f.Helper()
	mode, gid := f.w.ModeAndGroup(f.path("outside"))
	f.check(mode == 0o644 && gid != group, "a link was followed: mode %o, group %d", mode, gid)
}

func sharesTree(f *folder) {
	f.makeGroupTree()
	for range 2 {
		f.mustDo(&world.ShareWithGroup{Path: f.path("tree"), GID: group})
		f.expectModes(map[string]uint32{
			"tree": 0o2770, "tree/dir": 0o2771, "tree/dir/tool": 0o775, "tree/secret": 0o660,
		})
	}
	f.expectLinkNotFollowed()
	_, gid := f.w.ModeAndGroup(f.path("tree/dir/link"))
	f.check(gid == group, "the link itself has group %d", gid)
	_, gid = f.w.ModeAndGroup(f.path("tree/socket"))
	f.check(gid == group, "the socket has group %d", gid)
}

func sharesReadOnly(f *folder) {
	f.makeGroupTree()
	f.mustDo(&world.ShareWithGroup{Path: f.path("tree"), GID: group, ReadOnly: true})
	f.expectModes(map[string]uint32{
		"tree": 0o2750, "tree/dir": 0o2751, "tree/dir/tool": 0o755, "tree/secret": 0o440,
	})
	f.expectLinkNotFollowed()
}

func sharesOnRootMismatch(f *folder) {
	f.makeGroupTree()
	always := &world.ShareWithGroup{Path: f.path("tree"), GID: group}
	lazy := &world.ShareWithGroup{Path: f.path("tree"), GID: group, OnRootMismatch: true}
	f.mustDo(lazy)
	f.expectModes(map[string]uint32{"tree": 0o2770, "tree/secret": 0o660})
	f.mustDo(&world.WriteFile{Path: f.path("tree/later"), Mode: 0o600})
	f.mustDo(lazy)
	mode, _ := f.w.ModeAndGroup(f.path("tree/later"))
	f.check(mode == 0o600, "the root was correct, but the mode of a file changed to %o", mode)
	f.mustDo(always)
	f.expectModes(map[string]uint32{"tree/later": 0o660})
}

func sharesFile(f *folder) {
	f.mustDo(&world.WriteFile{Path: f.path("file"), Mode: 0o600})
	f.mustDo(&world.ShareWithGroup{Path: f.path("file"), GID: group, OnRootMismatch: true})
	f.expectModes(map[string]uint32{"file": 0o660})
}

func shareErrors(f *folder) {
	f.mustFail(&world.ShareWithGroup{Path: f.path("absent"), GID: group}, world.KindNotFound)
	f.write("file", "x")
	f.link("link", "file")
	f.mustFail(&world.ShareWithGroup{Path: f.path("link"), GID: group}, world.KindInvalid)
}
