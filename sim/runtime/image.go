package runtime

import (
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

// image is what is true about one image.
type image struct {
	ref, id string
	present bool
	user    string // without a group
	pulls   int    // begun so far
}

// image looks an image up, by its name or its id.
func (r *Runtime) image(ref string) *image {
	if img := r.images[ref]; img != nil {
		return img
	}
	digest := sha256.Sum256([]byte(ref))
	img := &image{ref: ref, id: "sha256:" + hex.EncodeToString(digest[:])}
	is := r.opts.Images(ref, 0)
	img.present = !is.Absent
	img.user, _, _ = strings.Cut(is.User, ":")
	r.images[ref], r.images[img.id] = img, img
	return img
}

// imageStatus answers without an image when it is not here.
func (r *Runtime) imageStatus(req *runtimeapi.ImageStatusRequest) *runtimeapi.ImageStatusResponse {
	img := r.image(req.GetImage().GetImage())
	if !img.present {
		return &runtimeapi.ImageStatusResponse{}
	}
	return &runtimeapi.ImageStatusResponse{Image: img.shown()}
}

// listImages answers with the images that are here, by name.
func (r *Runtime) listImages() *runtimeapi.ListImagesResponse {
	list := &runtimeapi.ListImagesResponse{}
	for _, name := range slices.Sorted(maps.Keys(r.images)) {
		if img := r.images[name]; img.present && name == img.ref {
			list.Images = append(list.Images, img.shown())
		}
	}
	return list
}

// shown is an image as the runtime tells of it.
func (img *image) shown() *runtimeapi.Image {
	is := &runtimeapi.Image{
		Id: img.id, RepoTags: []string{img.ref}, Size: 1 << 20,
		Spec: &runtimeapi.ImageSpec{Image: img.ref},
	}
	if uid, err := strconv.ParseInt(img.user, 10, 64); err == nil {
		is.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		is.Username = img.user
	}
	return is
}

// userOf is as whom a container runs: as the request says, or else the image.
func (img *image) userOf(call string, s *runtimeapi.LinuxContainerSecurityContext) (string,
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

// imageMounts are the images that a container mounts, in the order in which it does.
func (r *Runtime) imageMounts(call string, config *runtimeapi.ContainerConfig) ([]string,
	*world.Error) {
	var refs []string
	for _, m := range config.GetMounts() {
		if m.GetImage() == nil {
			continue
		}
		img, kind, why := r.image(m.Image.Image), world.KindInternal, ""
		switch {
		case m.HostPath != "":
			why = "hostpath must be empty while mount image"
		case !m.Readonly:
			why = "readonly must be true while mount image"
		case m.Image.Image == "":
			why = "image not specified"
		case !img.present:
			kind, why = world.KindNotFound, "failed to resolve image \""+img.ref+"\": not found"
		}
		if why != "" {
			return nil, world.Errorf(kind, call,
				"failed to mount image volume: ImageVolumeMountFailed: %s", why)
		}
		refs = append(refs, img.ref)
	}
	return refs, nil
}

// pullImage makes an image present when it has come, unless the plan says that it fails.
func (r *Runtime) pullImage(call *wire.Call, req *runtimeapi.PullImageRequest) {
	img := r.image(req.GetImage().GetImage())
	plan := r.opts.Images(img.ref, img.pulls)
	img.pulls++
	if plan.PullTakes == 0 {
		plan.PullTakes = call.Between(100*time.Millisecond, 3*time.Second)
	}
	call.Work(plan.PullTakes, func() {
		if plan.PullError != nil {
			call.Fail(plan.PullError)
			return
		}
		if call.GivesUp() {
			return
		}
		img.present = true
		r.opts.Truth.Add(truth.Fact{Time: r.now(), Kind: truth.ImagePulled, Image: img.ref})
		call.Reply(&runtimeapi.PullImageResponse{ImageRef: img.id})
	})
}
