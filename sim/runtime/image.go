package runtime

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
	"seedlet.dev/world"
)

// image is the true state of one image.
type image struct {
	ref, id string
	present bool
	user    string // without its group
	bytes   int64
	pinned  bool
	pulls   int // started so far
}

// image returns the image with a name or an ID.
func (r *Runtime) image(ref string) *image {
	if img := r.images[ref]; img != nil {
		return img
	}
	digest := sha256.Sum256([]byte(ref))
	img := &image{ref: ref, id: "sha256:" + hex.EncodeToString(digest[:])}
	planned := r.opts.Images(ref, 0)
	img.present = !planned.Absent
	img.user, _, _ = strings.Cut(planned.User, ":")
	img.bytes, img.pinned = cmp.Or(planned.Bytes, imageBytes), planned.Pinned
	r.images[ref], r.images[img.id] = img, img
	return img
}

// imageStatus returns a response without an image if the image is not present.
func (r *Runtime) imageStatus(req *runtimeapi.ImageStatusRequest) *runtimeapi.ImageStatusResponse {
	img := r.image(req.GetImage().GetImage())
	if !img.present {
		return &runtimeapi.ImageStatusResponse{}
	}
	return &runtimeapi.ImageStatusResponse{Image: img.message()}
}

// listImages returns the images that are present, sorted by name.
func (r *Runtime) listImages() *runtimeapi.ListImagesResponse {
	list := &runtimeapi.ListImagesResponse{}
	for _, name := range slices.Sorted(maps.Keys(r.images)) {
		if img := r.images[name]; img.present && name == img.ref {
			list.Images = append(list.Images, img.message())
		}
	}
	return list
}

// PresentImages returns the references of the images that are present, sorted.
func (r *Runtime) PresentImages() []string {
	var refs []string
	for _, name := range slices.Sorted(maps.Keys(r.images)) {
		if img := r.images[name]; img.present && name == img.ref {
			refs = append(refs, name)
		}
	}
	return refs
}

// message returns the image as the CRI reports it.
func (img *image) message() *runtimeapi.Image {
	message := &runtimeapi.Image{
		Id: img.id, RepoTags: []string{img.ref}, Size: uint64(img.bytes), Pinned: img.pinned,
		Spec: &runtimeapi.ImageSpec{Image: img.ref},
	}
	if uid, err := strconv.ParseInt(img.user, 10, 64); err == nil {
		message.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		message.Username = img.user
	}
	return message
}

// What images occupy: in the runtime's directory, the bytes of an image without a plan, and the
// files of each image. LayerDirectory has the writable layers that are not beside them.
const (
	LayerDirectory = "/var/lib/containers/storage/overlay"
	ImageDirectory = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"
	imageBytes     = 1 << 20
	imageInodes    = 100
)

// AddImage makes the runtime know an image before the agent mentions it.
func (r *Runtime) AddImage(ref string) { r.image(ref) }

// ImageUsage returns what is used of the file system of the images: by those that are present, and
// by the writable layers that are beside them.
func (r *Runtime) ImageUsage() (bytes, inodes int64) {
	for _, name := range slices.Sorted(maps.Keys(r.images)) {
		if img := r.images[name]; img.present && name == img.ref {
			bytes, inodes = bytes+img.bytes, inodes+imageInodes
		}
	}
	if r.opts.LayersApart {
		return bytes, inodes
	}
	layerBytes, layerInodes := r.LayerUsage()
	return bytes + layerBytes, inodes + layerInodes
}

// LayerUsage returns what the writable layers occupy.
func (r *Runtime) LayerUsage() (bytes, inodes int64) {
	for _, list := range [][]*container{r.containerOrder, r.garbage} {
		for _, c := range list {
			bytes, inodes = bytes+c.layerBytes(), inodes+int64(len(c.layer))
		}
	}
	return bytes, inodes
}

// layerDirectory returns where the writable layers are.
func (r *Runtime) layerDirectory() string {
	if r.opts.LayersApart {
		return LayerDirectory
	}
	return ImageDirectory
}

// imageFsInfo returns the usage of the file systems of the images and of the writable layers.
func (r *Runtime) imageFsInfo() *runtimeapi.ImageFsInfoResponse {
	usage := func(directory string, bytes, inodes int64) []*runtimeapi.FilesystemUsage {
		return []*runtimeapi.FilesystemUsage{{Timestamp: r.now().UnixNano(),
			FsId:       &runtimeapi.FilesystemIdentifier{Mountpoint: directory},
			UsedBytes:  &runtimeapi.UInt64Value{Value: uint64(bytes)},
			InodesUsed: &runtimeapi.UInt64Value{Value: uint64(inodes)}}}
	}
	bytes, inodes := r.ImageUsage()
	info := &runtimeapi.ImageFsInfoResponse{ImageFilesystems: usage(ImageDirectory, bytes, inodes)}
	switch {
	case r.opts.Containerd16:
	case r.opts.LayersApart:
		bytes, inodes = r.LayerUsage()
		info.ContainerFilesystems = usage(LayerDirectory, bytes, inodes)
	default:
		info.ContainerFilesystems = info.ImageFilesystems
	}
	return info
}

