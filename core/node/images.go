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
	imagesPeriod  = 30 * time.Second // the kubelet's period of its image cache
	imagesTimeout = 2 * time.Minute
	imageNamesMax = 5 // per image
)

// Images are the largest images of the runtime.
type Images struct {
	List   []v1.ContainerImage `json:"list,omitempty"`
	Listed bool                `json:"listed,omitempty"` // the runtime has listed its images
	Op     world.OpID          `json:"op,omitempty"`
	NextAt time.Time           `json:"nextAt"`
}

// plan lists the images if due.
func (i *Images) plan(effects *op.Effects) time.Time {
	switch {
	case i.Op != 0:
		return time.Time{}
	case effects.Now().Before(i.NextAt):
		return i.NextAt
	}
	i.Op = effects.Issue(Owner, "images", imagesTimeout, &runtimeapi.ListImagesRequest{})
	return time.Time{}
}

// handleCompletion applies a list. After a failure the images stay as they were.
func (i *Images) handleCompletion(ev world.Event, imagesMax int) {
	i.Op, i.NextAt = 0, ev.Time.Add(imagesPeriod)
	body, ok := ev.Body.(*runtimeapi.ListImagesResponse)
	if ev.Err != nil || !ok {
		return
	}
	images := slices.Clone(body.Images)
	slices.SortFunc(images, func(x, y *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(y.Size, x.Size), cmp.Compare(x.Id, y.Id))
	})
	if imagesMax >= 0 {
		images = images[:min(len(images), imagesMax)]
	}
	i.Listed, i.List = true, nil
	for _, image := range images {
		names := slices.Concat(image.RepoDigests, image.RepoTags)
		i.List = append(i.List, v1.ContainerImage{
			Names:     names[:min(len(names), imageNamesMax)],
			SizeBytes: int64(image.Size),
		})
	}
}
