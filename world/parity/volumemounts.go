package parity

import (
	"strings"

	"seedlet.dev/world"
)

// BlockDevices is implemented by a Disk that has block devices.
type BlockDevices interface {
	// BlockDevice returns the path of a block device without a file system, which is of no other use.
	BlockDevice() string
}

// volumeMountCases are rules for the mounts of volumes.
var volumeMountCases = []fileCase{
	{"a directory of the node is mounted", bindsNodeDir},
	{"a mount that exists stays, and becomes read-only", bindKeepsMount},
	{"a file of the node is mounted", bindsNodeFile},
	{"other mounts of a directory are found", bindFindsShared},
	{"a source can be required to be a mount", bindRequiresMount},
	{"a missing source is not mounted", bindRefusesMissing},
	{"a device is formatted when it is mounted first", mountsDevice},
	{"a device without a file system is not formatted read-only", mountsNoBlankReadOnly},
	{"what is no device is not mounted as one", mountsNoDevice},
	{"a device whose path another one has by now is not used", refusesAnotherDevice},
	{"a device is bound for one pod, and kept open", bindsDevice},
	{"a device of which a path is a link is bound", bindsLinkedDevice},
}

func (f *folder) bindNode(source, target string, readOnly bool) *world.Mounted {
	f.Helper()
	return mustGet[*world.Mounted](f, &world.BindMount{Source: f.path(source), Path: f.path(target),
		ReadOnly: readOnly, Among: f.path("pods")})
}

func bindsNodeDir(f *folder) {
	defer f.unmount(".")
	f.mkdir("node/dir")
	f.write("node/dir/file", "x")
	m := f.bindNode("node/dir", "pods/a/volume", false)
	f.check(*m == world.Mounted{}, "the first mount is %+v", m)
	f.expectContent("pods/a/volume/file", "x")
	f.write("pods/a/volume/new", "y")
	f.expectContent("node/dir/new", "y")
	mounts := f.mounts("pods")
	f.check(len(mounts) == 1 && !mounts[0].ReadOnly && strings.HasSuffix(mounts[0].Root, "/node/dir"),
		"mounts %+v", mounts)
	f.bindNode("node/dir", "pods/b/volume", true)
	mounts = f.mounts("pods/b")
	f.check(len(mounts) == 1 && mounts[0].ReadOnly, "read-only: %+v", mounts)
	f.check(!f.mounts("pods/a")[0].ReadOnly, "the other mount has become read-only")
	f.unmount("pods")
	f.expectContent("node/dir/file", "x")
	f.check(f.names("pods/a/volume") == "", "left at the mount point: %q", f.names("pods/a/volume"))
}

func bindKeepsMount(f *folder) {
	defer f.unmount(".")
	f.mkdir("node/a")
	f.mkdir("node/b")
	f.write("node/a/name", "a")
	f.write("node/b/name", "b")
	f.bindNode("node/a", "pods/p/volume", false)
	m := f.bindNode("node/b", "pods/p/volume", false)
	f.check(m.Existed, "the second mount is %+v", m)
	f.expectContent("pods/p/volume/name", "a")
	f.check(!f.mounts("pods")[0].ReadOnly, "mounts %+v", f.mounts("pods"))
	f.bindNode("node/a", "pods/p/volume", true)
	mounts := f.mounts("pods")
	f.check(len(mounts) == 1 && mounts[0].ReadOnly, "mounts %+v", mounts)
}

func bindsNodeFile(f *folder) {
	defer f.unmount(".")
	f.mkdir("node")
	f.write("node/file", "x")
	f.bindNode("node/file", "pods/p/device", false)
	f.expectContent("pods/p/device", "x")
	f.unmount("pods")
	f.expectContent("pods/p/device", "")
}

