package stats

import (
	"context"
	"encoding/json"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxImages are the images of the sandboxes in the last measurement. cAdvisor has them in the
// series of the network, which dashboards select by `image!=""`. The image of a sandbox never
// changes, so the runtime is asked once. It is used only by the goroutine that measures cgroups, of
// which there is one at a time.
type sandboxImages struct {
	known map[string]string // by ID; empty: the runtime names none
}

// fill sets the images of sandboxes. After a failure the others are asked for next time.
func (s *sandboxImages) fill(ctx context.Context, runtime runtimeapi.RuntimeServiceClient,
	sandboxes []*cgroupStats) {
	before := s.known
	s.known = make(map[string]string, len(sandboxes))
	for _, c := range sandboxes {
		image, isKnown := before[c.id]
		if !isKnown && ctx.Err() == nil {
			response, err := runtime.PodSandboxStatus(ctx,
				&runtimeapi.PodSandboxStatusRequest{PodSandboxId: c.id, Verbose: true})
			if err != nil {
				continue // the sandbox may have just gone
			}
			image, isKnown = imageOf(response), true
		}
		if isKnown {
			c.image, s.known[c.id] = image, image
		}
	}
}

// imageOf returns the image of a sandbox from what a runtime says of it for debugging, as
// containerd and CRI-O do.
func imageOf(response *runtimeapi.PodSandboxStatusResponse) string {
	var info struct {
		Image string `json:"image"`
	}
	if json.Unmarshal([]byte(response.GetInfo()["info"]), &info) != nil {
		return ""
	}
	return info.Image
}
