package stats

import (
	"context"
	"encoding/json"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxImages are the images of the sandboxes in the last measurement. cAdvisor has them in the
// series of the network, which dashboards select by `image!=""`. The image of a sandbox never
// changes, so the runtime is asked until it has answered. It is used only by the goroutine that
// measures cgroups, of which there is one at a time.
type sandboxImages struct {
	known map[string]sandboxImage // by ID
}

// sandboxImage is what is known of the image of a sandbox.
type sandboxImage struct {
	name  string    // empty: the runtime names none
	askAt time.Time // when to ask again; zero: not at all
}

const (
	imagesTimeout = time.Second // of all that one measurement asks
	imagesRetry   = time.Minute // after a failure, so that one sandbox does not delay the others
	imageNameMax  = 1 << 10     // bytes; every series of the sandbox has the name
)

// fill sets the images of sandboxes. After a time they are left to the next measurement.
func (s *sandboxImages) fill(ctx context.Context, runtime runtimeapi.RuntimeServiceClient,
	now time.Time, sandboxes []*cgroupStats) {
	ctx, cancel := context.WithTimeout(ctx, imagesTimeout)
	defer cancel()
	before := s.known
	s.known = make(map[string]sandboxImage, len(sandboxes))
	for _, c := range sandboxes {
		image, isKnown := before[c.id]
		if mustAsk := !isKnown || !image.askAt.IsZero() && !now.Before(image.askAt); mustAsk {
			if ctx.Err() != nil {
				continue
			}
			image = askForImage(ctx, runtime, now, c.id)
		}
		c.image, s.known[c.id] = image.name, image
	}
}

// askForImage asks the runtime for the image of a sandbox, which may have just gone.
func askForImage(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, now time.Time,
	id string) sandboxImage {
	response, err := runtime.PodSandboxStatus(ctx,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil || response.GetStatus().GetId() != id {
		return sandboxImage{askAt: now.Add(imagesRetry)}
	}
	// Runtimes tell it for debugging: containerd and CRI-O in this form.
	var info struct {
		Image string `json:"image"`
	}
	if json.Unmarshal([]byte(response.GetInfo()["info"]), &info) != nil ||
		len(info.Image) > imageNameMax {
		return sandboxImage{}
	}
	return sandboxImage{name: info.Image}
}
