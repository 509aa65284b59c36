package oracle

import (
	"crypto/sha256"
	"fmt"
	"path"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"seedlet.dev/sim/truth"
)

// imageIntents fires when the disk has many files of images that an agent is about to pull, and has
// not asked the runtime to. The next agent reads all of them. More than it can read would leave the
// images on the node to no pod.
type imageIntents struct{}

func (*imageIntents) describe() Entry {
	return Entry{"image-intents", "However many images pods wait for, the disk has a few files of " +
		"images that are about to be pulled."}
}

// intentsBound is how many there may be of each agent that was started: what one that ends has
// written stays for the next.
const intentsBound = 100

func (*imageIntents) checkFact(m *model, f *truth.Fact) *finding {
	isWrite := f.Kind == truth.PathCreated || f.Kind == truth.PathWritten
	if !isWrite || m.opts.ListFiles == nil || !isIntent(f.Path) {
		return nil
	}
	ahead := 0
	for file := range m.opts.ListFiles(path.Dir(f.Path)) {
		if strings.HasPrefix(file.Name, "sha256-") && !m.images.asked[file.Name] {
			ahead++
		}
	}
	if most := intentsBound * max(1, m.agentStarts); ahead > most {
		return findingf("%d files say that images are about to be pulled whose pulls were not asked "+
			"for, want at most %d", ahead, most)
	}
	return nil
}

// isIntent reports whether a file says that an image is about to be pulled.
func isIntent(file string) bool {
	return strings.HasSuffix(path.Dir(file), "/image_manager/pulling")
}

// intentFile returns the name of the file of an image that is about to be pulled.
func intentFile(ref string) string {
	return fmt.Sprintf("sha256-%x", sha256.Sum256([]byte(ref)))
}

// noteAsked notes that the agent has asked the runtime to pull an image.
func (i *privateImages) noteAsked(request any) {
	if pull, isPull := request.(*runtimeapi.PullImageRequest); isPull {
		i.asked[intentFile(pull.GetImage().GetImage())] = true
	}
}