func bindFindsShared(f *folder) {
	defer f.unmount(".")
	f.mkdir("node/dir/sub")
	f.mustDo(&world.ShareWithGroup{Path: f.path("node/dir"), GID: group})
	f.bindNode("node/dir", "elsewhere", false)
	m := f.bindNode("node/dir", "pods/a", false)
	f.check(!m.Shared, "beside a mount elsewhere: %+v", m)
	m = f.bindNode("node/dir/sub", "pods/sub", false)
	f.check(!m.Shared, "beside a mount of what is above: %+v", m)
	m = f.bindNode("node/dir", "pods/b", true)
	f.check(m.Shared && m.GID == group, "beside another mount: %+v", m)
	request := &world.BindMount{Source: f.path("node/dir"), Path: f.path("pods/c"),
		Among: f.path("pods"), Exclusive: true}
	f.mustFail(request, world.KindRefused)
	f.unmount("pods")
	mustGet[*world.Mounted](f, request)
	mustGet[*world.Mounted](f, request) // it exists
	f.check(f.mountPoints("pods") == "pods/c", "mounts %q", f.mountPoints("pods"))
}

func bindRequiresMount(f *folder) {
	defer f.unmount(".")
	f.mkdir("global")
	request := &world.BindMount{Source: f.path("global"), Path: f.path("pods/p"), SourceMounted: true}
	f.mustFail(request, world.KindNotFound)
	f.check(f.mountPoints("pods") == "", "mounted: %q", f.mountPoints("pods"))
	f.mount("global")
	f.write("global/file", "x")
	mustGet[*world.Mounted](f, request)
	f.expectContent("pods/p/file", "x")
}

func bindRefusesMissing(f *folder) {
	f.mustFail(&world.BindMount{Source: f.path("absent"), Path: f.path("pods/p")}, world.KindNotFound)
	f.check(f.names(".") == "", "found %q", f.names("."))
}

// blockDevice returns a block device; it skips the case if the disk has none.
func (f *folder) blockDevice() string {
	if devices, ok := f.w.(BlockDevices); ok {
		return devices.BlockDevice()
	}
	f.Skip("the disk has no block devices")
	return ""
}

func mountsDevice(f *folder) {
	device := f.blockDevice()
	defer f.unmount(".")
	request := &world.MountDevice{Device: device, Path: f.path("global/pv"), FSType: "ext4"}
	f.check(!mustGet[*world.Mounted](f, request).Existed, "it was mounted before")
	f.write("global/pv/file", "x")
	f.check(mustGet[*world.Mounted](f, request).Existed, "it was not mounted before")
	f.check(f.mountPoints("global") == "global/pv", "mounts %q", f.mountPoints("global"))
	mounts := f.mounts("global")
	f.check(len(mounts) == 1 && mounts[0].FSType == "ext4" && mounts[0].Root == "/" &&
		mounts[0].Source == device, "mounts %+v, want %s", mounts, device)
	f.unmount("global")
	f.check(f.names("global/pv") == "", "left at the mount point: %q", f.names("global/pv"))
	request.ReadOnly = true
	mustGet[*world.Mounted](f, request)
	f.expectContent("global/pv/file", "x")
	f.check(f.mounts("global")[0].ReadOnly, "mounts %+v", f.mounts("global"))
}

func mountsNoBlankReadOnly(f *folder) {
	request := &world.MountDevice{Device: f.blockDevice(), Path: f.path("global"), FSType: "ext4",
		ReadOnly: true}
	f.mustFail(request, world.KindInternal)
	f.check(f.mountPoints(".") == "", "mounted: %q", f.mountPoints("."))
}

func mountsNoDevice(f *folder) {
	f.mkdir("dir")
	f.mustFail(&world.MountDevice{Device: f.path("dir"), Path: f.path("global"), FSType: "ext4"},
		world.KindInternal)
	f.mustFail(&world.MountDevice{Device: f.path("absent"), Path: f.path("global"), FSType: "ext4"},
		world.KindInternal, world.KindNotFound)
	f.check(f.mountPoints(".") == "", "mounted: %q", f.mountPoints("."))
}

