package node

import (
	"cmp"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/core/op"
	"seedlet.dev/world"
)

const (
	imagesEvery   = 30 * time.Second // as the kubelet's image cache
	imagesTimeout = 2 * time.Minute
	imageNamesMax = 5 // of one image
)

// Images are the largest images that the runtime has.
type Images struct {
	List   []v1.ContainerImage `json:"list,omitempty"`
	Known  bool                `json:"known,omitempty"` // they have been listed
	Op     world.OpID          `json:"op,omitempty"`
	NextAt time.Time           `json:"nextAt"`
}

// plan lists the images if it is time.
func (i *Images) plan(out *op.Out) time.Time {
	switch {
	case i.Op != 0:
		return time.Time{}
	case out.Now().Before(i.NextAt):
		return i.NextAt
	}
	i.Op = out.Ask(Owner, "images", imagesTimeout, &runtimeapi.ListImagesRequest{})
	return time.Time{}
}

// answered takes a list. One that failed leaves what is known.
func (i *Images) answered(ev world.Event, most int) {
	i.Op, i.NextAt = 0, ev.Time.Add(imagesEvery)
	body, ok := ev.Body.(*runtimeapi.ListImagesResponse)
	if ev.Err != nil || !ok {
		return
	}
	images := slices.Clone(body.Images)
	slices.SortFunc(images, func(x, y *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(x.Id, y.Id))
	})
	if most >= 0 {
		images = images[:min(len(images), most)]
	}
	i.Known, i.List = true, nil
	for _, image := range images {
		names := slices.Concat(image.RepoDigests, image.RepoTags)
		i.List = append(i.List, v1.ContainerImage{
			Names:     names[:min(len(names), imageNamesMax)],
			SizeBytes: int64(image.Size),
		})
	}
}
