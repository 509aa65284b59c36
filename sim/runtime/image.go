package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
	"seedlet.dev/sim/wire"
)

// image is what is true about one image.
type image struct {
	ref, id string
	present bool
	pulls   int // begun so far
}

// image looks an image up, by its name or its id.
func (r *Runtime) image(ref string) *image {
	if img := r.images[ref]; img != nil {
		return img
	}
	digest := sha256.Sum256([]byte(ref))
	img := &image{ref: ref, id: "sha256:" + hex.EncodeToString(digest[:])}
	img.present = !r.opts.Images(ref, 0).Absent
	r.images[ref], r.images[img.id] = img, img
	return img
}

// imageStatus answers without an image when it is not here.
func (r *Runtime) imageStatus(req *runtimeapi.ImageStatusRequest) *runtimeapi.ImageStatusResponse {
	img := r.image(req.GetImage().GetImage())
	if !img.present {
		return &runtimeapi.ImageStatusResponse{}
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{
		Id: img.id, RepoTags: []string{img.ref}, Size: 1 << 20,
		Spec: &runtimeapi.ImageSpec{Image: img.ref},
	}}
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
