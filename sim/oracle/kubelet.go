package oracle

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"path"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/dump"

	"seedlet.dev/sim/truth"
)

// What the node agent has to write under the names of the kubelet. These are the judge's own
// definitions: they share no code with the core, so that an error there is seen.

// Annotations of pods.
const (
	annotationSource = "kubernetes.io/config.source" // of a static pod: its source
	annotationUID    = "kubernetes.io/config.hash"   // of a static pod: its UID on the node
	sourceFile       = "file"
	sourceHTTP       = "http"
)

// isMirror reports whether an object stands for a static pod.
func isMirror(object *v1.Pod) bool {
	_, found := object.Annotations["kubernetes.io/config.mirror"]
	return found
}

// mirroredUID returns the UID of the static pod that an object stands for.
func mirroredUID(object *v1.Pod) string { return object.Annotations["kubernetes.io/config.mirror"] }

// containerHash returns the hash that a container is annotated with. It changes with the name and
// the image alone (kubernetes issues 63814, 129385).
func containerHash(c *v1.Container) string {
	data, err := json.Marshal(map[string]string{"image": c.Image, "name": c.Name})
	if err != nil {
		panic("oracle: " + err.Error()) // a text has JSON
	}
	sum := fnv.New32a()
	fmt.Fprint(sum, dump.ForHash(data)) // as HashContainer does
	return strconv.FormatUint(uint64(sum.Sum32()), 16)
}

// hashOf is containerHash, which is computed once for each name and image of a run.
func (m *model) hashOf(c *v1.Container) string {
	key := namedImage{c.Name, c.Image}
	hash, ok := m.hashes[key]
	if !ok {
		hash = containerHash(c)
		m.hashes[key] = hash
	}
	return hash
}

// createdFrom returns the container of a spec from which a container was created; nil if the spec
// has none, or one with another image.
func (m *model) createdFrom(spec *v1.Pod, f *truth.Fact) *v1.Container {
	c := containerOf(spec, f.Container)
	if c == nil || f.Annotations[annotationHash] != m.hashOf(c) {
		return nil
	}
	return c
}

// namedImage is what the hash of a container depends on.
type namedImage struct{ container, image string }

// volumePath returns the path of a volume of the pod that has a directory; empty if the runtime
// mounts an image.
func volumePath(podDir string, v *v1.Volume) string {
	var plugin string
	switch {
	case v.Image != nil:
		return ""
	case v.HostPath != nil:
		return path.Clean(v.HostPath.Path)
	case v.ConfigMap != nil:
		plugin = "configmap"
	case v.Secret != nil:
		plugin = "secret"
	case v.Projected != nil:
		plugin = "projected"
	case v.CSI != nil:
		return path.Join(podDir, "volumes", "kubernetes.io~csi", v.Name, "mount")
	case v.DownwardAPI != nil:
		plugin = "downward-api"
	default: // an emptyDir, also if nothing is said
		plugin = "empty-dir"
	}
	return path.Join(podDir, "volumes", "kubernetes.io~"+plugin, v.Name)
}

// subPathsDir returns the directory below which sub-paths of the pod's volumes are mounted.
func subPathsDir(podDir string) string { return podDir + "/volume-subpaths" }

// ChangeDetection is how the agent learns of changes of ConfigMaps and Secrets: by watches, or by
// reading them.
type ChangeDetection struct {
	// Reads reports that objects are read again while they are used; a version is then used for
	// SyncPeriod.
	Reads      bool
	SyncPeriod time.Duration
	// Cached reports that a version is used for as long as the Node's annotation says, if that is
	// longer.
	Cached bool
}

// ageMax returns how old a used version may be because of the agent's configuration.
func (c ChangeDetection) ageMax() time.Duration {
	switch {
	case !c.Reads:
		return 0
	case c.Cached:
		return max(c.SyncPeriod, maxCacheTTL)
	}
	return c.SyncPeriod
}
