package parity

import "seedlet.dev/world"

// groupCases are of trees that are given to a group.
var groupCases = []fileCase{
	{"a tree is given to a group", shares},
	{"a tree is given to a group to read", sharesReadOnly},
	{"a tree whose root is as it should be may be left alone", sharesOnMismatch},
	{"a file is given to a group", sharesFile},
	{"what is not there is given to no group", sharesNothing},
}

const group = 4711

// owned checks the modes of paths, and that they are the group's.
func (f *folder) owned(modes map[string]uint32) {
	f.Helper()
	for name, want := range modes { //ordered: the checks are independent
		mode, gid := f.w.Perms(f.path(name))
		f.check(mode == want && gid == group, "%s has mode %o and group %d, want %o", name, mode,
			gid, want)
	}
}

// grove is a tree with directories, files of odd modes and a link out of it.
func (f *folder) grove() {
	f.write("outside", "x")
	f.done(&world.MakeDir{Path: f.path("tree"), Mode: 0o700})
	f.done(&world.MakeDir{Path: f.path("tree/dir"), Mode: 0o711})
	f.done(&world.WriteFile{Path: f.path("tree/dir/tool"), Mode: 0o755})
	f.done(&world.WriteFile{Path: f.path("tree/secret"), Mode: 0o400})
	f.link("tree/dir/link", "../../outside")
	f.w.Put(f.path("tree/socket"), world.PathSocket)
}

// untouched checks that no link was followed.
func (f *folder) untouched() {
	f.Helper()
	mode, gid := f.w.Perms(f.path("outside"))
	f.check(mode == 0o644 && gid != group, "a link was followed: mode %o, group %d", mode, gid)
}

func shares(f *folder) {
	f.grove()
	for range 2 {
		f.done(&world.ShareWithGroup{Path: f.path("tree"), GID: group})
		f.owned(map[string]uint32{
			"tree": 0o2770, "tree/dir": 0o2771, "tree/dir/tool": 0o775, "tree/secret": 0o660,
		})
	}
	f.untouched()
	_, gid := f.w.Perms(f.path("tree/dir/link"))
	f.check(gid == group, "the link itself has group %d", gid)
	_, gid = f.w.Perms(f.path("tree/socket"))
	f.check(gid == group, "the socket has group %d", gid)
}

func sharesReadOnly(f *folder) {
	f.grove()
	f.done(&world.ShareWithGroup{Path: f.path("tree"), GID: group, ReadOnly: true})
	f.owned(map[string]uint32{
		"tree": 0o2750, "tree/dir": 0o2751, "tree/dir/tool": 0o755, "tree/secret": 0o440,
	})
	f.untouched()
}

func sharesOnMismatch(f *folder) {
	f.grove()
	always := &world.ShareWithGroup{Path: f.path("tree"), GID: group}
	lazy := &world.ShareWithGroup{Path: f.path("tree"), GID: group, OnRootMismatch: true}
	f.done(lazy)
	f.owned(map[string]uint32{"tree": 0o2770, "tree/secret": 0o660})
	f.done(&world.WriteFile{Path: f.path("tree/later"), Mode: 0o600})
	f.done(lazy)
	mode, _ := f.w.Perms(f.path("tree/later"))
	f.check(mode == 0o600, "the root was as it should be, yet a file changed to %o", mode)
	f.done(always)
	f.owned(map[string]uint32{"tree/later": 0o660})
}

func sharesFile(f *folder) {
	f.done(&world.WriteFile{Path: f.path("file"), Mode: 0o600})
	f.done(&world.ShareWithGroup{Path: f.path("file"), GID: group, OnRootMismatch: true})
	f.owned(map[string]uint32{"file": 0o660})
}

func sharesNothing(f *folder) {
	f.fails(&world.ShareWithGroup{Path: f.path("absent"), GID: group}, world.KindNotFound)
	f.write("file", "x")
	f.link("link", "file")
	f.fails(&world.ShareWithGroup{Path: f.path("link"), GID: group}, world.KindInvalid)
}
