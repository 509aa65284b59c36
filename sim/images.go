package sim

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"seedlet.dev/sim/oracle"
	"seedlet.dev/sim/plan"
	"seedlet.dev/sim/runtime"
	"seedlet.dev/world"
)

// imageRegistry has the images of the plan, and the users of images, by reference.
type imageRegistry struct {
	planned map[string]*plan.Image
	users   map[string]string
	private map[string][]string
	present map[string]plan.NodeImage
}

// forever is longer than any run.
const forever = 1000 * time.Hour

func newImageRegistry(spec *plan.Spec) imageRegistry {
	registry := imageRegistry{map[string]*plan.Image{}, spec.ImageUsers,
		spec.PrivateImages, map[string]plan.NodeImage{}}
	for _, image := range spec.Node.NodeImages {
		registry.present[image.Ref] = image
	}
	for i := range spec.Images {
		registry.planned[spec.Images[i].Ref] = &spec.Images[i]
	}
	return registry
}

// imageFor returns the image of a reference, for the pull after the given number of pulls.
func (r imageRegistry) imageFor(ref string, pulls int) runtime.Image {
	planned := r.planned[ref]
	if planned == nil {
		has := r.present[ref]
		return runtime.Image{User: r.users[ref], Bytes: has.Bytes, Pinned: has.Pinned,
			PulledBy: r.private[ref]}
	}
	image := runtime.Image{
		Absent: true, PullDuration: time.Duration(planned.PullTakes), User: r.users[ref],
		PulledBy: r.private[ref],
	}
	if planned.Stuck && pulls == 0 {
		image.PullDuration = forever
	}
	if pulls < planned.Failures {
		image.PullError = world.Errorf(world.KindInternal, "PullImage", "planned failure of a pull")
	}
	return image
}

// userOf returns the user of an image, without the group.
func (r imageRegistry) userOf(ref string) string {
	user, _, _ := strings.Cut(r.users[ref], ":")
	return user
}

// oracleImageGC returns how the agent has to collect images. The thresholds are checked if the file
// system of the images has a size by the plan.
func (r *run) oracleImageGC(kubelet *kubeletconfig.KubeletConfiguration) oracle.ImageGC {
	gc := oracle.ImageGC{
		HighPercent: int64(*kubelet.ImageGCHighThresholdPercent),
		LowPercent:  int64(*kubelet.ImageGCLowThresholdPercent),
		AgeMin:      kubelet.ImageMinimumGCAge.Duration,
		AgeMax:      kubelet.ImageMaximumGCAge.Duration,
	}
	if r.plan.Node.ImageBytes > 0 || r.plan.Node.DiskMiB > 0 {
		gc.Filesystem = func() (used, capacity int64) {
			fs := r.disk.Filesystem(runtime.ImageDirectory)
			return fs.CapacityBytes - fs.AvailableBytes, fs.CapacityBytes
		}
	}
	return gc
}

// unusedImages returns the unpinned images of the node that no pod of the plan names.
func unusedImages(spec *plan.Spec) []string {
	var unused []string
	text, err := json.Marshal(spec)
	if err != nil {
		panic("sim: a plan cannot be encoded: " + err.Error())
	}
	for _, img := range spec.Node.NodeImages {
		named := strings.Count(string(text), strconv.Quote(img.Ref))
		if named == 1 && !img.Pinned {
			unused = append(unused, img.Ref)
		}
	}
	return unused
}
