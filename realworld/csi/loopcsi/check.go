package loopcsi

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// validID matches IDs of volumes, snapshots and nodes. Each is the name of a file, so none has a
// slash or begins with a dot.
var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$`)

// nameMax bounds the name of a volume or snapshot: the CSI specification's limit of a string.
const nameMax = 128

func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func checkID(what, id string) error {
	switch {
	case id == "":
		return invalid("no %s ID", what)
	case !validID.MatchString(id):
		return invalid("%s ID %q: want %s", what, id, validID)
	}
	return nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return invalid("no name")
	case len(name) > nameMax:
		return invalid("a name of %d bytes: want at most %d", len(name), nameMax)
	}
	return nil
}

// checkPath refuses paths that do not name one place for this process.
func checkPath(what, path string) error {
	switch {
	case path == "":
		return invalid("no %s", what)
	case !filepath.IsAbs(path) || filepath.Clean(path) != strings.TrimSuffix(path, "/"):
		return invalid("%s %q: want an absolute path without ..", what, path)
	}
	return nil
}

// resolve returns a path as mountinfo has it: without symbolic links above its last part, which
// may be a mount or not exist yet.
func resolve(path string) string {
	dir, base := filepath.Split(filepath.Clean(path))
	if parent, err := filepath.EvalSymlinks(dir); err == nil {
		return filepath.Join(parent, base)
	}
	return filepath.Clean(path)
}

// The file systems that a volume may have. The first is the default.
var fileSystems = []string{"ext4", "xfs"}

// fileSystemOf returns the file system that a capability asks for; empty for a raw block volume.
func fileSystemOf(c *csi.VolumeCapability) string {
	switch {
	case c.GetBlock() != nil:
		return ""
	case c.GetMount().GetFsType() == "":
		return fileSystems[0]
	}
	return c.GetMount().GetFsType()
}

func checkCapability(c *csi.VolumeCapability) error {
	mode := c.GetAccessMode().GetMode()
	switch {
	case c == nil:
		return invalid("no volume capability")
	case c.GetBlock() == nil && c.GetMount() == nil:
		return invalid("a volume capability without an access type")
	case mode == csi.VolumeCapability_AccessMode_UNKNOWN ||
		csi.VolumeCapability_AccessMode_Mode_name[int32(mode)] == "":
		return invalid("access mode %v is unknown", mode)
	case c.GetMount() != nil && !slices.Contains(fileSystems, fileSystemOf(c)):
		return invalid("file system %q: want one of %v", fileSystemOf(c), fileSystems)
	}
	return nil
}

func checkCapabilities(all []*csi.VolumeCapability) error {
	if len(all) == 0 {
		return invalid("no volume capabilities")
	}
	for _, c := range all {
		if err := checkCapability(c); err != nil {
			return err
		}
	}
	return nil
}

// isReadOnly reports whether an access mode excludes writers.
func isReadOnly(c *csi.VolumeCapability) bool {
	mode := c.GetAccessMode().GetMode()
	return mode == csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY ||
		mode == csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
}

// isForOneNode reports whether an access mode excludes a second node.
func isForOneNode(mode csi.VolumeCapability_AccessMode_Mode) bool {
	switch mode {
	case csi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY,
		csi.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		return false
	}
	return true
}

// The sizes of images. mkfs.xfs refuses smaller file systems since xfsprogs 5.19.
const (
	mebibyte     = 1 << 20
	sizeUnit     = mebibyte
	sizeDefault  = 64 * mebibyte
	sizeMinBlock = mebibyte
	sizeMinExt4  = 16 * mebibyte
	sizeMinXFS   = 300 * mebibyte
)

// sizeMin returns the smallest image that satisfies all capabilities.
func sizeMin(all []*csi.VolumeCapability) int64 {
	least := int64(sizeMinBlock)
	for _, c := range all {
		switch fileSystemOf(c) {
		case "ext4":
			least = max(least, sizeMinExt4)
		case "xfs":
			least = max(least, sizeMinXFS)
		}
	}
	return least
}

// sizeFor returns the size of an image within a range, at least a minimum and below a maximum.
func sizeFor(r *csi.CapacityRange, least, most int64) (int64, error) {
	required, limit := r.GetRequiredBytes(), r.GetLimitBytes()
	switch {
	case required < 0 || limit < 0 || limit > 0 && required > limit:
		return 0, invalid("capacity from %d to %d", required, limit)
	case required > most || least > most:
		return 0, status.Errorf(codes.OutOfRange, "capacity %d: want at most %d", required, most)
	}
	size := max(required, least)
	if required == 0 && limit == 0 {
		size = max(least, sizeDefault)
	}
	size = (size + sizeUnit - 1) / sizeUnit * sizeUnit
	if limit > 0 && size > limit {
		return 0, status.Errorf(codes.OutOfRange, "capacity up to %d: want at least %d", limit, size)
	}
	return size, nil
}