// refusesAnotherDevice asks for a device that has not its path any more.
func refusesAnotherDevice(f *folder) {
	device, another := f.blockDevice(), uint64(1<<60)
	f.mustFail(&world.MountDevice{Device: device, Sequence: another, Path: f.path("global"),
		FSType: "ext4"}, world.KindNotFound)
	f.mustFail(&world.BindMount{Source: device, Sequence: another, Path: f.path("bound")},
		world.KindNotFound)
	f.check(f.mountPoints(".") == "", "mounted: %q", f.mountPoints("."))
}

// bindsDevice does what the agent does with the device of a local volume.
func bindsDevice(f *folder) {
	device := f.blockDevice()
	bound, link := f.path("volumes/pv/a"), f.path("pods/a/pv")
	defer f.unmount(".")
	defer f.mustDo(&world.ReleaseDevice{Path: bound})
	request := func(pod string) *world.BindMount {
		return &world.BindMount{Source: device, Path: f.path("volumes/pv/" + pod),
			Among: f.path("volumes/pv"), Exclusive: true}
	}
	for range 2 {
		mustGet[*world.Mounted](f, request("a"))
		f.mustDo(&world.HoldDevice{Path: bound})
		f.mustDo(&world.MakeLink{Path: link, Target: bound})
	}
	for _, at := range []string{bound, link} {
		info := mustGet[*world.PathInfo](f, &world.StatPath{Path: at})
		f.check(info.Kind == world.PathBlockDevice, "%s is a %s", at, info.Kind)
	}
	size := mustGet[*world.DeviceMeasured](f, &world.MeasureDevice{Path: bound})
	f.check(size.CapacityBytes > 0 && *size ==
		*mustGet[*world.DeviceMeasured](f, &world.MeasureDevice{Path: device}), "size: %+v", size)
	f.mustFail(&world.MeasureDevice{Path: f.path("absent")}, world.KindNotFound)
	f.mustFail(&world.MeasureDevice{Path: f.path("volumes")}, world.KindInvalid)
	f.mustFail(request("b"), world.KindRefused)
	f.mustFail(&world.Unmount{Path: bound}, world.KindExhausted)
	f.mustFail(&world.RemoveTree{Path: f.path("volumes/pv")}, world.KindRefused)
	f.mustDo(&world.RemoveTree{Path: link})
	for range 2 {
		f.mustDo(&world.ReleaseDevice{Path: bound})
		f.mustDo(&world.Unmount{Path: bound})
	}
	info := mustGet[*world.PathInfo](f, &world.StatPath{Path: bound})
	f.check(info.Kind == world.PathFile && info.Size == 0, "left: %+v", info)
	mustGet[*world.Mounted](f, request("b"))
	f.mustFail(&world.HoldDevice{Path: bound}, world.KindInvalid)
	f.unmount("volumes")
	f.mustDo(&world.RemoveTree{Path: f.path("volumes/pv")})
	f.mustFail(&world.HoldDevice{Path: bound}, world.KindNotFound)
	f.mustDo(&world.ReleaseDevice{Path: bound})
}

func bindsLinkedDevice(f *folder) {
	device := f.blockDevice()
	defer f.unmount(".")
	f.mustDo(&world.MakeLink{Path: f.path("by-id/disk"), Target: device})
	mustGet[*world.Mounted](f, &world.BindMount{Source: f.path("by-id/disk"), Path: f.path("pv/a")})
	f.mustDo(&world.RemoveTree{Path: f.path("by-id")})
	info := mustGet[*world.PathInfo](f, &world.StatPath{Path: f.path("pv/a")})
	f.check(info.Kind == world.PathBlockDevice, "bound is a %s", info.Kind)
	other := &world.BindMount{Source: device, Path: f.path("pv/b"), Among: f.path("pv"),
		Exclusive: true}
	f.mustFail(other, world.KindRefused)
}