// removeImage removes an image after a while, whether or not containers use it.
func (r *Runtime) removeImage(call *wire.Call, req *runtimeapi.RemoveImageRequest) {
	img := r.image(req.GetImage().GetImage())
	if !img.present {
		call.Reply(&runtimeapi.RemoveImageResponse{})
		return
	}
	r.after(call.DurationBetween(time.Millisecond, 200*time.Millisecond), func() {
		if call.DrawsAbort() {
			return
		}
		if img.present {
			r.deleteImage(img, "")
		}
		call.Reply(&runtimeapi.RemoveImageResponse{})
	})
}

func (r *Runtime) deleteImage(img *image, cause string) {
	img.present = false
	r.opts.Truth.Add(truth.Fact{Time: r.now(), Kind: truth.ImageRemoved, Image: img.ref,
		Bytes: img.bytes, IsPinned: img.pinned, Cause: cause})
}

// containerUser returns the user of a container: the one of the request, or else the one of the
// image.
func (img *image) containerUser(call string, s *runtimeapi.LinuxContainerSecurityContext) (string,
	*world.Error) {
	switch {
	case s.GetRunAsUsername() != "":
		return s.GetRunAsUsername(), nil
	case s.GetRunAsUser() != nil:
		return strconv.FormatInt(s.GetRunAsUser().Value, 10), nil
	case s.GetRunAsGroup() != nil:
		return "", world.Errorf(world.KindInternal, call, "failed to generate user string: user "+
			"group \"%d\" is specified without user", s.GetRunAsGroup().Value)
	case img.user == "":
		return "0", nil
	}
	return img.user, nil
}

// imageMounts returns the references of the images that a container mounts, in the order of its
// mounts.
func (r *Runtime) imageMounts(call string, config *runtimeapi.ContainerConfig) ([]string,
	*world.Error) {
	var refs []string
	for _, m := range config.GetMounts() {
		if m.GetImage() == nil {
			continue
		}
		img, kind, reason := r.image(m.Image.Image), world.KindInternal, ""
		switch {
		case m.HostPath != "":
			reason = "hostpath must be empty while mount image"
		case !m.Readonly:
			reason = "readonly must be true while mount image"
		case m.Image.Image == "":
			reason = "image not specified"
		case !img.present:
			kind, reason = world.KindNotFound, "failed to resolve image \""+img.ref+"\": not found"
		}
		if reason != "" {
			return nil, world.Errorf(kind, call,
				"failed to mount image volume: ImageVolumeMountFailed: %s", reason)
		}
		refs = append(refs, img.ref)
	}
	return refs, nil
}

// pullImage makes an image present after the planned duration, unless the plan has an error for
// this pull.
func (r *Runtime) pullImage(call *wire.Call, req *runtimeapi.PullImageRequest) {
	img := r.image(req.GetImage().GetImage())
	plan := r.opts.Images(img.ref, img.pulls)
	img.pulls++
	if plan.PullDuration == 0 {
		plan.PullDuration = call.DurationBetween(100*time.Millisecond, 3*time.Second)
	}
	call.ContinueAfter(plan.PullDuration, func() {
		if plan.PullError != nil {
			call.Fail(plan.PullError)
			return
		}
		user := req.GetAuth().GetUsername()
		if len(plan.PulledBy) > 0 && !slices.Contains(plan.PulledBy, user) {
			call.Fail(world.Errorf(world.KindInternal, "PullImage", "failed to resolve reference %q: pull "+
				"access denied, repository does not exist or may require authorization: server message: "+
				"insufficient_scope: authorization failed", img.ref))
			return
		}
		if call.DrawsAbort() {
			return
		}
		if !img.present && img.bytes > r.room(ImageDirectory) {
			r.opts.NoteFull()
			call.Fail(world.Errorf(world.KindInternal, "PullImage", "failed to pull and unpack image %q: "+
				"no space left on device", img.ref))
			return
		}
		img.present = true
		r.opts.Truth.Add(truth.Fact{Time: r.now(), Kind: truth.ImagePulled, Image: img.ref})
		call.Reply(&runtimeapi.PullImageResponse{ImageRef: img.id})
	})
}
